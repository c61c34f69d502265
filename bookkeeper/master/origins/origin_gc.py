"""The collector's part in rule R22: records the recipients of a log before its deletion, and starts the end of logs.

Arrives: logs before their deletion, ``~root_`` rows, the clock. Leaves: rows; operations that ask whether logs are
over, or drop logs without news for ``tserver.paths_apart_ms``. Runs in the collector's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping

from msgspec import Struct, field

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.origins.end_origins import END_KIND, forget_roots_args
from bookkeeper.master.origins.origin_books import (
    RootRow,
    instances_of,
    is_forgotten_by_time,
    is_here,
    parse_root,
    recipient_puts,
)
from bookkeeper.master.origins.origin_index import OriginMemory
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys
from bookkeeper.model import TargetKey
from bookkeeper.origins import RootLog

LOG = logging.getLogger(__name__)

LOGS_PER_OPERATION_MAX = 200
"""Most logs in one operation; later runs take the next ones."""


class OriginGc(Struct):
    """The ``~root_`` rows of one reign. ``age_clock``: a clock without forward jumps, because dropping a log by time
    can't be undone; ``forgotten`` counts those logs.
    """

    stores: ReignStores
    clock: Clock
    age_clock: SteadyWall
    fate: FateEngine
    memory: OriginMemory
    rows: dict[RootLog, RootRow] = field(default_factory=dict)
    forgotten: int = 0
    _last_requested: RootLog | None = None

    def read_rows(self) -> None:
        """Read the rows. Raises TransientError, CorruptionError."""
        start, stop = keys.section(keys.ROOT_PREFIX)
        self.rows = {row.log: row for row in map(parse_root, self.stores.table.scan(start, stop, ("recv",)))}

    def record_recipients(self, name: str, finished: Collection[TargetKey]) -> None:
        """Put the recipients of a log's records, before its deletion or when it is missing."""
        own, config = RootLog(self.memory.own_instance_id, name), self.stores.config()
        foreign = [log for log, row in self.rows.items() if not self._is_ours(row) and is_here(row)]
        origin_index = self.memory.index.of([name])[name] if foreign and finished else ()
        puts = recipient_puts(
            own, foreign if origin_index is None else origin_index, instances_of(finished, config), foreign
        )
        if puts:
            self.stores.reign.check()
            self.stores.table.put(puts, self.clock.wall_ms())

    def request_termination(self, present: Container[str]) -> None:
        """Ask about deleted logs of this cluster, some at a time; drop others' logs without news."""
        self.memory.index.retain(present)
        own = sorted(r.log for r in self.rows.values() if self._is_ours(r) and r.log.file not in present)
        if own and not any(running.op.type == END_KIND and not running.ended for running in self.fate.pending()):
            later = [log for log in own if self._last_requested is None or log > self._last_requested]
            chosen = (later or own)[:LOGS_PER_OPERATION_MAX]
            self._last_requested = chosen[-1]
            self.fate.submit(END_KIND, forget_roots_args(chosen))
        self._forget_by_time()

    def _is_ours(self, row: RootRow) -> bool:
        return row.log.instance_id == self.memory.own_instance_id

    def _forget_by_time(self) -> None:
        now_ms = self.age_clock.wall_ms()
        silent = [
            row.log for row in self.rows.values() if is_forgotten_by_time(row, now_ms, self.memory.paths_apart_ms)
        ]
        due = [log for log in silent if not self._is_open(log)][:LOGS_PER_OPERATION_MAX]
        if due:
            self.forgotten += len(due)
            LOG.warning(
                "%d logs, among them %s of instance %s, had no records and no question for tserver.paths_apart_ms: "
                "their origins are dropped, and later records of them may be stored twice",
                len(due), due[0].file, due[0].instance_id,
            )  # fmt: skip
            self.fate.submit("forget_roots", {**forget_roots_args(due), "unheard": True})

    def _is_open(self, log: RootLog) -> bool:
        """Whether the log's own stream is open: its cluster will end it."""
        row = self.stores.table.get(keys.recv_row(log.instance_id, log.file), ("recv",))
        return row is not None and bool(row.cells)


def facts(origin_gc: OriginGc) -> Mapping[str, str]:
    """Facts for the status, by name."""
    ours = sum(log.instance_id == origin_gc.memory.own_instance_id for log in origin_gc.rows)
    return {
        "logs_under_way_elsewhere": str(ours),
        "logs_remembered_of_others": str(len(origin_gc.rows) - ours),
        "logs_forgotten_by_time": str(origin_gc.forgotten),
    }
