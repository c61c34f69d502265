"""The one writer of a log: appends frames, syncs on request, seals at the end.

The file and its name are durable from ``create`` on, blocks from ``sync`` on, the end of the file from ``seal`` on. Not
thread-safe; any thread may read the four positions, and one thread may sync while another appends. A writer that failed
once does not write again: the content of the file behind its last success is unknown, and it is never cut off, because
a recovery may have counted it already (rule R15). Its descriptor stays open until :meth:`WalWriter.abandon`, because
the other thread may use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from bookkeeper.errors import (
    ExistsError,
    InvalidInputError,
    LeaseLostError,
    NoSpaceError,
    PermanentError,
    UnavailableError,
    is_full,
    unavailable,
)
from bookkeeper.storage.volume.volume_protocol import Appender, Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.blocks.frame import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    FORMAT_VERSION,
    HEADER_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    FramePosition,
    frame_bytes,
    pack_frame,
    salt_of,
)
from bookkeeper.storage.wal.writing.seal import Seal, is_fenced, read_seal, write_seal

_NO_PAYLOAD = pa.py_buffer(b"")

RESERVED_BYTES = 1 << 20
"""Disk is reserved in steps of about this size: small beside a log, and hundreds of groups cost one call."""

ENDING_BYTES = 64 << 10
"""Disk that stays reserved behind the last block: on a full disk it is enough for a seal and for the next log."""

UNCACHED_BYTES = 1 << 20
"""Memory of the page cache is freed in steps of at least this size."""


class _Reach(NamedTuple):
    """Records and bytes; replaced as one, so that another thread never sees one of them alone."""

    offset: int
    position: int


class WalWriter:
    """A new log. ``offset`` and ``position`` count records and bytes written; ``synced_*`` those that are durable."""

    def __init__(
        self,
        volume: Volume,
        name: str,
        appender: Appender,
        header: FileHeader,
        position: int,
        salt: int,
        keep_free_bytes: int,
    ) -> None:
        """For :meth:`create` only."""
        self._volume = volume
        self._appender: Appender | None = appender
        self._has_failed = False
        self._is_paused = False
        self._keep_free_bytes = keep_free_bytes
        self._reserved = position
        self._salt = salt
        self.name = name
        self.name = header.name
        self.created_time_ms = header.created_time_ms
        self._written = self._synced = _Reach(0, position)
        self._cached_from = position
        self._has_targets = False
        """Whether replication reads this log: it has a block with a target."""

    @property
    def offset(self) -> int:
        """Of the last record written; 0: there is none."""
        return self._written.offset

    @property
    def position(self) -> int:
        """The position of the next block."""
        return self._written.position

    @property
    def synced_offset(self) -> int:
        """Of the last record that is certainly durable."""
        return self._synced.offset

    @property
    def synced_position(self) -> int:
        """End of the part of the file that is certainly durable."""
        return self._synced.position

    @classmethod
    def create(cls, volume: Volume, name: str, header: FileHeader, keep_free_bytes: int = 0) -> WalWriter:
        """Make a log that did not exist; its header and its name are durable on return.

        Sets ``header.name`` and ``format_version``. ``keep_free_bytes`` of the Volume stay free. Raises ExistsError
        (names are never used again), UnavailableError, and NoSpaceError: then there is no such file.
        """
        complete = FileHeader()
        complete.CopyFrom(header)
        complete.name = name
        complete.format_version = FORMAT_VERSION
        frame = pack_frame(FILE_MAGIC, complete.SerializeToString(), _NO_PAYLOAD, FramePosition(0, 0, 0))[0]
        try:
            appender = volume.create(name, [frame])
        except FileExistsError as error:
            raise ExistsError(f"there is a log {complete.name} already: names of logs must not be reused") from error
        except OSError as error:
            raise unavailable(f"the log {complete.name} can't be made", error) from error
        return cls(volume, name, appender, complete, len(frame), salt_of(frame), keep_free_bytes)

    def reserve(self, length: int) -> None:
        """Reserve disk for ``length`` more bytes, so that writing them can't fail for lack of space, and for the end of
        the log behind them. Raises NoSpaceError, after which the writer is as it was, and UnavailableError.
        """
        end = self.position + length + ENDING_BYTES
        if end <= self._reserved:
            return
        with self._io("extended") as appender:
            for further in (RESERVED_BYTES, 0):
                if self._reserve(appender, end + further):
                    self._reserved = end + further
                    return
        reason = f"at least {self._keep_free_bytes} bytes are kept free" if self._keep_free_bytes else "it is full"
        raise NoSpaceError(
            f"the disk of {self.name} has no room for {length} more bytes ({reason}); nothing was written: "
            "make room there, and writes go on by themselves"
        )

    def _reserve(self, appender: Appender, end: int) -> bool:
        length = end - self._reserved
        if appender.free_bytes() - length < self._keep_free_bytes:
            return False
        try:
            appender.reserve(self._reserved, length)
        except OSError as error:
            if is_full(error):
                return False
            raise
        return True

    def append(self, blocks: Sequence[Block]) -> None:
        """Write blocks, at most a mebibyte with each call of the system; durable after :meth:`sync` only.

        The first block must start at ``offset + 1`` and each next one where the last ended: else, and for a block
        above the format's limits, InvalidInputError, and nothing is written. Raises UnavailableError when the
        system refuses; the writer is then of no further use.
        """
        buffers: list[bytes | pa.Buffer] = []
        offset, position = self._written
        for block in blocks:
            if block.first_offset != offset + 1 or block.header.record_count == 0:
                raise InvalidInputError(
                    f"a block of {block.header.record_count} records at {block.first_offset} "
                    f"can't follow offset {offset} of {self.name}"
                )
            header, payload = block.header.SerializeToString(), block.payload
            if len(header) > HEADER_BYTES_MAX or payload.size > PAYLOAD_BYTES_MAX:
                raise InvalidInputError(
                    f"a block with {len(header)} + {payload.size} bytes is above the limits of the log, "
                    f"{HEADER_BYTES_MAX} + {PAYLOAD_BYTES_MAX}"
                )
            at = FramePosition(self._salt, position, self.synced_position)
            buffers += pack_frame(BLOCK_MAGIC, header, payload, at)
            position += frame_bytes(len(header), payload.size)
            offset = block.last_offset
            self._has_targets = self._has_targets or bool(block.header.block_targets)
        with self._io("appended to") as appender:
            appender.write(buffers)
        self._written = _Reach(offset, position)

    def sync(self) -> None:
        """Make everything durable that was written when this began; raises UnavailableError, and the writer is then
        of no further use. Blocks that the other thread appends meanwhile need a sync of their own.
        """
        written = self._written
        if self._synced == written:
            return
        with self._io("synced") as appender:
            appender.sync()
            self._uncache(appender, written.position)
        self._synced = written

    def _uncache(self, appender: Appender, position: int) -> None:
        """Free the page cache's memory of durable blocks that only a recovery would read: it displaces pages that scans
        read, and on a virtual machine that has to grow for it, each new page costs more than writing it.
        """
        if not self._has_targets and position - self._cached_from >= UNCACHED_BYTES:
            appender.uncache(position)
            self._cached_from = position

    def pause(self) -> None:
        """Sync, and close the descriptor until the next write: for a process that writes many logs in turn. Raises as
        :meth:`sync` does.
        """
        self.sync()
        with self._io("closed for a while") as appender:
            appender.close()
            self._appender, self._is_paused = None, True

    def seal(self) -> Seal:
        """Sync, seal and close. Raises LeaseLostError when another process has sealed the file at another end,
        NoSpaceError when the disk has no space for the seal: then the log has none, and the writer is as it was.
        """
        self.sync()
        own = Seal(self.offset, self.position)
        with self._io("sealed") as appender:
            self._free_reserved(appender)
            try:
                seal = write_seal(self._volume, self.name, own)
            except OSError as error:
                if is_full(error) and read_seal(self._volume, self.name) is None:
                    raise unavailable(f"{self.name} can't be sealed", error) from error
                raise
        self.abandon()
        if seal != own:
            raise LeaseLostError(f"{self.name} was sealed by another process at {seal}, its owner wrote up to {own}")
        return own

    def free_reserved(self) -> None:
        """Free the disk that is reserved behind the last block: a seal and the next log may take it. Raises
        UnavailableError.
        """
        with self._io("cut") as appender:
            self._free_reserved(appender)

    def _free_reserved(self, appender: Appender) -> None:
        """Every byte of the file stays."""
        if self._reserved > self.position:
            appender.truncate(self.position)
            self._reserved = self.position

    def abandon(self) -> None:
        """Close the descriptor and do nothing else: the file is left to recovery. Idempotent."""
        self._is_paused = False
        if self._appender is not None:
            self._appender.close()
            self._appender = None

    def is_fenced(self) -> bool:
        """See :func:`bookkeeper.storage.wal.writing.seal.is_fenced`."""
        return is_fenced(self._volume, self.name)

    def _open_again(self) -> Appender:
        self._appender = self._volume.reopen(self.name, self.position)
        return self._appender

    @contextmanager
    def _io(self, action: str) -> Iterator[Appender]:
        if self._has_failed or (self._appender is None and not self._is_paused):
            raise PermanentError(f"{self.name} can't be {action}: its writer is closed or has failed")
        try:
            yield self._open_again() if self._appender is None else self._appender
        except NoSpaceError:
            raise
        except (OSError, UnavailableError) as error:
            self._has_failed = True
            raise UnavailableError(f"{self.name} can't be {action}: {error}") from error
