"""The run of the demo, from two empty clusters to the comparison of every cell with the input."""

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
from shell.demo.comparison import Comparison, compare
from shell.demo.demo_clusters import DemoCluster, DemoClusters, running_clusters
from shell.demo.demo_report import Measurements, print_report
from shell.demo.lag import PAUSE_MS, LagProbe
from shell.demo.load import load
from shell.demo.outages import Outage, Outages
from shell.demo.screen import Screen
from shell.demo.shipped_totals import totals_of
from shell.demo.workload import GROUPS, CellKey, Operation, expected_cells, load_airports, operations

TABLE = "airports"
SPLITS = (b"F", b"L", b"S")
"""Four tablets, two for each tserver."""

LOAD_LINES = 2
WATCH_MS = 200
"""Pause between two reads of the backlog."""

FIRST_ROW_LIMIT_S = 180.0
"""Limit for the first row; it includes Spark's start."""

RETURN_LIMIT_S = 60.0
WAIT_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a run; ``rows`` None = all airports."""

    rows: int | None
    batch_rows: int
    seed: int
    metadata: str


@dataclass(slots=True)
class Backlog:
    """Records that wait for shipping, at the last read."""

    records: int = 0

    def read(self, side: DemoCluster) -> None:
        """Read the number from a cluster."""
        self.records = sum(status.lag_records for status in side.client.replication.status(TABLE))


def run_demo(directory: Path, plan: Plan, screen: Screen, clock: Clock) -> bool:
    """Run the demo in an empty directory; True if both tables equal the cells that the input implies.

    Raises BookkeeperError if a cluster does not start, or does not replicate in time.
    """
    airports = load_airports()
    if plan.rows is not None:
        airports = {
            code: airports[code] for code in sorted(random.Random(plan.seed).sample(sorted(airports), plan.rows))
        }
    writes = operations(airports, plan.seed)
    cells = sum(len(operation.changes) for operation in writes)
    screen.log(f"input: {len(airports):,} airports; {len(writes):,} mutations of rows, {cells:,} of cells")
    with running_clusters(directory, plan.metadata, screen) as clusters:
        connect(clusters, screen)
        west, backlog = clusters.west, Backlog()
        with west.client.writer(TABLE) as writer:
            probe = LagProbe(writer, clusters.east.client, TABLE, random.Random(plan.seed), clock)
            wait_for_first_row(probe, screen)
            ready_s = screen.elapsed_s()
            watch = Background("watch", lambda: backlog.read(west), WATCH_MS, clock)
            with watch, Background("lag", probe.send_one, PAUSE_MS, clock):
                load_under_fire(clusters, writes, plan.batch_rows, backlog, screen, clock)
                loaded_s = screen.elapsed_s()
            wait_for_zero_lag(west, clusters.east.name, screen)
            drained_s = screen.elapsed_s()
        expected = expected_cells([*writes, *probe.operations])
        comparisons = {side.name: check(side, expected, screen) for side in (west, clusters.east)}
        compared_s = screen.elapsed_s()
        screen.log("stopping both clusters")
    written = cells + sum(len(operation.changes) for operation in probe.operations)
    totals = totals_of(read_journal(west.process.settings))
    times_s = (ready_s, loaded_s, drained_s, compared_s)
    print_report(screen, Measurements(comparisons, totals, written, probe.samples_ms, times_s))
    return all(comparison.equal for comparison in comparisons.values())


def connect(clusters: DemoClusters, screen: Screen) -> None:
    """Create the table on both clusters, and enable replication of all its groups from west to east."""
    groups = [LocalityGroup(name, tuple(sorted(families))) for name, families in GROUPS.items()]
    for side in (clusters.west, clusters.east):
        table = side.client.tables.create(TABLE, splits=SPLITS, groups=groups)
        tservers = {location.address for location in side.client.tables.locate(table.table_id)}
        tablets = f"{len(SPLITS) + 1} tablets on {len(tservers)} tservers"
        screen.log(f"{side.name}: createtable {TABLE}: {tablets}, locality groups {', '.join(GROUPS)}")
    replication, east = clusters.west.client.replication, clusters.east
    peer = replication.define_cluster(east.name, east.quorum, clusters.secret_file(TABLE))
    screen.log(f"west: definecluster {east.name} {east.quorum}   (instance {peer.instance_id})")
    replication.enable(TABLE, east.name)
    screen.log(f"west: enablereplication -t {TABLE} --all-loc-groups {east.name}")


def wait_for_first_row(probe: LagProbe, screen: Screen) -> None:
    """Return when one row is on east; this first row starts Spark. Raises UnavailableError if it is late."""
    began_s = screen.elapsed_s()
    with screen.waiting("the first row to ship starts Spark"):
        probe.send_one(FIRST_ROW_LIMIT_S)
    if not probe.samples_ms:
        raise UnavailableError("the first row did not reach east in time; see logs/replay.log of west")
    probe.samples_ms.clear()
    screen.log(f"the first row is on east after {screen.elapsed_s() - began_s:.1f} s; Spark is warm")


def load_under_fire(
    clusters: DemoClusters, writes: Sequence[Operation], batch_rows: int, backlog: Backlog, screen: Screen, clock: Clock
) -> None:
    """Write all operations while a west tserver, the west master and an east tserver are killed."""
    west, east = clusters.west.process, clusters.east.process
    plan = [Outage(0.2, west, "tserver1"), Outage(0.45, west, "master"), Outage(0.7, east, "tserver2")]
    outages = Outages(plan, screen.log, clock)
    with screen.phase("load", len(writes), LOAD_LINES) as phase:

        def progress(done: int) -> None:
            outages.step(done / len(writes))
            phase.update(done, f"{backlog.records:,} records to be shipped")

        load(clusters.west.client, TABLE, writes, batch_rows, progress)
        west.wait_until(lambda: outages.step(1.0), "process after the last kill", RETURN_LIMIT_S)
    screen.log(f"loaded: {len(writes):,} mutations of rows in batches of {batch_rows}, each acknowledged as synced")


def wait_for_zero_lag(west: DemoCluster, peer: str, screen: Screen) -> None:
    """Return when the peer has all records written so far. Raises UnavailableError if it is late."""
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
        why = "; ".join(sorted(reasons)) or "no error is reported"
        raise UnavailableError(f"{len(left)} files are not replicated after {WAIT_LIMIT_S:.0f} s: {why}")
    screen.log(f"west: replication wait {TABLE}: {peer} has the {most:,} records that it lacked, nothing is left")


def check(side: DemoCluster, expected: dict[CellKey, bytes], screen: Screen) -> Comparison:
    """Compare the table of one cluster with the expected cells."""
    with screen.phase(f"compare {side.name}", len(expected)) as phase:
        return compare(expected, phase.watch(side.client.scan(TABLE)))
