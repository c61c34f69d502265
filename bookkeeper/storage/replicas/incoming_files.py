"""Files under way to this host: parts in ``incoming/``, each for one file with one size and checksum.

A part grows at its end only. It is complete when it has all bytes, is synced, and its checksum is that of the sender.
A part outlives the process: the next one goes on behind its last byte, and the checksum tells whether these bytes are
right. Memory is one message.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from bookkeeper.errors import CorruptionError, InvalidInputError, unavailable
from bookkeeper.storage.replicas.file_checks import WINDOW_BYTES, checksum_of, extended
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.storage.volume.file_ops import FileOps, write_all
from bookkeeper.storage.volume.volume_protocol import Volume

PART_SUFFIX = ".part"


def part_name(file: HeldFile) -> str:
    """The name of a file's part: another file, or another version of it, has another one."""
    digest = hashlib.blake2b(file.name.encode(), digest_size=16).hexdigest()
    return f"{digest}-{file.size_bytes}-{file.crc32c:08x}{PART_SUFFIX}"


def make_durable(fd: int, ops: FileOps) -> None:
    """Sync a complete part, before it counts (P5). Raises OSError."""
    ops.fsync(fd)


class Part:
    """One file under way. Thread-safe."""

    def __init__(self, path: Path, file: HeldFile, ops: FileOps) -> None:
        """``path`` may have bytes that an earlier process received. Raises OSError."""
        self.path = path
        self.file = file
        self._ops = ops
        self._lock = threading.Lock()
        self._held_bytes = path.stat().st_size if path.exists() else 0
        self._checksum: int | None = None if self._held_bytes else 0
        """None: of bytes that an earlier process received, not computed yet."""
        self._is_complete = False
        if self._held_bytes > file.size_bytes:
            path.unlink()
            self._held_bytes = self._checksum = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that are here. All of them are 0 again when they turned out to be wrong."""
        return self._held_bytes

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here, durable and right."""
        return self._is_complete

    def settle(self) -> None:
        """Complete a part whose last byte an earlier process received. Raises as :meth:`append`."""
        with self._lock:
            if self._held_bytes == self.file.size_bytes and not self._is_complete:
                self._write(b"")

    def append(self, start: int, content: bytes | memoryview) -> int:
        """Write the content that begins at ``start``; bytes that are here are skipped, and content behind a gap is left
        out. Returns the bytes that are here; the caller's memory is free then.

        Raises InvalidInputError for bytes behind the end of the file, CorruptionError when the complete part differs
        from the sender's file, UnavailableError; the part is then removed.
        """
        with self._lock:
            if start < 0 or start + len(content) > self.file.size_bytes:
                raise InvalidInputError(
                    f"{self.file.name} has {self.file.size_bytes} bytes, and {len(content)} come for position {start}"
                )
            if start <= self._held_bytes < start + len(content):
                self._write(content[self._held_bytes - start :])
            return self._held_bytes

    def _write(self, content: bytes | memoryview) -> None:
        try:
            if self._checksum is None:
                self._checksum = checksum_of(self.path, self._held_bytes)
            fd = self._ops.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                write_all(fd, [content], self._ops)
                self._held_bytes += len(content)
                self._checksum = extended(self._checksum or 0, content)
                is_last = self._held_bytes == self.file.size_bytes
                if is_last:
                    make_durable(fd, self._ops)
                elif len(content) >= WINDOW_BYTES:  # the disk writes while the next bytes are on their way
                    self._ops.begin_writing(fd, self._held_bytes - len(content), len(content))
            finally:
                self._ops.close(fd)
        except OSError as error:
            self._reset()
            raise unavailable(f"{self.file.name} can't be received", error) from error
        if is_last and self._checksum != self.file.crc32c:
            self._reset()
            raise CorruptionError(
                f"the received bytes of {self.file.name} are not those of the sender: their checksum differs; check "
                "the sender's disk and the network, then offer the segment again",
                {"file": self.file.name},
            )
        self._is_complete = is_last

    def discard(self) -> None:
        """Remove the bytes. Raises OSError."""
        with self._lock:
            self._reset()

    def _reset(self) -> None:
        self.path.unlink(missing_ok=True)
        self._held_bytes = self._checksum = 0
        self._is_complete = False


class IncomingFiles:
    """All parts of a host. Two segments that need one file share its part. Thread-safe."""

    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = {}
        self._users: dict[str, int] = {}

    def take(self, file: HeldFile) -> Part:
        """The part of a file, used until :meth:`give_back`. Raises UnavailableError."""
        name = part_name(file)
        with self._lock:
            part = self._parts.get(name)
            if part is None:
                try:
                    part = Part(self._store.incoming / name, file, self._store.ops)
                except OSError as error:
                    raise unavailable(f"the received part of {file.name} can't be read", error) from error
                self._parts[name] = part
            self._users[name] = self._users.get(name, 0) + 1
            return part

    def give_back(self, part: Part) -> None:
        """A segment no longer uses the part; its bytes stay for the next offer."""
        name = part.path.name
        with self._lock:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._parts[name]

    def publish(self, parts: Sequence[Part]) -> None:
        """Give complete parts the names of their files, durable on return. A part that another segment has published is
        skipped. Raises UnavailableError with some of them published, perhaps.
        """
        self._store.publish({part.path: part.file.name for part in parts if part.path.exists()})

    def free_bytes(self) -> int:
        """Room on the disk. Raises UnavailableError."""
        return self._store.free_bytes()

    def remove_idle(self, oldest_s: float) -> int:
        """Remove the parts that no segment uses and that got no byte since ``oldest_s`` (seconds since 1970). Returns
        how many. Raises OSError.
        """
        removed = 0
        for entry in list(os.scandir(self._store.incoming)):
            with self._lock:
                if entry.name not in self._parts and entry.stat().st_mtime < oldest_s:
                    (self._store.incoming / entry.name).unlink(missing_ok=True)
                    removed += 1
        return removed


def copy_durable(volume: Volume, name: str, path: Path, ops: FileOps) -> tuple[int, int]:
    """Copy a complete file of a Volume to a local path, whatever is there; durable on return, but for its name. Returns
    its bytes and their CRC-32C. Raises FileNotFoundError, OSError.
    """
    size, checksum = volume.size(name), 0
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for position in range(0, size, WINDOW_BYTES):
            window = volume.read_range(name, position, min(WINDOW_BYTES, size - position))
            write_all(fd, [window], ops)
            checksum = extended(checksum, window)
        ops.fsync(fd)
    finally:
        ops.close(fd)
    return size, checksum
