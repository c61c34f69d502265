"""A read-only view of a log, for tools and queries.

The log may be written, abandoned by a crash, or sealed. :func:`bookkeeper.storage.wal.read_blocks` demands the records
that its caller names; a view shows the blocks that are there. A tail that recovery would give up ends an unsealed log;
all other damage is an error with file and position. Changes no file. Rule: R15.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import CorruptionError, TransientError, UnavailableError
from bookkeeper.storage.volume.volume_protocol import ReadableVolume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.log_formats import BlockAt, LogReader, corrupt, only_zeros, open_log
from bookkeeper.storage.wal.reading.wal_recovery import find_end
from bookkeeper.storage.wal.writing.seal import Seal


class Tail(Struct, frozen=True):
    """``length`` bytes of the file from ``position`` on that are no part of the log, and the reason."""

    position: int
    length: int
    reason: str


class WalView:
    """An open log, up to its length at the call. Raises NotFoundError, UnavailableError, IncompatibleError,
    CorruptionError.
    """

    def __init__(self, volume: ReadableVolume, name: str) -> None:
        """A log whose header is not complete yet has no blocks; see :meth:`tail`."""
        self._volume = volume
        self.name = name
        self._log: LogReader | None = None
        self._torn = ""
        try:
            self._log = open_log(volume, name)
        except UnavailableError:
            raise
        except TransientError as error:
            self._torn = error.message
        self.size = self._log.size if self._log is not None else volume.open(self.name).size
        self.end_position = 0
        """Behind the last complete block that was read."""

    @property
    def file_header(self) -> FileHeader | None:
        """The header of the file; None while it has none."""
        return self._log.file_header if self._log is not None else None

    @property
    def seal(self) -> Seal | None:
        """The end of the log, for ever; None while it may grow."""
        return self._log.seal if self._log is not None else None

    @property
    def fenced(self) -> bool:
        """Whether a recovery of this log has started."""
        return self._volume.is_fenced(self.name)

    def headers(self, first: int = 1, position_hint: int | None = None) -> Iterator[BlockAt]:
        """The blocks from the one that holds record ``first`` on, payloads unread: see :meth:`load`."""
        if self._log is None:
            return
        start = self._log.start(position_hint, first)
        self.end_position = max(self.end_position, start)
        try:
            for at in self._log.headers(start):
                self.end_position = max(self.end_position, at.end_position)
                if at.last_offset >= first:
                    yield at
        except CorruptionError as error:
            self._end_at(error)

    def load(self, at: BlockAt) -> Block | None:
        """The block, checked by its CRC; None when an unsealed log is torn here and ends before it."""
        try:
            return at.load()
        except CorruptionError as error:
            self._end_at(error)
            return None

    def batch(self, at: BlockAt) -> pa.RecordBatch | None:
        """The records of the block; None as for :meth:`load`."""
        block = self.load(at)
        try:
            return None if block is None else block.batch()
        except CorruptionError as error:
            raise corrupt(self.name, at.position, error.message) from error

    def tail(self) -> Tail:
        """The bytes behind the end; valid once :meth:`headers` is exhausted and every block is loaded."""
        if self.seal is not None:
            position, reason = self.seal.position, "behind the seal"
        elif only_zeros(self._volume.open(self.name), self.end_position):
            position, reason = self.end_position, self._torn or "zeros"
        else:
            position, reason = self.end_position, self._torn or "the beginning of a block"
        return Tail(position, self.size - position, reason if self.size > position else "")

    def _end_at(self, error: CorruptionError) -> None:
        """Rule R15: an unsealed log ends where recovery would seal it; raises CorruptionError where it would refuse."""
        if self.seal is not None:
            raise error
        found = find_end(self.name, self._volume.open(self.name)).position
        self.end_position = min(found, int(error.details["position"]))
        self._torn = error.details.get("reason", error.message)
