"""What a batch writer still has to write, in order, tablet by tablet. Pure: no thread, no socket, no clock.

Arrives: batches, where the tablets are, how writes ended. Leaves: what to send next and where to. Laws: records of one
row leave in the order they came, so a tablet has at most one batch on its way and a failed one goes before the others;
nothing is dropped before it was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from bookkeeper.client.locations import TableMap
from bookkeeper.model import Extent
from bookkeeper.storage.tablet import split_by_tablets

JOIN_BELOW_BYTES = 2 * 1024 * 1024
"""Batches of one tablet smaller than this are joined before they are sent."""

UNLOCATED = Extent("", None, None)
"""Stands for the tablets as long as they were never located."""


@dataclass(slots=True)
class _Queue:
    address: str | None
    placed: int | None
    waiting: deque[pa.RecordBatch] = field(default_factory=deque)
    flying: pa.RecordBatch | None = None
    resting: bool = False
    """A write failed: wait until the tablet was located again."""

    @property
    def holds_any(self) -> bool:
        return bool(self.waiting) or self.flying is not None

    @property
    def may_leave(self) -> bool:
        return bool(self.waiting) and self.flying is None and not self.resting


class TabletQueues:
    """One queue a tablet. Not thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[Extent, _Queue] = {}
        self._unrouted: deque[pa.RecordBatch] = deque()
        self._next_map: TableMap | None = None
        self._bytes = 0

    # ---- what there is

    @property
    def bytes_left(self) -> int:
        """Bytes of everything not known to be written."""
        return self._bytes

    @property
    def is_empty(self) -> bool:
        """True when everything that came was written."""
        return not self._unrouted and not any(queue.holds_any for queue in self._queues.values())

    def stuck(self) -> list[Extent]:
        """Tablets with records that can't leave before the tablets were located (again)."""
        if self._unrouted and not self._queues:
            return [UNLOCATED]
        return [e for e, q in self._queues.items() if (q.resting or q.address is None) and q.holds_any]

    def extents(self) -> set[Extent]:
        """The tablets as last located."""
        return set(self._queues)

    def left(self) -> Iterator[pa.RecordBatch]:
        """Everything not known to be written, each row's records in order."""
        for queue in self._queues.values():
            if queue.flying is not None:
                yield queue.flying
            yield from queue.waiting
        yield from self._unrouted

    def addresses(self) -> set[str]:
        """Who serves the tablets."""
        return {queue.address for queue in self._queues.values() if queue.address is not None}

    def placed(self, extent: Extent) -> int | None:
        """When the tablet was given to who serves it, as last located."""
        return self._queues[extent].placed

    # ---- what happens

    def add(self, batch: pa.RecordBatch) -> None:
        """New records."""
        self._bytes += batch.nbytes
        self._unrouted.append(batch)
        self._route()

    def relocate(self, found: TableMap) -> None:
        """The tablets as they are now. Other tablets than before take over when nothing is on its way."""
        if set(found.extents) == set(self._queues):
            self._next_map = None
            for extent, address, placed in zip(found.extents, found.addresses, found.placed, strict=True):
                queue = self._queues[extent]
                queue.address, queue.placed, queue.resting = address, placed, False
        else:
            self._next_map = found
        self._adopt()
        self._route()

    def take(self, address: str, bytes_max: int) -> list[tuple[Extent, pa.RecordBatch]]:
        """Batches to send there now, at most one a tablet, on their way until :meth:`written` or :meth:`failed`."""
        taken: list[tuple[Extent, pa.RecordBatch]] = []
        size = 0
        for extent, queue in self._queues.items():
            if size >= bytes_max:
                break
            if self._next_map is None and queue.address == address and queue.may_leave:
                queue.flying = self._next_batch(queue.waiting)
                size += queue.flying.nbytes
                taken.append((extent, queue.flying))
        for extent, _ in taken:  # those left behind go first the next time
            self._queues[extent] = self._queues.pop(extent)
        return taken

    def written(self, extent: Extent) -> None:
        """The batch on its way arrived."""
        queue = self._queues[extent]
        if queue.flying is not None:
            self._bytes -= queue.flying.nbytes
        queue.flying = None
        self._adopt()

    def failed(self, extent: Extent) -> None:
        """It did not, or nobody knows: it goes again, before everything else of its tablet."""
        queue = self._queues[extent]
        if queue.flying is not None:
            queue.waiting.appendleft(queue.flying)
        queue.flying = None
        queue.resting = True
        self._adopt()

    def _adopt(self) -> None:
        """Take over another set of tablets once nothing is on its way: everything that waits is routed anew."""
        if self._next_map is None or any(queue.flying is not None for queue in self._queues.values()):
            return
        found, self._next_map = self._next_map, None
        waiting = [batch for queue in self._queues.values() for batch in queue.waiting]
        self._unrouted.extendleft(reversed(waiting))
        places = zip(found.extents, found.addresses, found.placed, strict=True)
        self._queues = {extent: _Queue(address, placed) for extent, address, placed in places}
        self._route()

    def _route(self) -> None:
        while self._unrouted and self._queues and self._next_map is None:
            batch = self._unrouted.popleft()
            self._bytes -= batch.nbytes
            for extent, part in split_by_tablets(batch, list(self._queues)):
                self._queues[extent].waiting.append(part)
                self._bytes += part.nbytes

    def _next_batch(self, waiting: deque[pa.RecordBatch]) -> pa.RecordBatch:
        """Take the first batch, joined with the next ones as long as they are small."""
        parts = [waiting.popleft()]
        size = parts[0].nbytes
        while waiting and size + waiting[0].nbytes < JOIN_BELOW_BYTES:
            parts.append(waiting.popleft())
            size += parts[-1].nbytes
        if len(parts) == 1:
            return parts[0]
        joined = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        self._bytes += joined.nbytes - size
        return joined
