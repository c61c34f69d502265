"""Compactions: a thread merges segments of tablets into fewer ones, one merge at a time.

One row put has the merged segments and the state that names them instead of their inputs; then dead cells are marked
and deleted. So after a crash the books have all of a compaction or nothing. A crash leaves files that no cell names
(``master.gc.orphan_files`` removes them), or dead cells that the next check of the row finds, with those of late
flushes of earlier holders.

Neither commits nor flushes wait for a merge: it reads segments only, and it locks a tablet's flushes for its row put
alone.
A merge of all segments of a locality group drops deletes, as of its start: the memtable is flushed before. A peer needs
no delete of this cluster's segments, it has its own: records of a tablet reach it in their order (R24) and once (R18),
so no put comes behind the delete that hid it. Rules: R1, R16, R17, R18 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.config.table_properties import TableProperties
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    LeaseLostError,
    NotServingError,
    TransientError,
    UnavailableError,
    unavailable,
)
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.tablet.compaction import INPUTS_MAX, due_merges, smallest
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.tablet_states import COMPACTION, TabletStates
from bookkeeper.tserver.replicas.file_repair import Resolve
from bookkeeper.tserver.tablets.load_plan import first_flush_id
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry

LOG = logging.getLogger(__name__)

TICK_MS = 500
FAILED_AGAIN_MS = 30_000
"""ms until the next try for a tablet whose compaction failed."""

CHECK_INTERVAL_MS = 600_000
"""ms between checks for dead cells of a tablet that is not compacted."""


def segments_of_group(tablet: ServedTablet, group: str) -> list[SegmentRef]:
    """The tablet's segments of one locality group."""
    return [ref for ref in tablet.data.segments if ref.group == group]


_Input = tuple[tuple[SegmentRef, ...], TableProperties]


def _input_of(tablet: ServedTablet) -> _Input:
    return tablet.data.segments, tablet.data.properties


