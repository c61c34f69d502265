"""The unwritten batches of a batch writer, one queue for each tablet. Pure: no thread, no socket, no clock.

Laws: records of one row leave in the order in which they were added, so a tablet has at most one batch in flight, and a
failed batch goes before the others; no batch is dropped before it is written. A flight ends with an answer, or when the
tablet is elsewhere by now: its tserver may never answer. Then the answer, if it comes, counts no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct, field

from bookkeeper.client.tablet_extents import TableMap
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.batch_routing import split_by_tablets

JOIN_BELOW_BYTES = 2 * 1024 * 1024
"""Smaller batches of one tablet are joined before they are sent."""

UNLOCATED = Extent("", None, None)
"""Stands for all tablets until they are located for the first time."""


class _Piece(NamedTuple):
    """Records and their size, counted once: ``nbytes`` visits every buffer from Python."""

    batch: pa.RecordBatch
    size: int


class Flight(NamedTuple):
    """Records on their way to the tserver of a tablet since ``began_ns`` (boot clock); ``placed`` as in
    :class:`TabletLocation`.
    """

    extent: Extent
    batch: pa.RecordBatch
    size: int
    placed: int | None
    address: str
    began_ns: int


class _Queue(Struct):
    address: str | None
    placed: int | None
    waiting: deque[_Piece] = field(default_factory=deque)
    flight: Flight | None = None
    needs_location: bool = False
    """A write failed, so the queue waits until the tablet is located again."""

    @property
    def has_records(self) -> bool:
        return bool(self.waiting) or self.flight is not None

    @property
    def can_send(self) -> bool:
        return bool(self.waiting) and self.flight is None and not self.needs_location

    @property
    def is_stuck(self) -> bool:
        return self.has_records and (self.needs_location or self.address is None)

    def relocate(self, address: str | None, placed: int | None) -> None:
        self.address, self.placed, self.needs_location = address, placed, False

    def put(self, piece: _Piece) -> bool:
        """Append records; True when no batch is in flight."""
        self.waiting.append(piece)
        return self.flight is None

    def take(self) -> tuple[_Piece, int]:
        """The first piece, joined with the next ones as long as they are small; and how many bytes that added."""
        parts = [self.waiting.popleft()]
        size = parts[0].size
        while self.waiting and size + self.waiting[0].size < JOIN_BELOW_BYTES:
            parts.append(self.waiting.popleft())
            size += parts[-1].size
        piece = parts[0]
        if len(parts) > 1:
            joined = pa.concat_batches([part.batch for part in parts])
            piece = _Piece(joined, int(joined.nbytes))
        return piece, piece.size - size

    def put_back(self, flight: Flight) -> None:
        """The batch in flight goes again, before all others, once the tablet is located."""
        self.waiting.appendleft(_Piece(flight.batch, flight.size))
        self.flight = None
        self.needs_location = True


class TabletQueues:
    """One queue for each tablet. Not thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[Extent, _Queue] = {}
        self._unrouted: deque[_Piece] = deque()
        self._next_map: TableMap | None = None
        self._bytes = 0

    # ---- state

    @property
    def unwritten_bytes(self) -> int:
        """Size of the records that are not acknowledged."""
        return self._bytes

    @property
    def is_empty(self) -> bool:
        """True when all records are acknowledged."""
        return not self._unrouted and not any(queue.has_records for queue in self._queues.values())

    def stuck(self) -> list[Extent]:
        """Tablets with records that can't leave before the tablets are located (again)."""
        if self._unrouted and not self._queues:
            return [UNLOCATED]
        return [extent for extent, queue in self._queues.items() if queue.is_stuck]

    def extents(self) -> set[Extent]:
        """The tablets as last located."""
        return set(self._queues)

    def unwritten(self) -> Iterator[pa.RecordBatch]:
        """Records that are not acknowledged, those of a row in their order."""
        for queue in self._queues.values():
            if queue.flight is not None:
                yield queue.flight.batch
            yield from (piece.batch for piece in queue.waiting)
        yield from (piece.batch for piece in self._unrouted)

    def addresses(self) -> set[str]:
        """The addresses of the tservers that serve the tablets."""
        return {queue.address for queue in self._queues.values() if queue.address is not None}

    def has_flight_before(self, before_ns: int) -> bool:
        """Whether a flight began before this moment."""
        return any(queue.flight is not None and queue.flight.began_ns < before_ns for queue in self._queues.values())

    # ---- changes

    def add(self, batch: pa.RecordBatch, size: int | None = None) -> bool:
        """Add records; ``size``: their bytes, if counted already. False: they wait behind a batch in flight, so no
        thread has work before that one is acknowledged.
        """
        piece = _Piece(batch, int(batch.nbytes) if size is None else size)
        self._bytes += piece.size
        self._unrouted.append(piece)
        return self._route()

    def relocate(self, found: TableMap) -> None:
        """Take the tablets' present locations. Other tablets than before replace them once no batch is in flight."""
        if set(found.extents) == set(self._queues):
            self._next_map = None
            for extent, address, placed in zip(found.extents, found.addresses, found.placed, strict=True):
                self._queues[extent].relocate(address, placed)
        else:
            self._next_map = found
        self._switch_map()
        self._route()

    def give_up(self, found: TableMap, before_ns: int) -> set[str]:
        """End the flights that began before this moment to an address where their tablets are no more. Returns the
        addresses to which no other one is under way.

        Late answers do no harm: a tserver does not apply what a later attempt of its writer has overtaken, nor what was
        meant for an earlier holder of the tablet (``placed``).
        """
        addresses = dict(zip(found.extents, found.addresses, strict=True))
        ended, others = set[str](), set[str]()
        for extent, queue in self._queues.items():
            if (flight := queue.flight) is None:
                continue
            if flight.began_ns < before_ns and addresses.get(extent) != flight.address:
                queue.put_back(flight)
                ended.add(flight.address)
            else:
                others.add(flight.address)
        return ended - others

    def take(self, address: str, bytes_max: int, now_ns: int) -> list[Flight]:
        """Batches to send to a tserver now, at most one a tablet, together at most twice ``bytes_max``, or one larger
        batch alone; in flight until :meth:`written`, :meth:`failed` or :meth:`give_up`.
        """
        taken: list[Flight] = []
        size = 0
        for extent, queue in self._queues.items():
            if size >= bytes_max:
                break
            if self._next_map is None and queue.address == address and queue.can_send:
                if taken and queue.waiting[0].size > bytes_max:
                    break
                piece, growth = queue.take()
                self._bytes += growth
                size += piece.size
                queue.flight = Flight(extent, piece.batch, piece.size, queue.placed, address, now_ns)
                taken.append(queue.flight)
        for flight in taken:  # the other tablets go first the next time
            self._queues[flight.extent] = self._queues.pop(flight.extent)
        return taken

    def written(self, flight: Flight) -> bool:
        """The tserver acknowledged the batch in flight; False when the flight was given up before."""
        queue = self._queue_of(flight)
        if queue is None:
            return False
        self._bytes -= flight.size
        queue.flight = None
        self._switch_map()
        return True

    def failed(self, flight: Flight) -> None:
        """The batch in flight is not acknowledged: it goes again, before all others of its tablet."""
        queue = self._queue_of(flight)
        if queue is not None:
            queue.put_back(flight)
            self._switch_map()

    def _queue_of(self, flight: Flight) -> _Queue | None:
        """The queue to which a flight belongs; None when it was given up."""
        queue = self._queues.get(flight.extent)
        return queue if queue is not None and queue.flight is flight else None

    def _switch_map(self) -> None:
        """Take over another set of tablets once no batch is in flight, and route all waiting records again."""
        if self._next_map is None or any(queue.flight is not None for queue in self._queues.values()):
            return
        found, self._next_map = self._next_map, None
        waiting = [piece for queue in self._queues.values() for piece in queue.waiting]
        self._unrouted.extendleft(reversed(waiting))
        locations = zip(found.extents, found.addresses, found.placed, strict=True)
        self._queues = {extent: _Queue(address, placed) for extent, address, placed in locations}
        self._route()

    def _route(self) -> bool:
        """Move unrouted records to their queues; True when a thread has to send records or to locate tablets."""
        has_work = False
        while self._unrouted and self._queues and self._next_map is None:
            piece = self._unrouted.popleft()
            self._bytes -= piece.size
            for extent, part in split_by_tablets(piece.batch, list(self._queues)):
                queue = self._queues[extent]
                routed = piece if part is piece.batch else _Piece(part, int(part.nbytes))
                self._bytes += routed.size
                has_work = queue.put(routed) or has_work
        return has_work or bool(self._unrouted)
