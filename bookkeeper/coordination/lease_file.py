"""The file of a session: a lease record that the process locks and renews.

The lock is free as soon as the process is gone, because programs that it starts do not inherit the lock. A renewal
writes only this file, so no other process can delay it. A renewal that finds other content than the previous one wrote
logs the damage and repairs the file. Rule: R15.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from msgspec import Struct

from bookkeeper.coordination.lease import NO_RECORD, RECORD_BYTES_MAX, LeaseRecord, LeaseState
from bookkeeper.errors import CorruptionError, unavailable

LOG = logging.getLogger(__name__)

_READS_MAX = 100


def read_lease(path: Path) -> LeaseState:
    """The state of the session with this file; reads the record only when a process has the lock. Raises
    FileNotFoundError, UnavailableError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return _read_state(descriptor, path)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(f"{path} can't be read", error) from error


def _read_state(descriptor: int, path: Path) -> LeaseState:
    if not _is_locked(descriptor):
        return LeaseState(NO_RECORD, is_locked=False)
    record = _read_record(descriptor)
    if record is None:
        return LeaseState(NO_RECORD, is_locked=True, damage=f"{path} is damaged: it has no lease record")
    return LeaseState(record, is_locked=True)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read_record(descriptor: int) -> LeaseRecord | None:
    """The lease record, or None when no read parses. A checksum fails when a renewal writes during the read."""
    for _ in range(_READS_MAX):
        try:
            return LeaseRecord.decode(os.pread(descriptor, RECORD_BYTES_MAX + 1, 0))
        except CorruptionError:
            continue
    return None


def read_record(path: Path) -> LeaseRecord | None:
    """The lease record of a file, whether a process holds it or not; None for one that is gone or does not parse."""
    try:
        return LeaseRecord.decode(path.read_bytes())
    except (FileNotFoundError, CorruptionError):
        return None


class SessionProcess(Struct, frozen=True):
    """The process of a session, the session's file, and the end of its latest lease (boot clock, ns). ``damage`` is the
    damage of the file ("" = none); ``expires_ns`` is then the latest possible end.
    """

    session_id: str
    pid: int
    path: Path
    expires_ns: int
    damage: str = ""


def read_boot_id() -> str:
    """The id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class LeaseFile:
    """The file of a session of this process, which has its lock until :meth:`close`. Used by one thread at a time."""

    def __init__(self, path: Path, boot_id: str, lease_ms: int, token: str = "") -> None:
        """Make the file, and lock it; ``token`` is in each record. Raises OSError."""
        self._path = path
        self._boot_id = boot_id
        self._lease_ns = lease_ms * 1_000_000
        self._token = token
        self._record = b""
        """The content that this process wrote last."""
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, path: Path) -> None:
        """Give the file its name. Raises OSError."""
        self._path.rename(path)
        self._path = path

    def is_there(self) -> bool:
        """Whether the file has its name still. Raises OSError."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def write(self, before_ns: int) -> None:
        """Write a lease that begins at ``before_ns``; nothing once the file is closed. Raises OSError."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        record = LeaseRecord(self._boot_id, before_ns + self._lease_ns, self._token).encode()
        # R15: other processes read it, and could not tell when the lease of this live process ends.
        if os.pread(descriptor, RECORD_BYTES_MAX + 1, 0) != self._record:
            LOG.error("%s is damaged: its content is not that of the last renewal; this renewal repairs it", self._path)
            os.ftruncate(descriptor, len(record))
        if os.pwrite(descriptor, record, 0) != len(record):
            raise OSError(f"short write to the lease file {self._path}")
        self._record = record

    def close(self) -> None:
        """Free the lock, so that other processes detect the end at once; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
