"""Index of sealed logs: the positions of each tablet's blocks, so that many tablets are recovered with one read.

Rule R15: a sealed log does not grow, so its index stays valid. Memory is bounded: a block takes eight bytes, a tablet
about two hundred, and the index of the least recently used log is dropped first.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field

from bookkeeper.model import Extent
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.block_reader import read_headers_at
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.tserver.tablets.load_plan import LogToRead, is_behind, tablet_key, writer_of

BLOCKS_MAX = 500_000
"""Blocks in the indexes of all logs together; the log that was used last stays, however many it has."""

Read = Callable[[str], Iterator[BlockAt]]

Positions = Mapping[tuple[str, bytes | None], "array[int]"]
"""Tablet to the bytes at which its blocks begin."""


def positions_of(extent: Extent, positions: Positions) -> Iterable[int]:
    """The positions of the blocks that a tablet wrote under this extent; recovery reads no other tablet's block."""
    return positions.get(tablet_key(extent), ())


class SealedLogs(Struct):
    """The indexes of sealed logs. Thread-safe; one log is read at a time. ``read`` returns all headers of a log."""

    volume: Volume
    read: Read
    blocks_max: int = BLOCKS_MAX
    _lock: threading.Lock = field(default_factory=lambda: threading.Lock())
    _indexes: dict[str, tuple[Positions, int]] = field(default_factory=dict)

    def missing_blocks(self, extent: Extent, log: LogToRead) -> Iterator[BlockAt]:
        """The blocks of a sealed log that a tablet lacks, in order. Raises CorruptionError, NotFoundError,
        TransientError.
        """
        positions = positions_of(extent, self._positions(log.name))
        return (at for at in read_headers_at(self.volume, log.name, positions) if is_behind(log, at.header))

    def _positions(self, name: str) -> Positions:
        with self._lock:
            index = self._indexes.pop(name) if name in self._indexes else self._index(name)
            self._indexes[name] = index
            for oldest in list(self._indexes)[:-1]:
                if sum(count for _, count in self._indexes.values()) <= self.blocks_max:
                    break
                del self._indexes[oldest]
        return index[0]

    def _index(self, name: str) -> tuple[Positions, int]:
        found: dict[tuple[str, bytes | None], array[int]] = {}
        blocks = 0
        for at in self.read(name):
            writer = writer_of(at.header)
            if writer not in found:
                found[writer] = array("Q")
            found[writer].append(at.position)
            blocks += 1
        return found, blocks
