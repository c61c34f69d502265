"""Compactions: segments of a tablet are merged into fewer, in a thread of its own, one merge at a time.

Arrives: served tablets, orders to compact. Leaves: merged segments, and the state that names them instead of what they
were made of, in one row put; then marks and deletes of cells that do not count. Survives a crash: a compaction is in
the books wholly or not at all; what a cut leaves are files that nobody names (``master.strays``) or cells that the next
look at the row finds dead, those of late flushes of earlier holders among them.

Neither commits nor flushes wait for a merge: it reads segments only, and it locks a tablet's flushes for its row put
alone.
Deletes are forgotten by a merge of all segments of a locality group, as of its begin: what is in memory then is flushed
before. A peer needs no delete of ours, it has its own: records of a tablet reach it in their order (R24) and once
(R18), so no put comes behind the delete that hid it. Rules: R1, R16, R17, R18 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.errors import BookkeeperError, LeaseLostError, NotServingError, TransientError, unavailable
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.tablet import INPUTS_MAX, SegmentRef, due_merges, smallest
from bookkeeper.storage.wal import path_of
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.tablets import tablet_segments
from bookkeeper.tserver.tablets.load_plan import first_flush_id
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.tablets.tablet_segments import SEGMENT_FAMILIES, dead_segments, segments_put

LOG = logging.getLogger(__name__)

COMPACTION = "a compaction"
TICK_MS = 500
FAILED_AGAIN_MS = 30_000
"""ms until a tablet is tried again whose compaction failed."""

LOOK_INTERVAL_MS = 600_000
"""ms between looks for dead cells of a tablet that is not compacted."""


def of_group(tablet: ServedTablet, group: str) -> list[SegmentRef]:
    """The tablet's segments of one locality group."""
    return [ref for ref in tablet.data.segments if ref.group == group]


def discard(written: Sequence[SegmentRef]) -> None:
    """Remove files that nobody was told of."""
    for ref in written:
        path_of(ref.uri).unlink(missing_ok=True)


