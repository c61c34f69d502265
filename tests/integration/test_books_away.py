"""Books in HBase that are away for a minute: what needs them waits, all else goes on, and nobody gets an error.

HBase itself stands still; the hosts' own gateways run on, and give up each operation after 12 s.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Mutation
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.support.asked_why import ask, cause_of, until_drained
from tests.support.cluster import Cluster
from tests.support.hbase_home import HEAP_MB, SESSIONS
from tests.support.shell import quick
from tests.support.tservers import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

AWAY_S = 60.0
SOON_S = 10.0
"""A busy machine may need so long for a write or a record that waits for nothing."""
ROLES = ("master", "tserver1", "replay", "gateway")
REST_S = 60.0


@contextmanager
def two_clusters(directory: Path, hbase: HBaseProcess) -> Iterator[tuple[Cluster, Cluster]]:
    """West replicates its tables t and u to east; each has one tserver and a gateway of its own."""
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(
                Cluster(directory / name, name, 1, f"hbase+zk://{hbase.host}:{hbase.ports.zookeeper}/{name}")
            )
            for name in ("west", "east")
        ]
        west, east = clusters
        west.client.replication.define_cluster("east", east.quorum)
        for table in ("t", "u"):
            for cluster in clusters:
                cluster.client.tables.create(table)
            west.client.replication.enable(table, "east")
        yield west, east


def put(cluster: Cluster, table: str, row: str) -> None:
    """A row is acknowledged."""
    with cluster.client.writer(table) as writer:
        writer.add(Mutation(row.encode()).put(b"f", b"q", b"1"))


def rows(cluster: Cluster, table: str) -> Sequence[str]:
    """The rows of a table."""
    return [row.decode() for page in cluster.client.scan(table) for row in page["row"].to_pylist()]


@contextmanager
def away(hbase: HBaseProcess) -> Iterator[Callable[[], float]]:
    """HBase stands still; the value says for how many seconds. It goes on at the end of the block."""
    data = str(hbase.data_dir)
    process = next(child for child in psutil.Process().children() if child.name() == "java" and data in child.cmdline())
    process.send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    try:
        yield lambda: time.monotonic() - began_s
    finally:
        process.send_signal(signal.SIGCONT)


def test_books_that_are_away_for_a_minute_are_waited_for_and_no_caller_gets_an_error(tmp_path: Path) -> None:
    if (reason := why_not_runnable()) is not None:
        pytest.skip(f"NO REAL HBASE, so nothing about books that are away was tested: {reason}")
    with (
        HBaseProcess(tmp_path / "hbase", heap_mb=HEAP_MB, settings=SESSIONS) as hbase,
        two_clusters(tmp_path, hbase) as (west, east),
        ThreadPoolExecutor() as users,
    ):
        put(west, "t", "before")
        # A master hears of a record a moment after it is acknowledged: until then, it names no cause.
        wait_until(lambda: rows(east, "t") == rows(west, "t") == ["before"], "the first row at east", REST_S)
        until_drained(west.directory, "t")
        before = pids(west, east)
        with away(hbase) as away_s:
            cause_of(west.directory, "", "no_books")
            number = 0
            while away_s() < AWAY_S - 25:
                number += 1
                goes_on(west, east, f"while-{number:02d}")
            late = [users.submit(put, west, "u", "first"), users.submit(west.client.tables.flush, "t")]
            while away_s() < AWAY_S:
                threading.Event().wait(1.0)  # the fault: it lasts for a minute
                assert "before" in rows(west, "t"), "reads go on"
            assert not late[0].done(), "a first use waits for the books"
            _, report = ask(west.directory)
            assert "no_books" in {cause["kind"] for cause in report["causes"]}, report
        for call in late:
            call.result(REST_S)
        put(west, "t", "after")
        for table in ("t", "u"):
            wait_until(lambda table=table: rows(east, table) == rows(west, table), f"all of {table} at east", REST_S)  # type: ignore[misc]
            until_drained(west.directory, table)
        assert pids(west, east) == before, "no process ended"


def pids(*clusters: Cluster) -> list[int]:
    """All processes."""
    return [cluster.pid(role) for cluster in clusters for role in ROLES]


def goes_on(west: Cluster, east: Cluster, row: str) -> None:
    """A write into a log in use is acknowledged, can be read, and reaches the peer; the status answers."""
    began_s = time.monotonic()
    put(west, "t", row)
    took_s = time.monotonic() - began_s
    assert took_s < SOON_S, f"a write into a log in use took {took_s:.1f} s"
    assert row in rows(west, "t")
    wait_until(lambda: row in rows(east, "t"), f"{row} at east", SOON_S)
    code = quick("shell", str(west.directory), "replication", "status").code
    assert code in (0, 5), f"the status answers, exit code {code}"
