"""Control submissions: they have no records, and take effect between the writes before them and the writes after them.

Rules: R14, R15, R18, R20, R22 and N6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from bookkeeper.errors import BookkeeperError, NotServingError
from bookkeeper.model import StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.origins.tail_plan import plan_merge
from bookkeeper.tserver.tablets.block_targets import ConfigView
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.write.write_context import WriteContext


class _ControlSubmission:
    """A submission without records: answered once everything submitted before is as durable as ``durability``."""

    durability = Durability.SYNC
    approx_bytes = 0

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`."""
        del point
        self.take_effect()
        return []

    def take_effect(self) -> None:
        """Runs in a commit thread, between the submissions before and after."""

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        return None

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`; a change stays unless its class says otherwise."""


class SyncSubmission(_ControlSubmission):
    """Everything submitted before is synced."""


class ConfigUpdate(_ControlSubmission):
    """Rule R14: every block that is prepared from here on carries the targets of this generation, or of a later one."""

    durability = Durability.LOG

    def __init__(self, context: WriteContext, view: ConfigView) -> None:
        self._context = context
        self._view = view

    def take_effect(self) -> None:
        """Put the configuration in force, unless a later one is."""
        self._context.put_in_force(self._view)


class FlushSubmission(_ControlSubmission):
    """Begins a flush of a tablet; everything in it is synced when this is answered, so no peer can lack it (R15).

    Has to begin a group: a record that is written and not applied yet would need the ``log:`` cell that the flush
    deletes.
    """

    def __init__(
        self, context: WriteContext, tablet: ServedTablet, release: Callable[[tuple[str, bytes | None]], None]
    ) -> None:
        """``release`` gets the tablet's key: its next append is a first use of its log again."""
        self._context = context
        self._tablet = tablet
        self._release = release
        self._point: FlushPoint | None = None

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`. The flush point has everything submitted before, and nothing submitted after."""
        self._point = self._tablet.begin_flush(point.wal_name, self._context.clock.boot_ns())
        self._release(self._tablet.key)
        return []

    def applied(self, blocks: list[PlacedBlock]) -> FlushPoint | None:
        """See :class:`Submission`."""
        del blocks
        return self._point


class CloseTablet(_ControlSubmission):
    """The tablet accepts no more writes; those submitted before are applied when this is answered."""

    durability = Durability.LOG

    def __init__(self, tablet: ServedTablet) -> None:
        self._tablet = tablet

    def take_effect(self) -> None:
        """Refuse later writes."""
        self._tablet.stop_accepting()

    def failed(self, error: BookkeeperError) -> None:
        """Accept writes again."""
        del error
        self._tablet.accept_again()


class MergeTail(_ControlSubmission):
    """A tablet takes the records of a given-up log that it lacks, all at once: a flush has the complete tail or nothing
    of it (N6). Has to begin a group, so that no message is on its way beside the comparison (R18).
    """

    durability = Durability.LOG

    def __init__(self, tablet: ServedTablet, log: str, tail: Sequence[Block]) -> None:
        self._tablet = tablet
        self._log = log
        self._tail = tail

    def take_effect(self) -> None:
        """Merge, unless it was merged before. Raises NotServingError, UnavailableError: nothing changes. Memory has the
        records on return, whether or not the group of this submission becomes durable: the given-up log has them.
        """
        tablet = self._tablet
        if not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server: its next holder merges {self._log}")
        if self._log in tablet.given_up.waiting:
            received = tablet.received
            merged = plan_merge(self._tail, received.staged_high_water, received.origin_intervals.of)
            tablet.merge_tail(self._log, merged)


def may_forget(tablets: Iterable[ServedTablet]) -> Iterator[ServedTablet]:
    """The tablets that may forget what has ended. One that awaits a tail finds the tail's duplicates by it; its next
    load forgets it.
    """
    return (tablet for tablet in tablets if not tablet.given_up.awaits_tails)


class ForgetStreams(_ControlSubmission):
    """Rule R20: these streams have ended for good; every tablet forgets their high-waters."""

    durability = Durability.LOG

    def __init__(self, tablets: Sequence[ServedTablet], streams: Sequence[StreamKey]) -> None:
        self._tablets = tablets
        self._streams = streams

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        for tablet in may_forget(self._tablets):
            for stream in self._streams:
                tablet.received.forget_stream(stream)
        return None


class ForgetRoots(_ControlSubmission):
    """Rule R22: no record of these logs is under way anywhere; every tablet forgets their origin intervals."""

    durability = Durability.LOG

    def __init__(self, tablets: Sequence[ServedTablet], logs: Collection[RootLog]) -> None:
        self._tablets = tablets
        self._logs = logs

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        for tablet in may_forget(self._tablets):
            tablet.received.forget_roots(self._logs)
        return None
