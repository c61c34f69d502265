"""Decoded row groups, kept while they are used: the pages of one scan would else decode the same groups again.

Arrives: a segment's path and a row group's number. Leaves: the decoded block. Bounded by bytes, least recently used
goes first, shared by any number of threads and tablets; two threads that miss at once decode twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bookkeeper.storage.tablet.sorting.entries import SortedBlock

BlockKey = tuple[Path, int]


class BlockCache:
    """A least-recently-used map of decoded row groups, and the threads that read ahead."""

    def __init__(self, bytes_max: int, readers: int = 2) -> None:
        """``readers``: threads that read ahead; 0 = nothing is read ahead. They start when first needed."""
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._blocks: OrderedDict[BlockKey, SortedBlock] = OrderedDict()
        self._coming: dict[BlockKey, Future[SortedBlock]] = {}
        self._coming_max = 16 * readers
        self._readers = ThreadPoolExecutor(readers, "read-ahead") if readers else None
        self.bytes = 0

    def get(self, key: BlockKey, load: Callable[[], SortedBlock]) -> SortedBlock:
        """The block, from memory or by ``load()``, whose errors pass through."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                return block
            coming = self._coming.get(key)
        if coming is not None and not coming.cancel():
            return coming.result()
        return self._load(key, load)

    def prefetch(self, key: BlockKey, load: Callable[[], SortedBlock]) -> None:
        """Begin to load a block in the background, unless enough is under way. An error is kept for nobody: the
        ``get`` that meets it raises it, a later one loads again.
        """
        with self._lock:
            full = len(self._coming) >= self._coming_max
            if self._readers is None or full or key in self._blocks or key in self._coming:
                return
            coming = self._coming[key] = self._readers.submit(self._load, key, load)
        coming.add_done_callback(lambda _: self._arrived(key))

    def _arrived(self, key: BlockKey) -> None:
        with self._lock:
            del self._coming[key]

    def _load(self, key: BlockKey, load: Callable[[], SortedBlock]) -> SortedBlock:
        block = load()
        size = block.bytes
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self.bytes += size
                self._shrink()
        return block

    def _shrink(self) -> None:
        while self.bytes > self._bytes_max and self._blocks:
            _, block = self._blocks.popitem(last=False)
            self.bytes -= block.bytes
