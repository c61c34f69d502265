"""Flushes and compactions of tablets with replicas: a state counts when this host has it durably.

Readers switch and memory is freed then, so a slow or stopped follower delays neither. The namer puts the state into the
books later, and lets logs go (``namer``). See ``maintenance.tablet_states``, whose protocol this is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper.errors import BookkeeperError, NotServingError, unavailable
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.tablets.tablet_segments import SEGMENT_FAMILIES, dead_segments


class ChainStates:
    """See ``maintenance.tablet_states.TabletStates``."""

    def __init__(self, led: LedTablets, books: TabletBooks) -> None:
        self._led = led
        self._books = books

    def flushed(
        self, tablet: ServedTablet, point: FlushPoint, segments: Sequence[SegmentRef], freed: Callable[[], None]
    ) -> None:
        """See ``TabletStates``: the manifest is durable before readers switch; the logs stay until a name."""
        try:
            self._chain(tablet).flushed(point, segments)
        except OSError as error:
            raise unavailable(f"new segments of tablet {tablet.extent} can't be read", error) from error
        if point.frozen is not None:
            tablet.data.finish_flush(point.frozen, segments)
            freed()
        tablet.flushes.end(point)
        self._led.changed()

    def merged(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """See ``TabletStates``."""
        try:
            self._chain(tablet).merged(inputs, written, compacted)
        except BookkeeperError:
            tablet.data.discard(written)
            raise
        except OSError as error:
            raise unavailable(f"merged segments of tablet {tablet.extent} can't be read", error) from error
        self._led.changed()

    def may_forget_deletes(self, tablet: ServedTablet) -> bool:
        """See ``TabletStates``: only when each replica has a state of this term (P17)."""
        return self._chain(tablet).may_forget_deletes()

    def clear(self, tablet: ServedTablet, put_state: Callable[[], None]) -> bool:
        """See ``TabletStates``. Files go by N4, so no file is marked; a later state of this term clears the rest."""
        del put_state
        dead = dead_segments(self._books.get(tablet.row, SEGMENT_FAMILIES), tablet.serial)
        if dead is not None:
            self._books.delete(dead.cells, dead.rank)
        return True

    def _chain(self, tablet: ServedTablet) -> LeaderChain:
        chain = self._led.find(tablet)
        if chain is None:
            raise NotServingError(f"tablet {tablet.extent} has left this server")
        return chain
