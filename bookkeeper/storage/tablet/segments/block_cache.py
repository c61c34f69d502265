"""A cache of decoded row groups, so that the pages of one scan do not decode the same groups again.

Its bytes are bounded; the least recently used group goes first. Any number of threads and tablets use it. Two threads
that miss at once decode twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from bookkeeper.storage.tablet.sorting.entries import SortedBlock

BlockKey = tuple[str, int]


class BlockCache:
    """A least-recently-used map of decoded row groups, and the threads that read ahead."""

    def __init__(self, bytes_max: int, readers: int = 2) -> None:
        """``readers``: threads that read ahead; 0 = none. They start with the first prefetch."""
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._blocks: OrderedDict[BlockKey, SortedBlock] = OrderedDict()
        self._prefetches: dict[BlockKey, Future[SortedBlock]] = {}
        self._prefetches_max = 16 * readers
        self._readers = ThreadPoolExecutor(readers, "read-ahead") if readers else None
        self.bytes = 0

    def get(self, key: BlockKey, load: Callable[[], SortedBlock]) -> SortedBlock:
        """The block, from memory or by ``load()``, whose errors pass through."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                return block
            prefetch = self._prefetches.get(key)
        if prefetch is not None and not prefetch.cancel():
            return prefetch.result()
        return self._load(key, load)

    def prefetch(self, key: BlockKey, load: Callable[[], SortedBlock]) -> None:
        """Begin to load a block in the background, unless enough is under way. The ``get`` that waits
        for this load raises its error; a later one loads again.
        """
        with self._lock:
            full = len(self._prefetches) >= self._prefetches_max
            if self._readers is None or full or key in self._blocks or key in self._prefetches:
                return
            prefetch = self._prefetches[key] = self._readers.submit(self._load, key, load)
        prefetch.add_done_callback(lambda _: self._end_prefetch(key))

    def _end_prefetch(self, key: BlockKey) -> None:
        with self._lock:
            del self._prefetches[key]

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
