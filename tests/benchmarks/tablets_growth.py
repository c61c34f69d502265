"""The master's cost of one new table and of one split beside up to 10,000 tablets; ``addsplits`` of many rows.

A master and a tserver run as processes of their own. CPU seconds are those of the whole master, of many operations; its
full cycles, which are linear in the tablets and come at an interval, are kept from falling into them. Reference: a bare
scan of the rows of all tablets, which is the least that a look at all of them takes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bookkeeper.client import Client
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys
from tests.benchmarks.figure import Figure
from tests.support.masters import MasterNode
from tests.support.tservers import Ground, Node, wait_until

TABLETS = (100, 1_000)
LARGE_TABLETS = (*TABLETS, 10_000)
OPERATIONS = 40
SPLITS = 2_000
SPLITS_S_MAX = 10.0
OPERATION_MS_MAX = 30.0
SELDOM: dict[str, object] = {"master.scan_interval_ms": 3_600_000, "master.gc_interval_ms": 3_600_000}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _create(client: Client, name: str, splits: list[bytes]) -> None:
    """The call may take longer than a client waits."""

    def is_made() -> bool:
        try:
            client.tables.create(name, splits)
        except UnavailableError:
            return False
        return True

    wait_until(is_made, f"table {name}", limit_s=300)


def _served(ground: Ground, tserver: Node, tablets: int) -> None:
    wait_until(
        lambda: len(ground.tserver(tserver).tablets().extents) == tablets, f"{tablets} tablets served", limit_s=600
    )


def _operation_cpu_s(master: MasterNode, operate: Callable[[int], None]) -> float:
    before = _cpu_s(master.process.pid)
    for number in range(OPERATIONS):
        operate(number)
    return (_cpu_s(master.process.pid) - before) / OPERATIONS


def _scan_s(ground: Ground) -> float:
    start = time.thread_time()
    deque(ground.metadata.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("tablet", "location")), 0)
    return time.thread_time() - start


def measure(directory: Path, tablets: int) -> dict[str, float]:
    """CPU seconds of the master for one new table and for one split of a table of so many tablets, and of a bare scan;
    seconds of an ``addsplits`` of many rows, and of a new table that has them from its beginning.
    """
    ground = Ground(directory, overrides=SELDOM)
    tserver = ground.process()
    master = MasterNode(ground.settings, directory / "master.log")
    try:
        wait_until(lambda: ground.coordination.leader() is not None, "a leader")
        with Client.connect(directory) as client:
            _create(client, "large", [b"%06d" % number for number in range(1, tablets)])
            _served(ground, tserver, tablets)
            found = {"scan": min(_scan_s(ground) for _ in range(5))}
            found["table"] = _operation_cpu_s(master, lambda number: _create(client, f"small{number}", []))
            rows = [b"%06dx" % (number * tablets // OPERATIONS) for number in range(OPERATIONS)]
            found["split"] = _operation_cpu_s(master, lambda number: client.tables.add_splits("large", [rows[number]]))
            many = [b"%06d" % number for number in range(SPLITS)]
            start = time.perf_counter()
            _create(client, "made", many)
            found["made"] = time.perf_counter() - start
            _create(client, "whole", [])
            start = time.perf_counter()
            client.tables.add_splits("whole", many)
            found["splits"] = time.perf_counter() - start
    finally:
        master.end()
        ground.close()
    return found


def run(large: bool = False) -> list[Figure]:
    """Each at several numbers of tablets."""
    figures: list[Figure] = []
    for tablets in LARGE_TABLETS if large else TABLETS:
        with tempfile.TemporaryDirectory() as name:
            figures += _figures(measure(Path(name) / "west", tablets), tablets)
    return figures


def _figures(found: dict[str, float], tablets: int) -> list[Figure]:
    operations = [
        Figure(
            name=f"master, {what} beside {tablets:,} tablets",
            value=found[key] * 1_000,
            unit="CPU ms",
            reference=found["scan"] * 1_000,
            reference_name="bare scan of all tablets' rows",
            reference_unit="CPU ms",
            ratio=found[key] / found["scan"],
            target=OPERATION_MS_MAX,
            lower_is_better=True,
            size=tablets,
        )
        for key, what in (("table", "a new table"), ("split", "a split"))
    ]
    splits = Figure(
        name=f"addsplits of {SPLITS:,} rows in one tablet, beside {tablets:,} tablets",
        value=found["splits"],
        unit="s",
        reference=found["made"],
        reference_name="a new table with these splits",
        reference_unit="s",
        ratio=found["splits"] / found["made"],
        target=SPLITS_S_MAX,
        lower_is_better=True,
        size=tablets,
    )
    return [*operations, splits]
