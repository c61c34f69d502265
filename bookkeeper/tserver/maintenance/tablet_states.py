"""New states of a tablet: who makes them durable, and when readers use them, memory is freed and logs go.

A flush or a compaction has written segments; :class:`TabletStates` makes them part of the tablet. :class:`NamedStates`
is for tablets with one replica: the books name a state at once. Those with more have ``leading.chain_states``, where a
state is named later. :class:`StatesByTablet` takes the one that a tablet needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.tablets import tablet_segments
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.tablets.tablet_segments import SEGMENT_FAMILIES, dead_segments, segments_put

COMPACTION = "a compaction"


class TabletStates(Protocol):
    """Takes the segments of flushes and merges, which are durable. With the tablet's flush lock held."""

    def flushed(
        self, tablet: ServedTablet, point: FlushPoint, segments: Sequence[SegmentRef], freed: Callable[[], None]
    ) -> None:
        """The segments of a flush take the place of its memtable; then ``freed`` is called, and the flush ends. Raises
        TransientError: then it goes on with the next call, which gives the same point.
        """

    def merged(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """The written segments take the place of the inputs. Raises TransientError: then the inputs stay."""

    def may_forget_deletes(self, tablet: ServedTablet) -> bool:
        """Whether a compaction of a whole locality group may drop deletes."""

    def clear(self, tablet: ServedTablet, put_state: Callable[[], None]) -> bool:
        """Delete cells of the row that name segments which do not count. Returns whether none is left; files that a
        page reads wait. ``put_state`` merges nothing, so that the newest state is of this holder. The flush lock is not
        held. Raises TransientError.
        """


class NamedStates:
    """See :class:`TabletStates`: a state is in the books before readers use it and before its logs go (R1)."""

    def __init__(self, books: TabletBooks, die: Die) -> None:
        self._books = books
        self._die = die

    def flushed(
        self, tablet: ServedTablet, point: FlushPoint, segments: Sequence[SegmentRef], freed: Callable[[], None]
    ) -> None:
        """See :class:`TabletStates`. A retry repeats the put under the same rank."""
        put = segments_put(tablet.row, point.state, segments)
        self._books.put([put], point.state.flush_id)
        if point.frozen is not None:
            tablet.data.finish_flush(point.frozen, segments)
            freed()
        self._books.let_logs_go(tablet, point.logs)
        tablet.flushes.end(point)

    def merged(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """See :class:`TabletStates`. One row put, behind all earlier states; then readers use the written segments.
        Ends the process when it can't know whether the books have the put.
        """
        flush_id = tablet.flushes.take_flush_id()
        new = [replace(ref, flush_id=flush_id) for ref in written]
        left = [ref for ref in tablet.data.segments if ref.name not in inputs]
        state = tablet_segments.merged_state(tablet.flushes.state, flush_id, [*left, *new], compacted)
        put = segments_put(tablet.row, state, new)
        check_puts([put], flush_id)  # a put too large for the store is this tablet's problem: nothing was written
        self._put(put, flush_id)
        tablet.segments_replaced(inputs, new, state)

    def _put(self, put: RowPut, flush_id: int) -> None:
        try:
            self._books.put_surely(COMPACTION, put, flush_id)
        except BookkeeperError as error:
            self._die(f"the state of a tablet behind a compaction is not known: {error}")
            raise

    def may_forget_deletes(self, tablet: ServedTablet) -> bool:
        """See :class:`TabletStates`: no older segment can come."""
        del tablet
        return True

    def clear(self, tablet: ServedTablet, put_state: Callable[[], None]) -> bool:
        """See :class:`TabletStates`. Marks the files of the dead cells first, for the collector."""
        row = self._books.get(tablet.row, SEGMENT_FAMILIES)
        if tablet_segments.has_cells_of_others(row, tablet.serial, {ref.name for ref in tablet.data.segments}):
            put_state()
            row = self._books.get(tablet.row, SEGMENT_FAMILIES)
        dead = dead_segments(row, tablet.serial)
        if dead is None:
            return True
        if tablet.data.is_read(dead.names):
            return False
        self._books.put(dead.marks(), keys.ONCE_RANK)
        self._books.delete(dead.cells, dead.rank)
        return True


class StatesByTablet:
    """See :class:`TabletStates`: takes the one for tablets with one replica, or the one for those with more."""

    def __init__(self, named: TabletStates, chained: TabletStates) -> None:
        self._named = named
        self._chained = chained

    def flushed(
        self, tablet: ServedTablet, point: FlushPoint, segments: Sequence[SegmentRef], freed: Callable[[], None]
    ) -> None:
        """See :class:`TabletStates`."""
        self._of(tablet).flushed(tablet, point, segments, freed)

    def merged(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """See :class:`TabletStates`."""
        self._of(tablet).merged(tablet, inputs, written, compacted)

    def may_forget_deletes(self, tablet: ServedTablet) -> bool:
        """See :class:`TabletStates`."""
        return self._of(tablet).may_forget_deletes(tablet)

    def clear(self, tablet: ServedTablet, put_state: Callable[[], None]) -> bool:
        """See :class:`TabletStates`."""
        return self._of(tablet).clear(tablet, put_state)

    def _of(self, tablet: ServedTablet) -> TabletStates:
        return self._chained if tablet.has_replicas else self._named