class Compactor:
    """Merges segments of served tablets when a merge is due or requested."""

    def __init__(
        self,
        registry: Registry,
        flusher: Flusher,
        states: TabletStates,
        resolve: Resolve,
        clock: Clock,
        die: Die,
    ) -> None:
        """``resolve``: of damaged segments on this host."""
        self._resolve = resolve
        self._registry = registry
        self._flusher = flusher
        self._states = states
        self._clock = clock
        self._age_clock = SteadyWall(clock)
        """Scans hide old versions by the wall clock; a merge drops them by this clock, which ignores forward jumps."""
        self._die = die
        self._lock = threading.Lock()
        self._requested: set[bytes] = set()
        self._under_way: dict[bytes, int] = {}
        """Row of a tablet under compaction to the flush id that the compaction took at its start."""
        self._not_before_ns: dict[bytes, int] = {}
        self._checked_ns: dict[ServedTablet, int] = {}
        self._settled: dict[ServedTablet, _Input] = {}
        """Tablets of which no merge was due, with all that the choice of merges has seen."""
        self._thread = BackgroundThread("compactor", clock, die)
        self._merges_done = 0

    @property
    def merges_done(self) -> int:
        """Merges since the start."""
        return self._merges_done

    # ---- orders

    def request(self, tablet: ServedTablet, ticket: int) -> int:
        """Request a compaction of all that the tablet has now. ``ticket`` 0: a new request; else the ticket of an
        earlier one, perhaps from another holder. Returns 0 when it is done, else the ticket for the next call.
        """
        if ticket and tablet.flushes.compacted >= ticket:
            return 0
        if not tablet.data.segments and not tablet.data.memory_records:
            return 0
        with self._lock:
            ticket = ticket or tablet.flushes.take_flush_id()
            if self._under_way.get(tablet.row, 0) <= ticket:
                self._requested.add(tablet.row)
                self._not_before_ns.pop(tablet.row, None)
        self._thread.wake()
        return ticket

    # ---- merges

    def compact(self, tablet: ServedTablet) -> None:
        """Merge all data of the tablet into one segment for each locality group. Raises TransientError."""
        with self._lock:
            self._requested.discard(tablet.row)
            compaction_id = self._under_way[tablet.row] = tablet.flushes.take_flush_id()
        try:
            self._compact(tablet, compaction_id)
        finally:
            with self._lock:
                del self._under_way[tablet.row]

    def _compact(self, tablet: ServedTablet, compaction_id: int) -> None:
        self._flusher.flush(tablet)
        groups = sorted({ref.group for ref in tablet.data.segments})
        for group in groups if len(tablet.data.segments) > INPUTS_MAX else ():
            while len(inputs := segments_of_group(tablet, group)) > max(1, INPUTS_MAX // len(groups)):
                self._merge(tablet, smallest(inputs, INPUTS_MAX), tablet.flushes.compacted, drop_deletes=False)
        if tablet.data.segments:
            self._merge(tablet, tablet.data.segments, compaction_id, drop_deletes=True)
        tablet.flushes.compacted_at(compaction_id)

    def compact_due(self, tablet: ServedTablet) -> None:
        """Do the merges that are due by the sizes of segments; few while the tablet fills up. Raises TransientError."""
        filling = self._flusher.fills(tablet)
        segments, properties = seen = _input_of(tablet)
        merges = due_merges(segments, properties, filling=filling)
        if not merges and not filling:
            self._settled[tablet] = seen
        for merge in merges:
            inputs: Sequence[SegmentRef] = merge.inputs
            if merge.whole_group:
                self._flusher.flush(tablet)
                inputs = segments_of_group(tablet, inputs[0].group)
            self._merge(tablet, inputs[:INPUTS_MAX], tablet.flushes.compacted, drop_deletes=len(inputs) <= INPUTS_MAX)

    def _merge(self, tablet: ServedTablet, inputs: Sequence[SegmentRef], compacted: int, *, drop_deletes: bool) -> None:
        names = {ref.name for ref in inputs}
        now_ms = self._age_clock.wall_ms()
        drop_deletes = drop_deletes and self._states.may_forget_deletes(tablet)
        try:
            written = tablet.data.write_merged(
                names,
                first_flush_id(tablet.serial),
                now_ms,
                drop_deletes=drop_deletes,
                check_continue=lambda: self._check(tablet),
            )
        except OSError as error:
            raise unavailable(f"segments of tablet {tablet.extent} can't be merged", error) from error
        self._install(tablet, names, written, compacted)
        self._checked_ns.pop(tablet, None)
        self._merges_done += 1
        LOG.info(
            "tablet %s: %d segments of %d records became %d of %d",
            tablet.extent,
            len(inputs),
            sum(ref.records for ref in inputs),
            len(written),
            sum(ref.records for ref in written),
        )

    def _check(self, tablet: ServedTablet) -> None:
        """Raise NotServingError when the merge is not needed any more."""
        if self._thread.closing.is_set() or not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server")

    def _install(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """Let the written segments take the place of the inputs, behind all earlier states. Raises TransientError: then
        no file is left.
        """
        with tablet.flushes.lock:
            try:
                if not self._registry.holds(tablet):
                    raise NotServingError(f"tablet {tablet.extent} has left this server")
                self._flusher.complete(tablet)
            except BookkeeperError:
                tablet.data.discard(written)
                raise
            self._states.merged(tablet, inputs, written, compacted)

    # ---- dead cells

    def clear(self, tablet: ServedTablet) -> bool:
        """See :meth:`TabletStates.clear`."""
        return self._states.clear(tablet, lambda: self._install(tablet, set(), (), tablet.flushes.compacted))

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread; the merge under way stops."""
        self._thread.close()

    def run_once(self) -> None:
        """Work on each tablet once, the requested ones first."""
        tablets = [tablet for tablet in self._registry.all() if tablet.accepting]
        with self._lock:
            requested = self._requested & {tablet.row for tablet in tablets}
            self._requested &= requested
        here = set(tablets)
        self._checked_ns = {tablet: at for tablet, at in self._checked_ns.items() if tablet in here}
        self._settled = {tablet: seen for tablet, seen in self._settled.items() if tablet in here}
        for tablet in sorted(tablets, key=lambda tablet: tablet.row not in requested):
            if self._thread.closing.is_set():
                return
            is_requested = tablet.row in requested
            if not is_requested and self._is_settled(tablet):
                continue
            if self._not_before_ns.get(tablet.row, 0) <= self._clock.boot_ns():
                self._work(tablet, is_requested)

    def _is_settled(self, tablet: ServedTablet) -> bool:
        """Whether nothing has changed since no merge was due and no dead cell was found."""
        is_checked = self._checked_ns.get(tablet, 0) > self._clock.boot_ns()
        return is_checked and self._settled.get(tablet) == _input_of(tablet)

    def _compact_requested(self, tablet: ServedTablet) -> None:
        try:
            self.compact(tablet)
        except BaseException:
            with self._lock:
                self._requested.add(tablet.row)
            raise

    def _work_on(self, tablet: ServedTablet, is_requested: bool) -> None:
        if is_requested:
            self._compact_requested(tablet)
        self.compact_due(tablet)
        if self._checked_ns.get(tablet, 0) <= self._clock.boot_ns() and self.clear(tablet):
            self._checked_ns[tablet] = self._clock.boot_ns() + CHECK_INTERVAL_MS * 1_000_000

    def _work_soundly(self, tablet: ServedTablet, is_requested: bool) -> None:
        """A compaction that meets a damaged file of this host waits for a sound copy. Raises TransientError then."""
        try:
            with contained(tablet.extent, COMPACTION):
                self._work_on(tablet, is_requested)
        except CorruptionError as error:
            self._resolve(error, 0)
            raise UnavailableError(f"a sound copy of a segment of tablet {tablet.extent} has just come") from error

    def _work(self, tablet: ServedTablet, is_requested: bool) -> None:
        try:
            self._work_soundly(tablet, is_requested)
            tablet.work_succeeded(COMPACTION)
        except LeaseLostError:
            raise
        except NotServingError:
            return
        except BookkeeperError as error:
            stays = not isinstance(error, TransientError)
            LOG.log(
                logging.ERROR if stays else logging.WARNING,
                "tablet %s is not compacted for now: %s",
                tablet.extent,
                error,
            )
            if stays:
                tablet.work_failed(COMPACTION, error.message)
            self._settled.pop(tablet, None)
            self._not_before_ns[tablet.row] = self._clock.boot_ns() + FAILED_AGAIN_MS * 1_000_000
