"""The run of the demo, from two empty clusters to the comparison of every cell with the input."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import UnavailableError
from bookkeeper.model import LocalityGroup
from bookkeeper.replay.journal import read_journal
from bookkeeper.rpc.contract.messages import TargetStatus
from shell.demo.background import Background
from shell.demo.comparison import Comparison, compare
from shell.demo.demo_clusters import HOSTS, DemoCluster, DemoClusters, running_clusters
from shell.demo.demo_report import Measurements, print_report
from shell.demo.lag import PAUSE_MS, LagProbe
from shell.demo.load import load
from shell.demo.lost_hosts import LostHost, LostHosts
from shell.demo.outages import Outage, Outages
from shell.demo.screen import Screen
from shell.demo.shipped_totals import totals_of
from shell.demo.workload import GROUPS, CellKey, Operation, expected_cells, load_airports, operations

TABLE = "airports"
SPLITS = (b"F", b"L", b"S")
"""Four tablets."""

COPIED = "copied"
"""The table of the third act: a replica of each tablet on each host."""

COPIED_PROPERTIES = {"table.replicas": str(HOSTS), "table.flush.memtable_bytes": "65536"}
COPIED_SHARE = 5
"""One of so many mutations is written to it, too."""

LOAD_LINES = 2
WATCH_MS = 200
"""Pause between two reads of the backlog."""

FIRST_ROW_LIMIT_S = 180.0
"""Limit for the first row; it includes Spark's start."""

RETURN_LIMIT_S = 60.0
WAIT_LIMIT_S = 120.0


class Plan(Struct, frozen=True):
    """Parameters of a run; ``rows`` None = all airports."""

    rows: int | None
    batch_rows: int
    seed: int
    metadata: str


class Backlog(Struct):
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
            wait_for_zero_lag(west, TABLE, clusters.east.name, screen)
            drained_s = screen.elapsed_s()
        expected = expected_cells([*writes, *probe.operations])
        sides = (west, clusters.east)
        comparisons = {TABLE: {side.name: check(side, TABLE, expected, screen) for side in sides}}
        compared_s = screen.elapsed_s()
        copied = writes[: len(writes) // COPIED_SHARE]
        load_while_hosts_are_lost(clusters, copied, plan.batch_rows, screen)
        wait_for_zero_lag(west, COPIED, clusters.east.name, screen)
        expected = expected_cells(copied)
        comparisons[COPIED] = {side.name: check(side, COPIED, expected, screen) for side in sides}
        lost_s = screen.elapsed_s()
        screen.log("stopping both clusters")
    written = cells + sum(len(operation.changes) for operation in [*probe.operations, *copied])
    totals = totals_of(read_journal(west.process.settings))
    times_s = (ready_s, loaded_s, drained_s, compared_s, lost_s)
    print_report(screen, Measurements(comparisons, totals, written, probe.samples_ms, times_s))
    return all(comparison.equal for sides in comparisons.values() for comparison in sides.values())


def connect(clusters: DemoClusters, screen: Screen) -> None:
    """Create the table on both clusters, and enable replication of all its groups from west to east."""
    create(clusters, TABLE, {}, screen)
    replication, east = clusters.west.client.replication, clusters.east
    peer = replication.define_cluster(east.name, east.quorum, clusters.secret_file(TABLE, COPIED))
    screen.log(f"west: definecluster {east.name} {east.quorum}   (instance {peer.instance_id})")
    enable(clusters, TABLE, screen)


def create(clusters: DemoClusters, name: str, properties: Mapping[str, str], screen: Screen) -> None:
    """Create a table on both clusters."""
    groups = [LocalityGroup(group, tuple(sorted(families))) for group, families in GROUPS.items()]
    for side in (clusters.west, clusters.east):
        table = side.client.tables.create(name, SPLITS, groups, properties)
        tservers = {location.address for location in side.client.tables.locate(table.table_id)}
        copies = f", {replicas} replicas of each" if (replicas := properties.get("table.replicas")) else ""
        tablets = f"{len(SPLITS) + 1} tablets on {len(tservers)} tservers{copies}"
        screen.log(f"{side.name}: createtable {name}: {tablets}, locality groups {', '.join(GROUPS)}")


def enable(clusters: DemoClusters, table: str, screen: Screen) -> None:
    """Replicate all groups of a table from west to east."""
    clusters.west.client.replication.enable(table, clusters.east.name)
    screen.log(f"west: enablereplication -t {table} --all-loc-groups {clusters.east.name}")


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
    plan = [Outage(0.2, west, "tserver1"), Outage(0.45, west, "master"), Outage(0.7, east, "host2.tserver1")]
    outages = Outages(plan, screen.log, clock)
    with screen.phase("load", len(writes), LOAD_LINES) as phase:

        def progress(done: int) -> None:
            outages.step(done / len(writes))
            phase.update(done, f"{backlog.records:,} records to be shipped")

        load(clusters.west.client, TABLE, writes, batch_rows, progress)
        west.wait_until(lambda: outages.step(1.0), "process after the last kill", RETURN_LIMIT_S)
    screen.log(f"loaded: {len(writes):,} mutations of rows in batches of {batch_rows}, each acknowledged as synced")


def load_while_hosts_are_lost(
    clusters: DemoClusters, writes: Sequence[Operation], batch_rows: int, screen: Screen
) -> None:
    """Write to a table with a replica on each host, while each cluster loses a host and the host's directory."""
    for side in (clusters.west, clusters.east):
        side.process.wait_ready(RETURN_LIMIT_S)  # a killed tserver was started again, and may not serve yet
    create(clusters, COPIED, COPIED_PROPERTIES, screen)
    enable(clusters, COPIED, screen)
    losses = [LostHost(0.4, clusters.west.process, "host2"), LostHost(0.7, clusters.east.process, "host3")]
    lost = LostHosts(losses, screen.log)
    with screen.phase("load", len(writes)) as phase:

        def progress(done: int) -> None:
            lost.step(done / len(writes))
            phase.update(done, "")

        load(clusters.west.client, COPIED, writes, batch_rows, progress)


def wait_for_zero_lag(west: DemoCluster, table: str, peer: str, screen: Screen) -> None:
    """Return when the peer has all records written so far. Raises UnavailableError if it is late."""
    most = 0
    with screen.phase("replication wait", 1, plain_lines=0) as phase:

        def progress(left: Sequence[TargetStatus]) -> None:
            nonlocal most
            records = sum(status.lag_records for status in left)
            most = max(most, records)
            phase.update(most - records, "records", most or 1)

        left = west.client.replication.wait(table, peer, timeout_ms=WAIT_LIMIT_S * 1000, progress=progress)
    if left:
        reasons = {status.last_error for status in left if status.last_error}
        why = "; ".join(sorted(reasons)) or "no error is reported"
        raise UnavailableError(f"{len(left)} files are not replicated after {WAIT_LIMIT_S:.0f} s: {why}")
    screen.log(f"west: replication wait {table}: {peer} has the {most:,} records that it lacked, nothing is left")


def check(side: DemoCluster, table: str, expected: dict[CellKey, bytes], screen: Screen) -> Comparison:
    """Compare a table of one cluster with the expected cells."""
    with screen.phase(f"compare {side.name}", len(expected)) as phase:
        return compare(expected, phase.watch(side.client.scan(table)))
