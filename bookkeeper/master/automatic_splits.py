"""Splits tablets that have grown beyond `table.split.bytes`: the IO around the decisions of ``splits.due_splits``.

Arrives: the tablets that the latest cycle has read, the configuration. Leaves: the operation ``add_splits``, the
same one as of the command. A look reads the row of a tablet only if its segments have changed since the last look. Then
it asks the tservers of large tablets for a split row, and begins one operation for each table.

A leader keeps its measures in memory; the next one measures again. It survives a crash at any point: the operation is
in the books or was not begun, and a repeated split at a row changes nothing. A tablet rests after a failure, and after
its tserver found no split row until its segments or its borders change; operators see the reason with the tablet.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import BookkeeperError, CorruptionError, NotServingError
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateEngine, Running
from bookkeeper.master.index.shipments import retry_after_ns
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.operations.split_merge import SPLIT_KIND, add_splits_args
from bookkeeper.master.operations.table_lifecycle import SPLIT_BYTES_MAX
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.splits.due_splits import (
    LargeTablet,
    Measured,
    TabletSize,
    counted_bytes,
    due_tablets,
    size_of_segments,
)
from bookkeeper.master.splits.split_rules import facts_of
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import SplitPoint

LOG = logging.getLogger(__name__)

READS_MAX = 1_000
"""Most rows that one look reads; the others follow in the next looks."""

RETRY_BASE_MS, RETRY_MAX_MS = 5_000, 600_000
WHOLE_REST_MS = 600_000
"""How long a tablet without a split row rests at least, also when its segments change."""

SEGMENT_FAMILIES = ("tablet", "segment")


class Limit(Struct, frozen=True):
    """The name of a table, and the bytes beyond which its tablets are split."""

    table: str
    split_bytes: int


class Rest(Struct, frozen=True):
    """The tablet with this extent rests until a time (boot clock), and while its flush rank is ``flush_rank`` (None:
    any). A merged tablet has the row of a part, and does not rest for it.
    """

    extent: Extent
    until_ns: int
    flush_rank: int | None
    failures: int


class AutomaticSplits(Struct):
    """The automatic splits of one reign. One thread calls :meth:`run_once`; any thread reads ``problems``."""

    stores: ReignStores
    tservers: TServers
    fate: FateEngine
    clock: Clock
    rng: random.Random
    problems: dict[bytes, str] = field(default_factory=dict)
    """Rows of large tablets that are not split for now, and the reason."""
    begun: int = 0
    """Tablets whose split was begun in this reign."""
    _sizes: dict[bytes, tuple[int, TabletSize]] = field(default_factory=dict)
    """Row to flush rank and size, the oldest read first."""
    _measured: dict[bytes, Measured] = field(default_factory=dict)
    _rests: dict[bytes, Rest] = field(default_factory=dict)
    _under_way: list[tuple[Running, tuple[LargeTablet, ...]]] = field(default_factory=list)
    """Operations with the tablets that they split."""
    _limits: Mapping[str, Limit] = field(default_factory=dict)
    _generation: int = -1

    def run_once(self, tablets: Collection[TabletView]) -> None:
        """One look at the tablets. Raises TransientError, LeaseLostError."""
        if self.stores.coordination.generation() != self._generation:
            config = self.stores.config()
            self._limits, self._generation = limits_of(config), config.generation
        watched = {view.row: view for view in tablets if view.extent.table_id in self._limits}
        self._settle()
        self._read_sizes(watched)
        large = list(self._large(watched))
        self._forget_others(watched, {tablet.row for tablet in large})
        locks = {lock for running in self.fate.pending() if not running.ended for lock in running.locks}
        splits: dict[str, list[tuple[LargeTablet, bytes]]] = defaultdict(list)
        for tablet in due_tablets(large, locks):
            row = self._split_row(watched[tablet.row], tablet)
            if row is not None:
                splits[tablet.table].append((tablet, row))
        for table, chosen in sorted(splits.items()):
            self._begin(table, chosen)

    # ---- sizes

    def _read_sizes(self, watched: Mapping[bytes, TabletView]) -> None:
        unread = (row for row in watched if row not in self._sizes)
        changed = (row for row, (rank, _) in self._sizes.items() if row in watched and watched[row].flush_rank > rank)
        for key in list(islice(chain(unread, changed), READS_MAX)):
            row = self.stores.table.get(key, SEGMENT_FAMILIES)
            self._sizes.pop(key, None)
            if key not in self._rests:
                self.problems.pop(key, None)
            if row is None or not keys.is_tablet(row):
                continue  # it was merged or deleted meanwhile
            flush = row.cells.get(keys.FLUSH)
            try:
                size = size_of_segments(facts_of(row))
            except CorruptionError as error:
                self._note(key, error.message)
                size = TabletSize(watched[key].extent, 0)
            self._sizes[key] = 0 if flush is None else flush.rank, size

    def _large(self, watched: Mapping[bytes, TabletView]) -> Iterator[LargeTablet]:
        now_ns = self.clock.boot_ns()
        for row, (_, size) in self._sizes.items():
            view = watched.get(row)
            limit = None if view is None else self._limits[view.extent.table_id]
            if view is None or limit is None or size.whole_bytes + size.shared_bytes <= limit.split_bytes:
                continue
            counted = counted_bytes(size, self._measured.get(row))
            if counted > limit.split_bytes:
                rest = self._rest_of(view)
                rests = rest is not None and (now_ns < rest.until_ns or rest.flush_rank == view.flush_rank)
                yield LargeTablet(row, view.extent, limit.table, counted, rests)

    def _rest_of(self, view: TabletView) -> Rest | None:
        rest = self._rests.get(view.row)
        return None if rest is None or rest.extent != view.extent else rest

    def _forget_others(self, watched: Mapping[bytes, TabletView], large: Collection[bytes]) -> None:
        """Forget tablets that are gone, and the problems of those that are not too large any more."""
        for known in (self._sizes, self._measured, self.problems):
            for row in [row for row in known if row not in watched]:
                del known[row]
        for row in [row for row in self._rests if row not in large]:
            del self._rests[row]
            self.problems.pop(row, None)

    # ---- one tablet

    def _split_row(self, view: TabletView, tablet: LargeTablet) -> bytes | None:
        """Ask the tablet's tserver for a split row; None if the tablet is not split now."""
        try:
            point = self._ask(view)
        except NotServingError:
            return None  # it moves, or its borders have changed: the next look knows its place
        except BookkeeperError as error:
            self._fail(view.row, view.extent, error)
            return None
        if point is None:
            return None
        _, size = self._sizes[view.row]
        self._measured[view.row] = Measured(size.extent, size.shared_files, point.shared_bytes)
        if counted_bytes(size, self._measured[view.row]) <= self._limits[view.extent.table_id].split_bytes:
            return None
        if point.row is None:
            self._rests[view.row] = Rest(
                view.extent, self.clock.boot_ns() + WHOLE_REST_MS * 1_000_000, view.flush_rank, 0
            )
            self._note(view.row, f"{point.reason}; set table.split.bytes above {tablet.counted_bytes}, or to 0")
        return point.row

    def _ask(self, view: TabletView) -> SplitPoint | None:
        address = self.tservers.live().get(view.session or "")
        return None if address is None else self.tservers.at(address).split_point(view.extent, SPLIT_BYTES_MAX)

    def _begin(self, table: str, chosen: Sequence[tuple[LargeTablet, bytes]]) -> None:
        LOG.info(
            "table %s: tablets are split at table.split.bytes: %s",
            table,
            ", ".join(f"{tablet.extent} of {tablet.counted_bytes} bytes at {row!r}" for tablet, row in chosen),
        )
        running = self.fate.submit(SPLIT_KIND, add_splits_args(table, [row for _, row in chosen]))
        self._under_way.append((running, tuple(tablet for tablet, _ in chosen)))
        self.begun += len(chosen)

    # ---- results

    def _settle(self) -> None:
        """Note the results of operations that have ended."""
        ended = [(running, split) for running, split in self._under_way if running.ended]
        self._under_way = [(running, split) for running, split in self._under_way if not running.ended]
        for running, split in ended:
            for tablet in split:
                if running.error is not None:
                    self._fail(tablet.row, tablet.extent, running.error)
                else:
                    self._rests.pop(tablet.row, None)
                    self.problems.pop(tablet.row, None)

    def _fail(self, row: bytes, extent: Extent, error: BookkeeperError) -> None:
        before = self._rests.get(row)
        failures = 1 if before is None or before.extent != extent else before.failures + 1
        wait_ns = retry_after_ns(failures, RETRY_BASE_MS, RETRY_MAX_MS, self.rng)
        self._rests[row] = Rest(extent, self.clock.boot_ns() + wait_ns, None, failures)
        self._note(row, f"{error.message}; the next try follows in {wait_ns // 1_000_000_000} s")

    def _note(self, row: bytes, reason: str) -> None:
        self.problems[row] = f"it is not split at table.split.bytes: {reason}"
        LOG.warning("tablet %r: %s", row, self.problems[row])


def limits_of(config: ClusterConfig) -> dict[str, Limit]:
    """The limits of the tables that are online and have one, by table id."""
    online = [table for table in config.tables.values() if table.state == "online"]
    properties = {table.table_id: (table.name, parse_properties(table.properties)) for table in online}
    return {
        table_id: Limit(name, values.split_bytes)
        for table_id, (name, values) in properties.items()
        if values.split_bytes
    }