class Compactor:
    """Merges segments of served tablets when they are due or asked for."""

    def __init__(
        self,
        registry: Registry,
        flusher: Flusher,
        metadata: MetadataTable,
        persistence: SessionRetries,
        clock: Clock,
        die: Die,
    ) -> None:
        self._registry = registry
        self._flusher = flusher
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._age_clock = SteadyWall(clock)
        """Scans hide what is too old by the wall clock; dropping it must wait until it is so by this one, too."""
        self._die = die
        self._lock = threading.Lock()
        self._asked: set[bytes] = set()
        self._under_way: dict[bytes, int] = {}
        """Of tablets, by row, that are compacted now: the flush id that was taken at the begin."""
        self._not_before_ns: dict[bytes, int] = {}
        self._look_ns: dict[ServedTablet, int] = {}
        self._thread = BackgroundThread("compactor", clock, die)
        self.merges_done = 0

    # ---- orders

    def ask(self, tablet: ServedTablet, ticket: int) -> int:
        """Have everything in the tablet compacted, as it is now. ``ticket`` 0: a new request; else one that was given
        before, perhaps by another holder. Returns 0 when it is done, else the ticket to ask again with.
        """
        if ticket and tablet.flushes.compacted >= ticket:
            return 0
        if not tablet.data.segments and not tablet.data.memory_records:
            return 0
        with self._lock:
            ticket = ticket or tablet.flushes.take_flush_id()
            if self._under_way.get(tablet.row, 0) <= ticket:
                self._asked.add(tablet.row)
                self._not_before_ns.pop(tablet.row, None)
        self._thread.wake()
        return ticket

    # ---- merges

    def compact(self, tablet: ServedTablet) -> None:
        """Merge everything in the tablet into one segment for each locality group. Raises TransientError."""
        with self._lock:
            self._asked.discard(tablet.row)
            begun = self._under_way[tablet.row] = tablet.flushes.take_flush_id()
        try:
            self._compact(tablet, begun)
        finally:
            with self._lock:
                del self._under_way[tablet.row]

    def _compact(self, tablet: ServedTablet, begun: int) -> None:
        self._flusher.flush(tablet)
        groups = sorted({ref.group for ref in tablet.data.segments})
        for group in groups if len(tablet.data.segments) > INPUTS_MAX else ():
            while len(inputs := of_group(tablet, group)) > max(1, INPUTS_MAX // len(groups)):
                self._merge(tablet, smallest(inputs, INPUTS_MAX), tablet.flushes.compacted, forget=False)
        if tablet.data.segments:
            self._merge(tablet, tablet.data.segments, begun, forget=True)
        tablet.flushes.compacted_at(begun)

    def compact_due(self, tablet: ServedTablet) -> None:
        """Merge what is due by the sizes of segments; little while flush follows flush. Raises TransientError."""
        filling = self._flusher.fills(tablet)
        for merge in due_merges(tablet.data.segments, tablet.data.properties, filling=filling):
            inputs: Sequence[SegmentRef] = merge.inputs
            if merge.whole_group:
                self._flusher.flush(tablet)
                inputs = of_group(tablet, inputs[0].group)
            self._merge(tablet, inputs[:INPUTS_MAX], tablet.flushes.compacted, forget=len(inputs) <= INPUTS_MAX)

    def _merge(self, tablet: ServedTablet, inputs: Sequence[SegmentRef], compacted: int, *, forget: bool) -> None:
        uris = {ref.uri for ref in inputs}
        now_ms = self._age_clock.wall_ms()
        try:
            written = tablet.data.write_merged(
                uris, first_flush_id(tablet.serial), now_ms, forget=forget, go_on=lambda: self._check(tablet)
            )
        except OSError as error:
            raise unavailable(f"segments of tablet {tablet.extent} can't be merged", error) from error
        self._install(tablet, uris, written, compacted)
        self._look_ns.pop(tablet, None)
        self.merges_done += 1
        LOG.info(
            "tablet %s: %d segments of %d records became %d of %d",
            tablet.extent,
            len(inputs),
            sum(ref.records for ref in inputs),
            len(written),
            sum(ref.records for ref in written),
        )

    def _check(self, tablet: ServedTablet) -> None:
        """Raise NotServingError when nobody waits for a merge any more."""
        if self._thread.closing.is_set() or not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server")

    def _install(self, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """One row put, behind every state that was put before; then readers use what was written. Raises
        TransientError, nothing is left then; ends the process when nobody can know whether the books have it.
        """
        with tablet.flushes.lock:
            try:
                if not self._registry.holds(tablet):
                    raise NotServingError(f"tablet {tablet.extent} has left this server")
                self._flusher.complete(tablet)
            except BookkeeperError:
                discard(written)
                raise
            flush_id = tablet.flushes.take_flush_id()
            new = [replace(ref, flush_id=flush_id) for ref in written]
            left = [ref for ref in tablet.data.segments if ref.uri not in inputs]
            state = tablet_segments.merged_state(tablet.flushes.state, flush_id, [*left, *new], compacted)
            put = segments_put(tablet.row, state, new)
            check_puts([put], flush_id)  # what no store takes is this tablet's problem: nothing was written
            self._put(put, flush_id)
            tablet.segments_replaced(inputs, new, state)

    def _put(self, put: RowPut, flush_id: int) -> None:
        try:
            self._persistence.retry("a compaction", lambda: self._metadata.put([put], flush_id))
        except BookkeeperError as error:
            self._die(f"the state of a tablet behind a compaction is not known: {error}")
            raise

    # ---- dead cells

    def clear(self, tablet: ServedTablet) -> bool:
        """Mark the files of cells that do not count and delete these cells; tells whether none is left that may be
        deleted. Files that a scan still reads are left for later. Raises TransientError.
        """
        row = self._metadata.get(tablet.row, SEGMENT_FAMILIES)
        if tablet_segments.is_left_by_others(row, tablet.serial, {ref.uri for ref in tablet.data.segments}):
            self._install(tablet, set(), (), tablet.flushes.compacted)
            row = self._metadata.get(tablet.row, SEGMENT_FAMILIES)
        dead = dead_segments(row, tablet.serial)
        if dead is None:
            return True
        if tablet.data.is_read(dead.uris):
            return False
        self._persistence.check()
        self._metadata.put(dead.marks(), keys.ONCE_RANK)
        self._persistence.check()
        self._metadata.delete(dead.cells, dead.rank)
        return True

    # ---- the thread

    def start(self) -> None:
        """Begin to merge what is due."""
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread; the merge under way is given up."""
        self._thread.close()

    def run_once(self) -> None:
        """One look at each tablet: those first that somebody asked for."""
        tablets = [tablet for tablet in self._registry.all() if tablet.accepting]
        with self._lock:
            asked = self._asked & {tablet.row for tablet in tablets}
            self._asked &= asked
        here = set(tablets)
        self._look_ns = {tablet: at for tablet, at in self._look_ns.items() if tablet in here}
        for tablet in sorted(tablets, key=lambda tablet: tablet.row not in asked):
            if self._thread.closing.is_set():
                return
            if self._not_before_ns.get(tablet.row, 0) <= self._clock.boot_ns():
                self._work(tablet, tablet.row in asked)

    def _compact_asked(self, tablet: ServedTablet) -> None:
        try:
            self.compact(tablet)
        except BaseException:
            with self._lock:
                self._asked.add(tablet.row)
            raise

    def _work_on(self, tablet: ServedTablet, is_asked: bool) -> None:
        if is_asked:
            self._compact_asked(tablet)
        self.compact_due(tablet)
        if self._look_ns.get(tablet, 0) <= self._clock.boot_ns() and self.clear(tablet):
            self._look_ns[tablet] = self._clock.boot_ns() + LOOK_INTERVAL_MS * 1_000_000

    def _work(self, tablet: ServedTablet, is_asked: bool) -> None:
        try:
            with contained(tablet.extent, COMPACTION):
                self._work_on(tablet, is_asked)
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
            self._not_before_ns[tablet.row] = self._clock.boot_ns() + FAILED_AGAIN_MS * 1_000_000
