"""Decoded row groups, kept while they are used: the pages of one scan would else decode the same groups again.

Arrives: a segment's path and a row group's number. Leaves: the decoded block. Bounded by bytes, least recently used
goes first, shared by any number of threads and tablets; two threads that miss at once decode twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from bookkeeper.storage.tablet.entries import SortedBlock

BlockKey = tuple[Path, int]


class BlockCache:
    """A least-recently-used map of decoded row groups."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max`` 0 keeps nothing."""
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._blocks: OrderedDict[BlockKey, SortedBlock] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: BlockKey, load: Callable[[], SortedBlock]) -> SortedBlock:
        """The block, from memory or by ``load()``, whose errors pass through."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                self.hits += 1
                return block
            self.misses += 1
        block = load()
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self.bytes += block.bytes
                self._shrink()
        return block

    def forget(self, path: Path) -> None:
        """Drop the blocks of a file that is gone."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] == path]:
                self.bytes -= self._blocks.pop(key).bytes

    def _shrink(self) -> None:
        while self.bytes > self._bytes_max and self._blocks:
            _, block = self._blocks.popitem(last=False)
            self.bytes -= block.bytes
