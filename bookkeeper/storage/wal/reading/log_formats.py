"""Formats of logs, told apart by the first bytes of the file: one small interface, one registry.

A :class:`LogReader` walks block headers and returns payloads as Arrow, for each format in the same way. Changes no
file. Rule: R15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from google.protobuf.message import DecodeError
from msgspec import Struct

from bookkeeper.errors import CorruptionError, IncompatibleError, TransientError
from bookkeeper.storage.volume.volume_protocol import ReadableVolume, Source
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader
from bookkeeper.storage.wal.blocks.frame import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    FORMAT_VERSION,
    Frame,
    FrameError,
    find_prefixes,
    read_frame,
    read_payload,
)
from bookkeeper.storage.wal.writing.seal import Seal, read_seal_file


class BlockAt(Struct, frozen=True):
    """A block header and the position of its block: bytes ``[position, end_position)`` of the file."""

    position: int
    end_position: int
    header: BlockHeader
    load: Callable[[], Block]
    """Read the payload, check its CRC, and return the complete block; raises CorruptionError."""

    @property
    def last_offset(self) -> int:
        """Offset of the block's last record."""
        return self.header.first_offset + self.header.record_count - 1


class LogReader(Protocol):
    """An open log of one format."""

    @property
    def seal(self) -> Seal | None:
        """The end of the log; None while it may grow."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened, also those behind the seal."""

    @property
    def file_header(self) -> FileHeader:
        """The header of the file; empty when it has none."""

    @property
    def created_time_ms(self) -> int:
        """The time at which the log was made; 0 when it has no header."""

    def start(self, position_hint: int | None, first: int) -> int:
        """A position from which :meth:`headers` reaches the block with offset ``first`` before any later one: the hint
        if it is such a position, else the first block.
        """

    def headers(self, position: int) -> Iterator[BlockAt]:
        """Headers of the blocks from ``position`` on, in order, without their payloads. Ends at the seal; in a log
        without one, behind its last complete block. Raises CorruptionError.
        """

    def first_block_behind(self, position: int) -> BlockAt | None:
        """The first complete and checked block that begins behind byte ``position``; None when there is none. Skips the
        bytes between: a reader goes on behind damage with it.
        """


def corrupt(name: str, position: int, reason: str) -> CorruptionError:
    """The error for bytes of a log that must parse and do not."""
    return CorruptionError(
        f"{name} is damaged at byte {position}: {reason}", {"file": name, "position": str(position), "reason": reason}
    )


def parse_file_header(name: str, frame: Frame) -> FileHeader:
    """The message of the file-header frame; raises CorruptionError, IncompatibleError."""
    try:
        header = FileHeader.FromString(frame.header)
    except DecodeError as error:
        raise corrupt(name, 0, f"the file header does not parse: {error}") from error
    if header.format_version > FORMAT_VERSION:
        raise IncompatibleError(
            f"{name} has format {header.format_version}, this version reads up to {FORMAT_VERSION}: upgrade"
        )
    if header.format_version < FORMAT_VERSION:
        raise IncompatibleError(
            f"{name} has format {header.format_version}, this version reads {FORMAT_VERSION} only: let the version "
            "that wrote it replicate and flush everything first"
        )
    return header


def parse_block_header(name: str, frame: Frame) -> BlockHeader:
    """The header message of a block frame; raises CorruptionError."""
    try:
        header = BlockHeader.FromString(frame.header)
    except DecodeError as error:
        raise corrupt(name, frame.position, f"the block header does not parse: {error}") from error
    if header.first_offset == 0 or header.record_count == 0:
        raise corrupt(name, frame.position, f"a block of {header.record_count} records at {header.first_offset}")
    return header


