"""A task that follows on real processes: rows go with it, and when it dies, rows go without it until there is another.

The Spark worker of the task is killed with -9, or stopped while it waits in its poll.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing

import psutil
import pytest

from bookkeeper.client import Mutation
from bookkeeper.coordination.connect import open_coordination
from tests.support.cluster import Cluster
from tests.support.shared_cluster import lent
from tests.support.tservers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark]

TABLE = "followed"
LIMIT_S = 60.0


def put(west: Cluster, row: bytes) -> None:
    with west.client.writer(TABLE) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"v"))


def wait_for_row(east: Cluster, row: bytes) -> None:
    wait_until(lambda: any(cell.row == row for cell in east.client.scan(TABLE).cells()), f"row {row!r}", LIMIT_S)


def tserver_ports(cluster: Cluster) -> set[int]:
    """The ports of the living tservers."""
    with closing(open_coordination(cluster.settings)) as coordination:
        return {int(one.address.rpartition(":")[2]) for one in coordination.sessions("tserver") if one.alive}


def followers(west: Cluster) -> set[int]:
    """The Spark workers of west that poll one of its tservers."""
    ports, pids = tserver_ports(west), set[int]()
    for one in psutil.Process(west.pid("replay")).children(recursive=True):
        try:
            remote = {port for found in one.net_connections("tcp") for port in tuple(found.raddr)[1:]}
        except psutil.Error:  # it has just ended
            continue
        if remote & ports:
            pids.add(one.pid)
    return pids


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
def test_rows_go_with_a_task_that_stays_and_without_it_when_it_dies(
    west: Cluster, east: Cluster, end: signal.Signals
) -> None:
    with lent(west), lent(east):
        for cluster in (west, east):
            cluster.client.tables.create(TABLE)
        replication = west.client.replication
        replication.define_cluster("east", east.quorum)
        replication.enable(TABLE, "east")
        put(west, b"first")
        wait_for_row(east, b"first")
        wait_until(lambda: bool(followers(west)), "a task that follows", LIMIT_S)
        ended = followers(west)
        for pid in ended:
            os.kill(pid, end)
        put(west, b"second")
        wait_for_row(east, b"second")
        wait_until(lambda: bool(followers(west) - ended), "another task that follows", LIMIT_S)
        wait_until(lambda: not any(map(psutil.pid_exists, ended)), "the end of the task", LIMIT_S)
        assert not replication.wait(TABLE, "east", timeout_ms=int(LIMIT_S * 1_000))
        replication.disable(TABLE, "east")
        replication.delete_cluster("east", east.quorum)
