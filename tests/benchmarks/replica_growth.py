"""How replicated writes and reads grow: with hosts, with tablets, and with the replicas that answer.

Each cluster is one machine, so hosts share its cores: a ratio shows what more hosts cost, not what they would gain.
Writes count when they are acknowledged; each table's states go to all hosts meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import TransientError
from tests.benchmarks.figure import Figure
from tests.benchmarks.host_processes import cpu_seconds
from tests.support.cluster import Cluster

HOSTS, LARGE_HOSTS = (1, 3), (1, 3, 5)
TABLETS, LARGE_TABLETS = (10, 100), (10, 1_000)
ROWS, LARGE_ROWS = 20_000, 40_000
VALUE_BYTES = 1_000
ROUNDS = 3
CPU_TICK_S = 0.01
"""The least CPU time that the system counts: a reference of 0 has no ratio."""
QUIET_S = 10.0
READERS = 3
SCANS = 5
STALE_MS = 600_000
LIMIT_S = 300.0
PROPERTIES = {"table.flush.memtable_bytes": str(4 << 20)}
ONE, ALL = "one", "all"
"""Tables with one replica, and with one on each host."""


def run(large: bool = False) -> list[Figure]:
    """Measure; takes about two minutes, or ten."""
    hosts, tablets, rows = (LARGE_HOSTS, LARGE_TABLETS, LARGE_ROWS) if large else (HOSTS, TABLETS, ROWS)
    return [*hosts_growth(hosts, rows), *tablets_growth(tablets, rows), *reads(rows)]


@contextmanager
def cluster_of(hosts: int) -> Iterator[Cluster]:
    """A cluster with so many hosts, each with one tserver."""
    with ExitStack() as cleanup:
        base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-bench-")))
        yield cleanup.enter_context(Cluster(base / "own", "own", tservers=1, overrides={"standalone.hosts": hosts}))


def create(cluster: Cluster, name: str, replicas: int, tablets: int = 1) -> None:
    """A table that is served; many tablets take longer than a client waits."""
    splits = [split_row(number, tablets) for number in range(1, tablets)]

    def is_made() -> bool:
        try:
            cluster.client.tables.create(name, splits, properties={**PROPERTIES, "table.replicas": str(replicas)})
        except TransientError:
            return False
        return True

    cluster.wait_until(is_made, f"table {name}", LIMIT_S)
    table_id = cluster.client.tables.get(name).table_id
    cluster.wait_until(
        lambda: all(one.loaded for one in cluster.client.tables.locate(table_id)), f"tablets of {name}", LIMIT_S
    )


def split_row(number: int, tablets: int) -> bytes:
    """The last row of a tablet: the rows are spread over all of them."""
    return b"%08d" % (number * 10**8 // tablets)


def write(client: Client, table: str, rows: int, round_number: int) -> float:
    """Acknowledged rows a second."""
    value = bytes(VALUE_BYTES)
    began = time.perf_counter()
    with client.writer(table) as writer:
        for number in range(rows):
            row = b"%08d-%d" % (number * 10**8 // rows, round_number)
            writer.add(Mutation(row).put(b"f", b"q", value))
    return rows / (time.perf_counter() - began)


def median_rates(client: Client, tables: tuple[str, str], rows: int, rounds: int) -> tuple[float, float]:
    """The rates of two tables, written in turns behind a first time that does not count: the median of each."""
    found: dict[str, list[float]] = {table: [] for table in tables}
    for table in tables:
        write(client, table, rows, 0)
    for number in range(1, rounds + 1):
        for table in tables:
            found[table].append(write(client, table, rows, number))
    first, second = (sorted(rates)[len(rates) // 2] for rates in found.values())
    return first, second


# ---- hosts


def hosts_growth(hosts: tuple[int, ...] = HOSTS, rows: int = ROWS, rounds: int = ROUNDS) -> list[Figure]:
    """Writes to a table with a replica on each host, beside a table with one replica in the same cluster."""
    figures = []
    for count in hosts:
        with cluster_of(count) as cluster:
            create(cluster, ONE, 1)
            create(cluster, ALL, count)
            one, every = median_rates(cluster.client, (ONE, ALL), rows, rounds)
            cluster.wait_until(lambda: is_everywhere(cluster), "the copies on all hosts", LIMIT_S)
        figures.append(
            Figure(
                name=f"writes, {count} hosts with a replica each",
                value=every,
                unit="rows/s",
                reference=one,
                reference_name="one replica, same cluster",
                reference_unit="rows/s",
                ratio=every / one,
                size=count,
            )
        )
    return figures


def is_everywhere(cluster: Cluster) -> bool:
    """Whether each host of the table has each state; it is true at once with one replica."""
    table_id = cluster.client.tables.get(ALL).table_id
    tablets = cluster.client.hosts.replicas(table_id)
    lags = [lag.lacking for one in tablets for replica in one.replicas if replica.held for lag in replica.held.lags]
    return not any(lags)


# ---- tablets


def tablets_growth(
    tablets: tuple[int, int] = TABLETS, rows: int = ROWS, rounds: int = ROUNDS, quiet_s: float = QUIET_S
) -> list[Figure]:
    """Writes to tables with three replicas and few or many tablets; CPU of the tservers while nobody writes."""
    few, many = tablets
    with cluster_of(3) as cluster:
        create(cluster, "few", 3, few)
        quiet_few = max(quiet_cpu(cluster, quiet_s), CPU_TICK_S / quiet_s)
        create(cluster, "many", 3, many)
        quiet_many = quiet_cpu(cluster, quiet_s)
        rate_few, rate_many = median_rates(cluster.client, ("few", "many"), rows, rounds)
    return [
        Figure(
            name=f"writes, 3 hosts, {many:,} tablets",
            value=rate_many,
            unit="rows/s",
            reference=rate_few,
            reference_name=f"{few:,} tablets",
            reference_unit="rows/s",
            ratio=rate_many / rate_few,
            size=many,
        ),
        Figure(
            name=f"CPU of 3 tservers in a quiet second, {many:,} tablets more",
            value=quiet_many * 1e3,
            unit="ms",
            reference=quiet_few * 1e3,
            reference_name=f"{few:,} tablets",
            reference_unit="ms",
            ratio=quiet_many / quiet_few,
            size=many,
            lower_is_better=True,
        ),
    ]


def quiet_cpu(cluster: Cluster, seconds: float) -> float:
    """CPU seconds of the tservers in a second without calls of clients."""
    roles = ("tserver1", "host2.tserver1", "host3.tserver1")
    processes = [psutil.Process(cluster.pid(role)) for role in roles]
    before = cpu_seconds(*processes)
    time.sleep(seconds)  # the quiet time that is measured: nothing is waited for
    return (cpu_seconds(*processes) - before) / seconds


# ---- reads


def reads(rows: int = ROWS, scans: int = SCANS, readers: int = READERS) -> list[Figure]:
    """Whole scans of several readers at once: any replica answers, or the leader alone."""
    with cluster_of(3) as cluster:
        create(cluster, ALL, 3)
        write(cluster.client, ALL, rows, 0)
        cluster.client.tables.flush(ALL)
        cluster.wait_until(lambda: is_everywhere(cluster), "the copies on all hosts", LIMIT_S)
        leader = read_rate(cluster, rows, scans, readers, 0)
        any_host = read_rate(cluster, rows, scans, readers, STALE_MS)
    return [
        Figure(
            name=f"scans of {readers} readers from 3 replicas, as of some seconds ago",
            value=any_host,
            unit="rows/s",
            reference=leader,
            reference_name="from the leader",
            reference_unit="rows/s",
            ratio=any_host / leader,
            size=readers,
        )
    ]


def read_rate(cluster: Cluster, rows: int, scans: int, readers: int, stale_ms: int) -> float:
    """Rows a second of all readers together; ``stale_ms`` 0: the leader answers. They begin together."""
    command = [sys.executable, "-m", "tests.benchmarks.scan_reader", str(cluster.directory), ALL, str(stale_ms)]
    with ExitStack() as cleanup:
        found = [
            cleanup.enter_context(
                subprocess.Popen([*command, str(scans)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(readers)
        ]
        lines = [one.stdout for one in found if one.stdout is not None]
        assert [line.readline() for line in lines] == ["ready\n"] * readers
        began = time.perf_counter()
        for one in found:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        counts = [int(line.readline()) for line in lines]
        took = time.perf_counter() - began
    if counts != [rows * scans] * readers:
        raise AssertionError(f"readers have seen {counts} rows, and {scans} scans of {rows} each are wanted")
    return sum(counts) / took
