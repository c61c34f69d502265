"""One host's directory of replicas: who may use it, which disk it is, and a durable manifest for each replica.

    host.lock                       held by the one process that may change the directory
    incarnation                     made once: a wiped disk gets another one (P10)
    starts                          how often the host has started
    manifests/TABLE/DIRECTORY       what the host holds of a tablet
    tables/TABLE/DIRECTORY/FILE     segment files, under the names that the books have
    incoming/                       files under way to this host

A manifest is written to a temporary file, synced, renamed and its directory synced, so it is the old or the new one at
every moment. A manifest that can't be read is an error that names it, and a list is complete or an error: a replica is
never taken for empty because something was not read.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bookkeeper.errors import BookkeeperError, CorruptionError, RefusedError, UnavailableError, unavailable
from bookkeeper.model import HostIdentity
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.storage.replicas.manifest_codec import decode_manifest, encode_manifest
from bookkeeper.storage.volume.file_ops import FileOps, beside, create_once, make_directory, sync_directory, write_all
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import SCRATCH_SUFFIX, check_name

LOCK = "host.lock"
INCARNATION = "incarnation"
STARTS = "starts"
MANIFESTS = "manifests"
INCOMING = "incoming"

INCARNATION_BYTES_MAX = 64

SYNCS_AT_ONCE = 4
"""Manifests whose bytes are synced while the files that they list get their names; a caller waits for each."""


class HostStore:
    """An open directory. Thread-safe for different replicas; one replica's manifest has one user at a time."""

    def __init__(self, directory: Path, identity: HostIdentity, lock: int, ops: FileOps) -> None:
        """See :meth:`open`."""
        self._directory = directory
        self._identity = identity
        self._lock: int | None = lock
        self._ops = ops
        self._volume = LocalVolume(directory, ops)
        self._syncs = ThreadPoolExecutor(SYNCS_AT_ONCE, "manifest")

    @classmethod
    def open(cls, directory: Path, name: str, ops: FileOps | None = None) -> HostStore:
        """Lock the directory, which is made if there is none, and read its incarnation, which is made once.

        Raises RefusedError while another process has the lock, CorruptionError, UnavailableError.
        """
        ops = ops or FileOps()
        try:
            make_directory(directory, ops)
            lock = ops.open(directory / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise unavailable(f"the replicas of host {name} in {directory} can't be opened", error) from error
        try:
            _take(lock, directory)
            _make(directory, ops)
            return cls(directory, HostIdentity(name, _incarnation(directory)), lock, ops)
        except BaseException:
            ops.close(lock)
            raise

    @property
    def identity(self) -> HostIdentity:
        """The host, with the incarnation of its disk."""
        return self._identity

    @property
    def lock_file(self) -> tuple[int, int]:
        """Device and inode of the lock: a copy of the directory has others. The store must be open."""
        assert self._lock is not None
        status = os.fstat(self._lock)
        return status.st_dev, status.st_ino

    def starts(self) -> int:
        """How often the host has started, 0 = unknown. Raises CorruptionError, UnavailableError."""
        return read_starts(self._directory)

    def note_start(self, number: int) -> None:
        """Write how often the host has started, durable on return. Raises UnavailableError."""
        self._replace(self._directory / STARTS, b"%d\n" % number)

    def renew_incarnation(self) -> None:
        """Another incarnation from here on, durable on return: what other hosts know of the one before does not hold.
        Raises UnavailableError.
        """
        incarnation = _new_incarnation()
        self._replace(self._directory / INCARNATION, incarnation.encode())
        self._identity = HostIdentity(self._identity.name, incarnation, self._identity.zone)

    def _replace(self, path: Path, content: bytes) -> None:
        scratch = beside(path, SCRATCH_SUFFIX)
        error = self._write(scratch, content)
        try:
            if error is not None:
                raise error
            self._ops.rename(scratch, path)
            sync_directory(self._directory, self._ops)
        except OSError as error:
            raise unavailable(f"{path} of a host's disk can't be written", error) from error

    @property
    def volume(self) -> LocalVolume:
        """The segment files, by the names that the books have."""
        return self._volume

    @property
    def incoming(self) -> Path:
        """The directory of files under way to this host."""
        return self._directory / INCOMING

    @property
    def ops(self) -> FileOps:
        """The system calls of this directory."""
        return self._ops

    def list(self) -> list[ReplicaKey]:
        """The replicas that have a manifest, also a damaged one, in order. Raises UnavailableError: never a part."""
        try:
            return sorted(
                ReplicaKey(table.name, entry.name)
                for table in os.scandir(self._directory / MANIFESTS)
                for entry in os.scandir(table.path)
                if not entry.name.endswith(SCRATCH_SUFFIX)
            )
        except OSError as error:
            raise unavailable(f"the replicas in {self._directory} can't be listed", error) from error

    def load(self, key: ReplicaKey) -> Manifest | None:
        """The manifest of a replica; None when there is none. Raises CorruptionError, UnavailableError."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(f"the manifest {path} can't be read", error) from error
        try:
            manifest = decode_manifest(raw)
            if manifest.key != key:
                raise CorruptionError(f"it is the one of {manifest.key}")
        except BookkeeperError as error:
            raise CorruptionError(
                f"the manifest {path} of a replica is damaged: {error.message}; this host does not count as having the "
                "replica until the master gives it a new one",
                {"file": str(path), "reason": error.message},
            ) from error
        return manifest

    def save(self, manifest: Manifest, publish: Callable[[], None] | None = None) -> None:
        """Make this the manifest of its replica, durable on return. ``publish`` makes durable what it lists; it runs
        while the manifest's bytes are synced, and ends before the manifest gets its name: a disk syncs both at once.

        Raises InvalidInputError, and UnavailableError with this one or the one before on the disk; with the one before,
        the errors of ``publish``.
        """
        raw, path = encode_manifest(manifest), self._path(manifest.key)
        scratch = beside(path, SCRATCH_SUFFIX)
        try:
            synced = None if publish is None else self._begin_write(scratch, raw)
            try:
                if publish is not None:
                    publish()
            finally:
                error = self._write(scratch, raw) if synced is None else synced.result()
            if error is not None:
                raise error
            self._ops.rename(scratch, path)
            sync_directory(path.parent, self._ops)
        except OSError as error:
            raise unavailable(f"the manifest {path} can't be written", error) from error

    def _begin_write(self, path: Path, raw: bytes) -> Future[OSError | None]:
        try:
            return self._syncs.submit(self._write, path, raw)
        except RuntimeError:
            raise self._left() from None

    def _left(self) -> UnavailableError:
        return UnavailableError(f"this process has left the replicas in {self._directory}: ask the next one")

    def _write(self, path: Path, raw: bytes) -> OSError | None:
        """Write a file, durable on return, or return the error."""
        try:
            make_directory(path.parent, self._ops)
            fd = self._ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(fd, [raw], self._ops)
                self._ops.fsync(fd)
            finally:
                self._ops.close(fd)
        except OSError as error:
            return error
        return None

    def remove(self, key: ReplicaKey) -> None:
        """Remove the manifest of a replica, durable on return; none is fine. Raises UnavailableError."""
        path = self._path(key)
        try:
            beside(path, SCRATCH_SUFFIX).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            if path.parent.is_dir():
                sync_directory(path.parent, self._ops)
        except OSError as error:
            raise unavailable(f"the manifest {path} can't be removed", error) from error

    def publish(self, names: Mapping[Path, str]) -> None:
        """Give synced files below :attr:`incoming` their names on :attr:`volume`, durable on return. Raises
        UnavailableError with some of them published, perhaps.
        """
        paths = {path: self._directory / check_name(name) for path, name in names.items()}
        try:
            for path, target in paths.items():
                make_directory(target.parent, self._ops)
                self._ops.rename(path, target)
            for directory in {target.parent: None for target in paths.values()}:
                sync_directory(directory, self._ops)
        except OSError as error:
            raise unavailable(f"received files in {self._directory} can't get their names", error) from error

    def link(self, names: Mapping[str, str]) -> None:
        """Give durable files other names on :attr:`volume`, durable on return: new name to present name. A new name
        that is there already is fine, because the names of segment files are unique for ever. Raises OSError:
        FileNotFoundError for a file that is gone, with some names given, perhaps.
        """
        self._volume.link({new: present for new, present in names.items() if not self._volume.exists(new)})
        for directory in {(self._directory / new).parent: None for new in names}:
            sync_directory(directory, self._ops)  # also of names that a process gave before it died

    def free_bytes(self) -> int:
        """Room on the disk. Raises UnavailableError."""
        lock = self._lock
        if lock is None:
            raise self._left()
        try:
            return self._ops.free_bytes(lock)
        except OSError as error:
            raise unavailable(f"the room on the disk of {self._directory} is unknown", error) from error

    def close(self) -> None:
        """Release the lock; idempotent, because another file may have the number of a closed descriptor."""
        if self._lock is not None:
            self._syncs.shutdown()
            self._ops.close(self._lock)
            self._lock = None

    def _path(self, key: ReplicaKey) -> Path:
        key.check()
        return self._directory / MANIFESTS / key.table_id / key.directory


def _take(lock: int, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RefusedError(
            f"{directory}: another process holds the replicas of this host; stop it, or serve without replicas"
        ) from None


def _make(directory: Path, ops: FileOps) -> None:
    """Make what lacks. A disk that lost its manifests has another incarnation from here on: what other hosts know of
    the one before does not hold for it.
    """
    manifests, incarnation = directory / MANIFESTS, directory / INCARNATION
    try:
        if incarnation.exists() and not manifests.is_dir():
            incarnation.unlink()
            sync_directory(directory, ops)
        make_directory(manifests, ops)
        make_directory(directory / INCOMING, ops)
        if not incarnation.exists():
            create_once(incarnation, _new_incarnation().encode(), ops)
    except OSError as error:
        raise unavailable(f"the directory of replicas {directory} can't be made", error) from error


def _new_incarnation() -> str:
    return uuid.uuid4().hex


def read_starts(directory: Path) -> int:
    """How often the host with these replicas has started, 0 = unknown. Raises CorruptionError, UnavailableError."""
    path = directory / STARTS
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise unavailable(f"the number of starts of a host, {path}, can't be read", error) from error
    if not raw.strip().isdigit():
        raise CorruptionError(
            f"{path} is no number of starts: {raw[:80]!r}; move {directory} away: the host then has none of its "
            "replicas, and the master gives it new ones",
            {"file": str(path)},
        )
    return int(raw)


def _incarnation(directory: Path) -> str:
    path = directory / INCARNATION
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unavailable(f"the incarnation of a host's disk, {path}, can't be read", error) from error
    if not raw.isalnum() or len(raw) > INCARNATION_BYTES_MAX:
        raise CorruptionError(
            f"{path} is no incarnation of a host's disk: {raw[:80]!r}; move {directory} away: the host then has none "
            "of its replicas, and the master gives it new ones",
            {"file": str(path)},
        )
    return raw.decode()
