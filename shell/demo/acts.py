"""The demo from curtain to verdict.

Arrives: a plan and an empty directory. Leaves: True when each table equals, cell by cell, what the input implies.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.errors import UnavailableError
from bookkeeper.model import LocalityGroup
from bookkeeper.replay.journal import read_journal
from bookkeeper.rpc.contract.messages import TargetStatus
from shell.demo.background import Background
from shell.demo.demo_report import Ending, print_report
from shell.demo.lag import PAUSE_MS, LagProbe
from shell.demo.load import load
from shell.demo.outages import Outage, Outages
from shell.demo.screen import Screen
from shell.demo.stage import Side, Stage, running_stage
from shell.demo.tally import sum_up
from shell.demo.verdict import Comparison, compare
from shell.demo.workload import GROUPS, CellKey, Operation, expected_cells, load_airports, operations

TABLE = "airports"
SPLITS = (b"F", b"L", b"S")
"""Four tablets: two tservers hold two each."""

LOAD_LINES = 2
WATCH_MS = 200
"""How often to look how much is still to be shipped."""

FIRST_ROW_LIMIT_S = 180.0
"""Spark's start included."""

RETURN_LIMIT_S = 60.0
WAIT_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: ``rows`` None means every airport there is."""

    rows: int | None
    batch_rows: int
    seed: int
    metadata: str


@dataclass(slots=True)
class Behind:
    """Records that are still to be shipped, when last looked at."""

    records: int = 0

    def look(self, side: Side) -> None:
        """Look again."""
        self.records = sum(status.lag_records for status in side.client.replication.status(TABLE))


def run_demo(directory: Path, plan: Plan, screen: Screen, clock: Clock) -> bool:
    """Run it all; raises BookkeeperError when something does not work at all."""
    airports = load_airports()
    if plan.rows is not None:
        airports = {
            code: airports[code] for code in sorted(random.Random(plan.seed).sample(sorted(airports), plan.rows))
        }
    writes = operations(airports, plan.seed)
    cells = sum(len(operation.changes) for operation in writes)
    screen.say(f"input: {len(airports):,} airports; {len(writes):,} mutations of rows, {cells:,} of cells")
    with running_stage(directory, plan.metadata, screen) as stage:
        connect(stage, screen)
        west, behind = stage.west, Behind()
        with west.client.writer(TABLE) as writer:
            probe = LagProbe(writer, stage.east.client, TABLE, random.Random(plan.seed), clock)
            wait_for_first_row(probe, screen)
            ready_s = screen.elapsed_s()
            watch = Background("watch", lambda: behind.look(west), WATCH_MS, clock)
            with watch, Background("lag", probe.send_one, PAUSE_MS, clock):
                load_under_fire(stage, writes, plan.batch_rows, behind, screen, clock)
                loaded_s = screen.elapsed_s()
            wait_for_zero_lag(west, stage.east.name, screen)
            drained_s = screen.elapsed_s()
        expected = expected_cells([*writes, *probe.operations])
        verdicts = {side.name: check(side, expected, screen) for side in (west, stage.east)}
        compared_s = screen.elapsed_s()
        screen.say("stopping both clusters")
    written = cells + sum(len(operation.changes) for operation in probe.operations)
    totals = sum_up(read_journal(west.process.settings))
    times_s = (ready_s, loaded_s, drained_s, compared_s)
    print_report(screen, Ending(verdicts, totals, written, probe.samples_ms, times_s))
    return all(verdict.equal for verdict in verdicts.values())


def connect(stage: Stage, screen: Screen) -> None:
    """The table on both clusters, and replication of all its groups from west to east."""
    groups = [LocalityGroup(name, tuple(sorted(families))) for name, families in GROUPS.items()]
    for side in (stage.west, stage.east):
        table = side.client.tables.create(TABLE, splits=SPLITS, groups=groups)
        holders = {location.address for location in side.client.tables.locate(table.table_id)}
        tablets = f"{len(SPLITS) + 1} tablets on {len(holders)} tservers"
        screen.say(f"{side.name}: createtable {TABLE}: {tablets}, locality groups {', '.join(GROUPS)}")
    replication, east = stage.west.client.replication, stage.east
    peer = replication.define_cluster(east.name, east.quorum, stage.secret_file(TABLE))
    screen.say(f"west: definecluster {east.name} {east.quorum}   (instance {peer.instance_id})")
    replication.enable(TABLE, east.name)
    screen.say(f"west: enablereplication -t {TABLE} --all-loc-groups {east.name}")


def wait_for_first_row(probe: LagProbe, screen: Screen) -> None:
    """Return when one row went all the way: Spark starts when there is something to ship."""
    began_s = screen.elapsed_s()
    with screen.waiting("the first row to ship starts Spark"):
        probe.send_one(FIRST_ROW_LIMIT_S)
    if not probe.samples_ms:
        raise UnavailableError("the first row did not reach the other cluster; see logs/replay.log of the first one")
    probe.samples_ms.clear()
    screen.say(f"the first row is on east after {screen.elapsed_s() - began_s:.1f} s; Spark is warm")


def load_under_fire(
    stage: Stage, writes: Sequence[Operation], batch_rows: int, behind: Behind, screen: Screen, clock: Clock
) -> None:
    """Write everything while a west tserver, the west master and an east tserver are killed."""
    west, east = stage.west.process, stage.east.process
    plan = [Outage(0.2, west, "tserver1"), Outage(0.45, west, "master"), Outage(0.7, east, "tserver2")]
    outages = Outages(plan, screen.say, clock)
    with screen.phase("load", len(writes), LOAD_LINES) as phase:

        def progress(done: int) -> None:
            outages.step(done / len(writes))
            phase.update(done, f"{behind.records:,} records to be shipped")

        load(stage.west.client, TABLE, writes, batch_rows, progress)
        west.wait_until(lambda: outages.step(1.0), "process after the last kill", RETURN_LIMIT_S)
    screen.say(f"loaded: {len(writes):,} mutations of rows in batches of {batch_rows}, each acknowledged as synced")


def wait_for_zero_lag(west: Side, peer: str, screen: Screen) -> None:
    """Return when everything written so far is on the peer; raises UnavailableError when it is not in time."""
    most = 0
    with screen.phase("replication wait", 1, plain_lines=0) as phase:

        def progress(left: Sequence[TargetStatus]) -> None:
            nonlocal most
            records = sum(status.lag_records for status in left)
            most = max(most, records)
            phase.update(most - records, "records", most or 1)

        left = west.client.replication.wait(TABLE, peer, timeout_ms=WAIT_LIMIT_S * 1000, progress=progress)
    if left:
        reasons = {status.last_error for status in left if status.last_error}
        why = "; ".join(sorted(reasons)) or "no error is known"
        raise UnavailableError(f"{len(left)} files are not replicated after {WAIT_LIMIT_S:.0f} s: {why}")
    screen.say(f"west: replication wait {TABLE}: {peer} has the {most:,} records that it lacked, nothing is left")


def check(side: Side, expected: dict[CellKey, bytes], screen: Screen) -> Comparison:
    """Compare one table with the expectation."""
    with screen.phase(f"compare {side.name}", len(expected)) as phase:
        return compare(expected, phase.watch(side.client.scan(TABLE)))
