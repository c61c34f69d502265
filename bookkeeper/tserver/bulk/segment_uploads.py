"""Uploads: the files of segment transfers, until tablets name them.

The parts of offered files come in order. The complete files are compared with the offer, in a directory of this
session, which holds each file from before it exists. Once a tablet may have been told of a file, only the collector
deletes it, after the hold (``master.gc.orphan_files``). Memory is one part, disk is bounded, and an idle
upload goes after a while. Rules: R4 and R17; law L7.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

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
from bookkeeper.rpc.contract.messages import RelayFacts, SegmentPart
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.tablet.segments.segment_format import ENDING
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.bulk.segment_offers import OfferedFile
from bookkeeper.tserver.bulk.session_holds import SessionHolds

LOG = logging.getLogger(__name__)

TOTAL_BYTES_MAX = 4 << 30
"""Most bytes of all files under way at one tserver."""

EXPIRE_INTERVAL_MS = 5_000


Check = Callable[[str, OfferedFile], None]
"""Raises CorruptionError or IncompatibleError when a complete file does not match its description."""


class _File:
    """One file of an upload. Used under the lock of the upload."""

    def __init__(self, name: str, offered: OfferedFile) -> None:
        self.name = name
        self.offered = offered
        self._received_bytes = 0
        self._is_checked = False
        self._digest = hashlib.sha256()

    @property
    def received_bytes(self) -> int:
        """Bytes that are here."""
        return self._received_bytes

    @property
    def is_checked(self) -> bool:
        """Whether the file is complete and :meth:`check` has passed."""
        return self._is_checked

    def appended(self, content: memoryview) -> None:
        """The content is written behind the bytes that were here."""
        self._digest.update(content)
        self._received_bytes += len(content)

    def check(self, file: str, check: Check) -> None:
        """Raise DeclinedError when the complete file is not the offered one, or does not match its description (L7):
        its records may come instead. ``file``: the source file, for the message.
        """
        if self._digest.hexdigest() != self.offered.sha256:  # which the import computed
            raise DeclinedError(f"a received file of {file} is not the imported one: its checksum differs")
        try:
            check(self.name, self.offered)
        except (CorruptionError, IncompatibleError) as error:
            raise DeclinedError(f"a file of {file} does not match its description: {error.message}") from error
        self._is_checked = True


class Upload(Struct):
    """The files of one stream. Used under its lock."""

    stream: StreamKey
    to_offset: int
    files: tuple[_File, ...]
    relay: RelayFacts | None
    check: Check
    used_ns: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False
    may_be_named: bool = False
    """Whether a tablet may have been told of the files."""

    def use(self, now_ns: int) -> None:
        """The sender used it."""
        self.used_ns = now_ns

    def end(self, volume: Volume, holds: SessionHolds) -> None:
        """No later call uses it; rule R17: its files are removed unless a tablet may name them: one that was told of
        them, also by a call that failed, may do so later.
        """
        self.is_over = True
        if not self.may_be_named:
            volume.discard(self.names)
        holds.arrived(self.names)

    @property
    def offered(self) -> tuple[OfferedFile, ...]:
        """The files of the offer."""
        return tuple(file.offered for file in self.files)

    @property
    def names(self) -> list[str]:
        """The files by name, in the order of the offer."""
        return [file.name for file in self.files]

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.offered.entry.size_bytes for file in self.files)


class SegmentUploads:
    """Thread-safe. One upload a stream."""

    def __init__(
        self, volume: Volume, holds: SessionHolds, directory: str, clock: Clock, idle_timeout_ms: int, die: Die
    ) -> None:
        """``directory`` is of this session alone."""
        self._volume = volume
        self._holds = holds
        self._directory = directory
        self._clock = clock
        self._idle_timeout_ms = idle_timeout_ms
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        """Its holder decodes a file: so memory is that of one row group, however many files come."""
        self._uploads: dict[StreamKey, Upload] = {}
        self._thread = BackgroundThread("incoming", clock, die)

    def begin(
        self,
        stream: StreamKey,
        to_offset: int,
        files: Sequence[OfferedFile],
        check: Check,
        relay: RelayFacts | None = None,
    ) -> tuple[int, ...]:
        """Expect these files; ``check`` runs on each when it is complete. Returns how many bytes of each are here.
        Raises OverloadedError.
        """
        with self._lock:
            current = self._uploads.get(stream)
            offer = to_offset, tuple(files), relay
            if current is not None and (current.to_offset, current.offered, current.relay) == offer:
                current.use(self._clock.boot_ns())
                return tuple(file.received_bytes for file in current.files)
            if current is not None:
                raise OverloadedError(f"other files of {stream.file} are on their way: try again")
            name = f"{self._directory}/{uuid.uuid4().hex}"
            fresh = Upload(
                stream,
                to_offset,
                tuple(_File(f"{name}-{number:05d}{ENDING}", file) for number, file in enumerate(files)),
                relay,
                check,
                self._clock.boot_ns(),
            )
            if fresh.size_bytes + sum(upload.size_bytes for upload in self._uploads.values()) > TOTAL_BYTES_MAX:
                raise OverloadedError("files of other imports are on their way: try again when they are here")
            self._uploads[stream] = fresh
            return (0,) * len(files)

    def put(self, part: SegmentPart) -> None:
        """Append a part; bytes that are here already are skipped. The last part of a file returns once the file is
        checked. Raises StreamExpiredError, InvalidInputError, UnavailableError, and DeclinedError when a complete file
        is not the offered one.
        """
        with self._in_use(part.stream) as upload:
            if not 0 <= part.number < len(upload.files):
                raise InvalidInputError(f"{part.stream.file} has no file {part.number}")
            file = upload.files[part.number]
            size, received = file.offered.entry.size_bytes, file.received_bytes
            content = memoryview(part.content)[max(0, received - part.start) :]
            if part.start > received or received + len(content) > size:
                raise InvalidInputError(
                    f"a part of {len(content)} bytes at {part.start} does not go on behind the {received} of {size}"
                )
            if content:
                self._append(upload, file, content, received + len(content) == size)

    def _append(self, upload: Upload, file: _File, content: memoryview, is_last: bool) -> None:
        """Append a part. An error removes the upload, so no tablet takes an unchecked file."""
        try:
            self._write(file, content, is_last)
            file.appended(content)
            if is_last:
                with self._checking:
                    file.check(upload.stream.file, upload.check)
        except OSError as error:
            self._end(upload)
            raise unavailable(f"a part of {upload.stream.file} can't be written", error) from error
        except BaseException:
            self._end(upload)
            raise

    def _write(self, file: _File, content: memoryview, is_last: bool) -> None:
        length = file.received_bytes
        if not length:
            self._holds.arrives(file.name)
        appender = self._volume.reopen(file.name, length) if length else self._volume.create(file.name, ())
        try:
            appender.write([content])
            if is_last:
                appender.sync()
        finally:
            appender.close()

    @contextmanager
    def complete(self, stream: StreamKey) -> Iterator[Upload]:
        """The complete upload, while tablets take its files; it is over afterwards, unless the block raises. Raises
        StreamExpiredError, InvalidInputError.
        """
        with self._in_use(stream) as upload:
            missing = [file for file in upload.files if not file.is_checked]
            if missing:
                raise InvalidInputError(f"{len(missing)} of {len(upload.files)} files of {stream.file} are not here")
            upload.may_be_named = True
            yield upload
            self._end(upload)

    @contextmanager
    def _in_use(self, stream: StreamKey) -> Iterator[Upload]:
        with self._lock:
            upload = self._uploads.get(stream)
        if upload is None:
            raise StreamExpiredError(f"no files of {stream.file} are expected here (any more): offer them again")
        with upload.lock:
            if upload.is_over:
                raise StreamExpiredError(f"the files of {stream.file} are gone: offer them again")
            upload.use(self._clock.boot_ns())
            try:
                yield upload
            finally:
                upload.use(self._clock.boot_ns())

    def _end(self, upload: Upload) -> None:
        """Forget an upload; the caller has its lock."""
        with self._lock:
            if self._uploads.get(upload.stream) is upload:
                del self._uploads[upload.stream]
        upload.end(self._volume, self._holds)

    def expire(self) -> None:
        """End idle uploads; one that is in use stays."""
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
        """Begin to end idle uploads."""
        self._thread.start(self.expire, EXPIRE_INTERVAL_MS)

    def close(self) -> None:
        """End the thread, and remove the files that no tablet was told of. The holds end with the session."""
        self._thread.close()
        with self._lock:
            own = [name for upload in self._uploads.values() if not upload.may_be_named for name in upload.names]
        try:
            self._volume.discard(own)
        except OSError as error:
            LOG.warning("%d files in %s stay until this session is over: %s", len(own), self._directory, error)
