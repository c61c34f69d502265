"""What a batch writer still has to write, in order, tablet by tablet. Pure: no thread, no socket, no clock.

Arrives: batches, where the tablets are, how writes ended. Leaves: what to send next and where to. Laws: records of one
row leave in the order they came, so a tablet has at most one batch on its way and a failed one goes before the others;
nothing is dropped before it was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from bookkeeper.client.tablet_extents import TableMap
from bookkeeper.model import Extent
from bookkeeper.storage.tablet import split_by_tablets

JOIN_BELOW_BYTES = 2 * 1024 * 1024
"""Batches of one tablet smaller than this are joined before they are sent."""

UNLOCATED = Extent("", None, None)
"""Stands for the tablets as long as they were never located."""


class _Piece(NamedTuple):
    """Records and their bytes, which are counted once: ``nbytes`` looks at every buffer from Python."""

    batch: pa.RecordBatch
    size: int


@dataclass(slots=True)
class _Queue:
    address: str | None
    placed: int | None
    waiting: deque[_Piece] = field(default_factory=deque)
    flying: _Piece | None = None
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
        self._unrouted: deque[_Piece] = deque()
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
                yield queue.flying.batch
            yield from (piece.batch for piece in queue.waiting)
        yield from (piece.batch for piece in self._unrouted)

    def addresses(self) -> set[str]:
        """Who serves the tablets."""
        return {queue.address for queue in self._queues.values() if queue.address is not None}

    def placed(self, extent: Extent) -> int | None:
        """When the tablet was given to who serves it, as last located."""
        return self._queues[extent].placed

    # ---- what happens

    def add(self, batch: pa.RecordBatch, size: int | None = None) -> bool:
        """New records; ``size``: their bytes, if they were counted. False: they follow others that are on their way,
        and nobody has anything to do before these arrive.
        """
        piece = _Piece(batch, int(batch.nbytes) if size is None else size)
        self._bytes += piece.size
        self._unrouted.append(piece)
        return self._route()

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
                queue.flying = self._next_piece(queue.waiting)
                size += queue.flying.size
                taken.append((extent, queue.flying.batch))
        for extent, _ in taken:  # those left behind go first the next time
            self._queues[extent] = self._queues.pop(extent)
        return taken

    def written(self, extent: Extent) -> None:
        """The batch on its way arrived."""
        queue = self._queues[extent]
        if queue.flying is not None:
            self._bytes -= queue.flying.size
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
        waiting = [piece for queue in self._queues.values() for piece in queue.waiting]
        self._unrouted.extendleft(reversed(waiting))
        places = zip(found.extents, found.addresses, found.placed, strict=True)
        self._queues = {extent: _Queue(address, placed) for extent, address, placed in places}
        self._route()

    def _route(self) -> bool:
        """Hand to the queues what can be; True when somebody has to send it, or to find out where to."""
        calls = False
        while self._unrouted and self._queues and self._next_map is None:
            piece = self._unrouted.popleft()
            self._bytes -= piece.size
            for extent, part in split_by_tablets(piece.batch, list(self._queues)):
                queue = self._queues[extent]
                routed = piece if part is piece.batch else _Piece(part, int(part.nbytes))
                queue.waiting.append(routed)
                self._bytes += routed.size
                calls = calls or queue.flying is None
        return calls or bool(self._unrouted)

    def _next_piece(self, waiting: deque[_Piece]) -> _Piece:
        """Take the first piece, joined with the next ones as long as they are small."""
        parts = [waiting.popleft()]
        size = parts[0].size
        while waiting and size + waiting[0].size < JOIN_BELOW_BYTES:
            parts.append(waiting.popleft())
            size += parts[-1].size
        if len(parts) == 1:
            return parts[0]
        joined = pa.concat_batches([piece.batch for piece in parts])
        piece = _Piece(joined, int(joined.nbytes))
        self._bytes += piece.size - size
        return piece