class BlockLog:
    """The project's own format, see ``frame``."""

    def __init__(self, name: str, source: Source, seal: Seal | None) -> None:
        """Read and check the file header; raises CorruptionError, IncompatibleError or TransientError."""
        self.name = name
        self.seal = seal
        self._source = source
        self.size = source.size
        # R15: a late owner may have written behind the seal.
        self._limit = source.size if seal is None else seal.position
        if self._limit > source.size:
            raise corrupt(name, source.size, f"the file is shorter than its seal, {seal}")
        self.start_position = self.salt = 0
        self.file_header = FileHeader()
        if self._limit:
            self._open()

    def _open(self) -> None:
        try:
            frame = read_frame(self._source, FILE_MAGIC, 0, self._limit, 0)
        except FrameError as error:
            if self._may_grow_at(0, error):
                raise TransientError(f"{self.name} has no complete file header yet: {error}") from error
            raise corrupt(self.name, 0, str(error)) from error
        self.file_header = parse_file_header(self.name, frame)
        self.salt = frame.prefix.prefix_crc
        self.start_position = frame.end_position
        if self.seal is not None and (self._limit == self.start_position) != (self.seal.offset == 0):
            raise corrupt(self.name, self._limit, f"the seal {self.seal} does not fit a file header")

    @property
    def created_time_ms(self) -> int:
        """See :class:`LogReader`."""
        return self.file_header.created_time_ms

    def start(self, position_hint: int | None, first: int) -> int:
        """See :class:`LogReader`."""
        if position_hint is None or not self.start_position < position_hint < self._limit:
            return self.start_position
        try:
            frame = read_frame(self._source, BLOCK_MAGIC, position_hint, self._limit, self.salt)
        except FrameError:
            return self.start_position
        return position_hint if parse_block_header(self.name, frame).first_offset <= first else self.start_position

    def headers(self, position: int) -> Iterator[BlockAt]:
        """See :class:`LogReader`."""
        offset = 0 if position == self.start_position else None
        while position < self._limit:
            try:
                frame = read_frame(self._source, BLOCK_MAGIC, position, self._limit, self.salt)
            except FrameError as error:
                if self._may_grow_at(position, error):
                    return
                raise corrupt(self.name, position, str(error)) from error
            header = parse_block_header(self.name, frame)
            if offset is not None and header.first_offset != offset + 1:
                raise corrupt(self.name, position, f"offset {header.first_offset} follows offset {offset}")
            at = BlockAt(position, frame.end_position, header, partial(self._load, header, frame))
            self._check_against_seal(at)
            yield at
            position, offset = at.end_position, at.last_offset

    def first_block_behind(self, position: int) -> BlockAt | None:
        """See :class:`LogReader`."""
        for start, _ in find_prefixes(self._source, position + 1, self.salt):
            try:
                frame = read_frame(self._source, BLOCK_MAGIC, start, self._limit, self.salt)
                read_payload(self._source, frame)
                header = parse_block_header(self.name, frame)
            except (FrameError, CorruptionError):
                continue
            return BlockAt(start, frame.end_position, header, partial(self._load, header, frame))
        return None

    def _check_against_seal(self, at: BlockAt) -> None:
        """Offsets and bytes must reach the seal together."""
        if self.seal is not None and (at.end_position == self.seal.position) != (at.last_offset == self.seal.offset):
            raise corrupt(self.name, at.position, f"a block ends at offset {at.last_offset}, the seal is {self.seal}")

    def _load(self, header: BlockHeader, frame: Frame) -> Block:
        try:
            return Block(header, read_payload(self._source, frame), frame.end_position)
        except FrameError as error:
            raise corrupt(self.name, frame.position, str(error)) from error

    def _may_grow_at(self, position: int, error: FrameError) -> bool:
        """Whether the bytes may be the end of a log that still grows, and no damage."""
        return self.seal is None and (error.short or only_zeros(self._source, position))


def open_own(volume: ReadableVolume, name: str) -> LogReader:
    """Open a log that the books name, see :func:`open_log`. Raises CorruptionError also for another log."""
    log = open_log(volume, name)
    check_own(name, log.file_header)
    return log


def check_own(name: str, file_header: FileHeader) -> None:
    """Raise CorruptionError when the file is another log, by the session and name in its header: its blocks are valid,
    and a reader would take them for records of this log. The directory above may differ, because it may be mounted
    elsewhere.
    """
    if file_header.name and file_header.name.split("/")[-2:] != name.split("/")[-2:]:
        raise corrupt(name, 0, f"it is another log, {file_header.name}, in the place of this one; restore the file")


def only_zeros(source: Source, position: int) -> bool:
    """Whether the file has zeros only from ``position`` on: some filesystems fill the tail of a file so in a crash."""
    tail = bytes(source.read(position, source.size - position))
    return tail.count(0) == len(tail)


FORMATS: dict[bytes, Callable[[str, Source, Seal | None], LogReader]] = {FILE_MAGIC: BlockLog}
"""Magic at the start of a file to the reader of its format."""


def open_log(volume: ReadableVolume, name: str) -> LogReader:
    """Open a log of any known format. Raises NotFoundError, TransientError, CorruptionError, IncompatibleError.

    The seal is read after the size of the file: so the records of that size that came before the seal lie below it.
    """
    source = volume.open(name)
    sealed = read_seal_file(volume, name)
    seal = None if sealed is None else sealed.seal
    if sealed is not None and (sealed.copy or source.size < sealed.seal.position):
        source = volume.open(name + sealed.copy)
    if seal is not None and seal.position == 0:
        return BlockLog(name, source, seal)
    for magic, reader in FORMATS.items():
        head = source.read(0, min(len(magic), source.size)).to_pybytes()
        if head == magic:
            return reader(name, source, seal)
        if seal is None and magic.startswith(head):
            raise TransientError(f"{name} has {source.size} bytes and no header yet")
    if seal is None and only_zeros(source, 0):
        raise TransientError(f"{name} has no header yet")
    raise corrupt(name, 0, "it does not start like a log of any known format")
