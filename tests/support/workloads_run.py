"""Writes workloads while processes die, and compares both clusters afterwards.

Arrives: clients and workloads. Leaves: a count of acknowledged batches for each; differences as lines of text, none
when a table holds exactly what its acknowledged batches imply.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from bookkeeper.client import Client
from bookkeeper.clock import Clock
from bookkeeper.errors import TransientError, UnavailableError
from tests.support.workloads import CellKey, Expectation, Workload, mutation_of, undefined_pointers

LOG = logging.getLogger(__name__)

DIFFERENCES_MAX = 8
BATCH_TRIES_MAX = 5
"""A writer gives up after its deadline of minutes; so many writers are tried for one batch."""

Found = Mapping[CellKey, tuple[int, bytes]]
"""Cells with timestamp (ms) and value."""


@dataclass(slots=True)
class Loader:
    """A thread that writes batch after batch until it is told to stop; it may be started again and goes on then."""

    client: Client
    workload: Workload
    clock: Clock
    pause_ms: float = 25.0
    acknowledged: int = 0
    """Batches that were acknowledged: exactly these count."""
    retries: int = 0
    """Writers that gave up; what they left in doubt was sent again."""
    in_doubt: bool = False
    """Batch number ``acknowledged`` was sent and not acknowledged."""
    imported: dict[CellKey, bytes] = field(default_factory=dict)
    """Cells that came from imported files; no batch changes them."""
    expectation: Expectation = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stop: threading.Event = field(default_factory=threading.Event)
    _executor: ThreadPoolExecutor | None = None
    _running: Future[None] | None = None

    def __post_init__(self) -> None:
        self.expectation = Expectation(self.workload)

    def start(self) -> None:
        """Go on with the next batch."""
        self._stop.clear()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"load-{self.workload.table}")
        self._running = self._executor.submit(self._run)

    def stop(self) -> None:
        """End when the batch that is on its way is acknowledged; raises what ended the thread, if anything did."""
        self._stop.set()
        running, self._running = self._running, None
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        if running is not None:
            running.result()

    def wait_acknowledged(self, count: int, limit_s: float) -> None:
        """Return when ``count`` batches are acknowledged; raises what ended the thread, UnavailableError when late."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self.acknowledged >= count or self._ended(), limit_s)
        if self._running is not None and self._running.done():
            self._running.result()
        if not reached:
            raise UnavailableError(f"table {self.workload.table}: {self.acknowledged} batches after {limit_s} s")

    def _ended(self) -> bool:
        return self._running is not None and self._running.done()

    def _run(self) -> None:
        try:
            failures = 0
            while not self._write_until_stopped():
                failures, self.retries = failures + 1, self.retries + 1
                if failures >= BATCH_TRIES_MAX:
                    raise UnavailableError(f"batch {self.acknowledged} of table {self.workload.table} can't be written")
        finally:
            with self._changed:
                self._changed.notify_all()

    def _write_until_stopped(self) -> bool:
        """Use one writer; False when it gave up. A batch in doubt is sent again before anything else, even now that
        the thread is to end: it may be there in part.
        """
        in_doubt = self.in_doubt
        try:
            with self.client.writer(self.workload.table) as writer:
                while in_doubt or not self._stop.is_set():
                    self.in_doubt = True
                    writer.add_all(map(mutation_of, self.workload.batch(self.acknowledged)))
                    writer.flush()
                    with self._changed:
                        self.in_doubt = in_doubt = False
                        self.acknowledged += 1
                        self._changed.notify_all()
                    self.clock.wait(self._stop, self.pause_ms)
        except TransientError as error:
            LOG.warning("a writer of table %s gave up: %s", self.workload.table, error)
            return False
        return True


def cells_in(shown: pa.Table, table: str) -> dict[CellKey, tuple[int, bytes]]:
    """Everything a scan has shown; raises AssertionError when it showed a cell twice, or cells out of order."""
    rows = shown.column("row").to_pylist()
    assert all(before <= row for before, row in pairwise(rows)), f"table {table} shows rows out of order"
    keys = zip(rows, *(shown.column(name).to_pylist() for name in ("family", "qualifier")), strict=True)
    values = zip(*(shown.column(name).to_pylist() for name in ("timestamp", "value")), strict=True)
    found = dict(zip(keys, values, strict=True))
    assert len(found) == len(rows), f"table {table} shows a cell twice"
    return found


def differences(expected: Mapping[CellKey, bytes], found: Found, where: str) -> list[str]:
    """Lost, unexpected and wrong cells; a bounded number of lines."""
    lines = []
    wrong = {key for key, wanted in expected.items() if (there := found.get(key)) is None or there[1] != wanted}
    for key in sorted(wrong | (found.keys() - expected.keys())):
        wanted, there = expected.get(key), found.get(key)
        if there is None:
            lines.append(f"{where}: cell {key} is lost; it holds {wanted!r}")
        elif wanted is None:
            lines.append(f"{where}: cell {key} should not be there: {there}")
        else:
            lines.append(f"{where}: cell {key} holds {there}, not {wanted!r}")
    return _bounded(lines, where)


def replica_differences(west: Found, east: Found, table: str) -> list[str]:
    """Cells of the peer that are not those of the primary, timestamps included."""
    unequal = {key for key, cell in west.items() if east.get(key) != cell} | (east.keys() - west.keys())
    lines = [f"{table}: cell {key} is {west.get(key)} on west and {east.get(key)} on east" for key in sorted(unequal)]
    return _bounded(lines, table)


def check_workload(loader: Loader, west: Client, east: Client) -> list[str]:
    """Compare both clusters with what the acknowledged batches imply, and with each other."""
    workload = loader.workload
    expected = {**loader.expectation.after(loader.acknowledged), **loader.imported}
    on_west, on_east = (client.scan(workload.table).table() for client in (west, east))
    problems: list[str] = []
    if on_east.equals(on_west):
        found = {"west and east": cells_in(on_west, workload.table)}
    else:
        found = {"west": cells_in(on_west, workload.table), "east": cells_in(on_east, workload.table)}
        problems = replica_differences(found["west"], found["east"], workload.table)
    for name, cells in found.items():
        where = f"{name} {workload.table}"
        problems += differences(expected, cells, where)
        undefined = undefined_pointers({key: value for key, (_, value) in cells.items()})
        if undefined:
            problems.append(f"{where}: {len(undefined)} UNDEFINED rows, for example {undefined[0]!r}")
    return problems


def _bounded(lines: list[str], where: str) -> list[str]:
    if len(lines) <= DIFFERENCES_MAX:
        return lines
    return [*lines[:DIFFERENCES_MAX], f"{where}: and {len(lines) - DIFFERENCES_MAX} more differences"]
