"""Files that other clusters send, until tablets have names of their own for them.

Arrives: what is offered, and the parts of its files in order. Leaves: whole files, compared with all that was said of
them, in a directory of this session. Survives a crash: files that nobody names; the master removes the directory when
the session is over (``master.strays``). Memory is one part, disk is bounded, what nobody sends any more goes after a
while.
Law: L7.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    CorruptionError,
    DeclinedError,
    IncompatibleError,
    InvalidInputError,
    OverloadedError,
    StreamExpiredError,
    unavailable,
)
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.offer_messages import Onward, SegmentPart
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.wal.wal_files import FileOps, make_directory, uri_of, write_all
from bookkeeper.tserver.bulk.segment_offers import OfferedFile

LOG = logging.getLogger(__name__)

TOTAL_BYTES_MAX = 4 << 30
"""Most bytes of all files under way at one tserver."""

LOOK_MS = 5_000


Check = Callable[[Path, OfferedFile], None]
"""Raises CorruptionError or IncompatibleError when a whole file is not what was said of it."""


@dataclass(slots=True)
class _File:
    path: Path
    offered: OfferedFile
    held: int = 0
    is_checked: bool = False
    digest: Any = field(default_factory=hashlib.sha256)


@dataclass(slots=True)
class Upload:
    """The files of one stream on their way. Used under its lock."""

    stream: StreamKey
    to_offset: int
    files: tuple[_File, ...]
    onward: Onward | None
    check: Check
    used_ns: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False

    @property
    def offered(self) -> tuple[OfferedFile, ...]:
        """What was offered."""
        return tuple(file.offered for file in self.files)

    @property
    def uris(self) -> list[str]:
        """The files, in the order of the offer."""
        return [uri_of(file.path) for file in self.files]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.offered.entry.size_bytes for file in self.files)


def is_whole(digest: str, offered: OfferedFile) -> bool:
    """Whether what came is what the import wrote (L7)."""
    return digest == offered.sha256


def check_whole(upload: Upload, file: _File) -> None:
    """Raise DeclinedError when a whole file is not what was offered, or not what is said of it (L7): its records
    may come as such.
    """
    if not is_whole(file.digest.hexdigest(), file.offered):
        raise DeclinedError(f"what came of {upload.stream.file} is not what was imported: its checksum differs")
    try:
        upload.check(file.path, file.offered)
    except (CorruptionError, IncompatibleError) as error:
        raise DeclinedError(f"a file of {upload.stream.file} is not as it says: {error.message}") from error


class SegmentUploads:
    """Thread-safe. One upload a stream."""

    def __init__(
        self, directory: Path, clock: Clock, idle_timeout_ms: int, die: Die, ops: FileOps | None = None
    ) -> None:
        """``directory``: of this session alone, on the filesystem of the tables."""
        self._directory = directory
        self._clock = clock
        self._idle_timeout_ms = idle_timeout_ms
        self._ops = ops or FileOps()
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        """One file at a time is decoded: however many come, memory is that of one row group."""
        self._uploads: dict[StreamKey, Upload] = {}
        self._thread = BackgroundThread("incoming", clock, die)

    def begin(
        self,
        stream: StreamKey,
        to_offset: int,
        files: Sequence[OfferedFile],
        check: Check,
        onward: Onward | None = None,
    ) -> tuple[int, ...]:
        """Expect these files, each to be checked when it is whole; returns how many bytes of each are here. Raises
        OverloadedError.
        """
        with self._lock:
            known = self._uploads.get(stream)
            said = to_offset, tuple(files), onward
            if known is not None and (known.to_offset, known.offered, known.onward) == said:
                known.used_ns = self._clock.boot_ns()
                return tuple(file.held for file in known.files)
            if known is not None:
                raise OverloadedError(f"other files of {stream.file} are on their way: try again")
            name = uuid.uuid4().hex
            fresh = Upload(
                stream,
                to_offset,
                tuple(_File(self._directory / f"{name}.{number:05d}", file) for number, file in enumerate(files)),
                onward,
                check,
                self._clock.boot_ns(),
            )
            if fresh.size_bytes + sum(upload.size_bytes for upload in self._uploads.values()) > TOTAL_BYTES_MAX:
                raise OverloadedError("files of other imports are on their way: try again when they are here")
            self._uploads[stream] = fresh
            return (0,) * len(files)

    def put(self, part: SegmentPart) -> None:
        """Append a part; what is here already is passed over. The last part of a file returns when all of the file was
        checked. Raises StreamExpiredError, InvalidInputError, UnavailableError, and DeclinedError when a file is whole
        and is not what was offered.
        """
        with self._held(part.stream) as upload:
            if not 0 <= part.number < len(upload.files):
                raise InvalidInputError(f"{part.stream.file} has no file {part.number}")
            file = upload.files[part.number]
            size = file.offered.entry.size_bytes
            content = memoryview(part.content)[max(0, file.held - part.start) :]
            if part.start > file.held or file.held + len(content) > size:
                raise InvalidInputError(
                    f"a part of {len(content)} bytes at {part.start} does not go on behind the {file.held} of {size}"
                )
            if content:
                self._append(upload, file, content, file.held + len(content) == size)

    def _append(self, upload: Upload, file: _File, content: memoryview, is_last: bool) -> None:
        """Nothing of an upload is left when this raises, so a file that was not checked is never taken."""
        try:
            self._write(file.path, content, is_last)
            file.digest.update(content)
            file.held += len(content)
            if is_last:
                with self._checking:
                    check_whole(upload, file)
                file.is_checked = True
        except OSError as error:
            self._end(upload)
            raise unavailable(f"a part of {upload.stream.file} can't be written", error) from error
        except BaseException:
            self._end(upload)
            raise

    def _write(self, path: Path, content: memoryview, is_last: bool) -> None:
        make_directory(self._directory, self._ops)
        fd = self._ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(fd, [content], self._ops)
            if is_last:
                self._ops.fsync(fd)
        finally:
            self._ops.close(fd)

    @contextmanager
    def taken(self, stream: StreamKey) -> Iterator[Upload]:
        """The upload, complete, for whoever has its tablets take it; the files go when that has returned. Raises
        StreamExpiredError, InvalidInputError.
        """
        with self._held(stream) as upload:
            missing = [file for file in upload.files if not file.is_checked]
            if missing:
                raise InvalidInputError(f"{len(missing)} of {len(upload.files)} files of {stream.file} are not here")
            yield upload
            self._end(upload)

    @contextmanager
    def _held(self, stream: StreamKey) -> Iterator[Upload]:
        with self._lock:
            upload = self._uploads.get(stream)
        if upload is None:
            raise StreamExpiredError(f"no files of {stream.file} are expected here (any more): offer them again")
        with upload.lock:
            if upload.over:
                raise StreamExpiredError(f"the files of {stream.file} are gone: offer them again")
            upload.used_ns = self._clock.boot_ns()
            try:
                yield upload
            finally:
                upload.used_ns = self._clock.boot_ns()

    def _end(self, upload: Upload) -> None:
        """Forget an upload and remove its files; its lock is held."""
        upload.over = True
        with self._lock:
            if self._uploads.get(upload.stream) is upload:
                del self._uploads[upload.stream]
        for file in upload.files:
            file.path.unlink(missing_ok=True)

    def expire(self) -> None:
        """Remove what nobody has sent for a while; what is being used stays."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            idle = [u for u in self._uploads.values() if now_ns - u.used_ns > self._idle_timeout_ms * 1_000_000]
        for upload in idle:
            if upload.lock.acquire(blocking=False):
                try:
                    self._end(upload)
                finally:
                    upload.lock.release()

    # ---- the thread

    def start(self) -> None:
        """Begin to look for what nobody sends any more."""
        self._thread.start(self.expire, LOOK_MS)

    def close(self) -> None:
        """End the thread and remove everything."""
        self._thread.close()
        shutil.rmtree(self._directory, ignore_errors=True)
