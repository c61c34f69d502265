"""A task that follows on real processes: rows go with it, and when it dies, rows go without it until there is another.

The Spark worker of the task is killed with -9, or stopped while it waits in its poll. Of three peers, one takes
connections and answers nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.coordination.connect import open_coordination
from tests.support.cluster import Cluster
from tests.support.local_pair import local_cluster
from tests.support.replay_process import workers_connected_to
from tests.support.shared_cluster import lent
from tests.support.tservers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark]

TABLE = "followed"
LIMIT_S = 60.0

ROWS, PAUSE_MS = 40, 250.0
SLACK_S, WORST_S = 0.25, 5.0
"""Much less than a message to a silent peer waits for its answer, also on a busy machine."""


def put(west: Cluster, row: bytes) -> None:
    with west.client.writer(TABLE) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"v"))


def wait_for_row(peer: Client, row: bytes) -> None:
    wait_until(lambda: any(cell.row == row for cell in peer.scan(TABLE).cells()), f"row {row!r}", LIMIT_S)


def tserver_ports(cluster: Cluster) -> set[int]:
    """The ports of the living tservers."""
    with closing(open_coordination(cluster.settings)) as coordination:
        return {int(one.address.rpartition(":")[2]) for one in coordination.sessions("tserver") if one.alive}


def followers(west: Cluster) -> set[int]:
    """The Spark workers of west that poll one of its tservers."""
    return set(workers_connected_to(west.pid("replay"), tserver_ports(west)))


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
        wait_for_row(east.client, b"first")
        ended: set[int] = set()

        def are_ended() -> bool:
            for pid in followers(west):
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(pid, end)
                    ended.add(pid)
            return bool(ended)

        wait_until(are_ended, "a task that follows", LIMIT_S)
        put(west, b"second")
        wait_for_row(east.client, b"second")
        wait_until(lambda: bool(followers(west) - ended), "another task that follows", LIMIT_S)
        wait_until(lambda: not any(map(psutil.pid_exists, ended)), "the end of the task", LIMIT_S)
        assert not replication.wait(TABLE, "east", timeout_ms=int(LIMIT_S * 1_000))
        replication.disable(TABLE, "east")
        replication.delete_cluster("east", east.quorum)


def lag_s(west: Cluster, peers: Sequence[Client], row: bytes) -> float:
    """The time until all of these peers have a row; rows are a moment apart."""
    clock = SystemClock()
    clock.wait(threading.Event(), PAUSE_MS)
    put(west, row)
    began_ns = clock.boot_ns()
    for peer in peers:
        wait_for_row(peer, row)
    return (clock.boot_ns() - began_ns) / 1e9


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_peer_that_answers_nothing_delays_no_row_to_the_others(west: Cluster, east: Cluster, tmp_path: Path) -> None:
    with lent(west), lent(east), local_cluster(tmp_path / "north") as north:
        replication, healthy = west.client.replication, [east.client, north.client]
        with local_cluster(tmp_path / "south") as south:
            quorums = {"east": east.quorum, "north": north.quorum, "south": south.quorum}
            ports = south.settings.master.port, int(south.tserver.address.rpartition(":")[2])
            for client in (west.client, *healthy, south.client):
                client.tables.create(TABLE)
            for name, quorum in quorums.items():
                replication.define_cluster(name, quorum)
                replication.enable(TABLE, name)
            lag_s(west, [*healthy, south.client], b"first")
            wait_until(lambda: len(followers(west)) == len(quorums), "a task that follows for each", LIMIT_S)
            before = [lag_s(west, healthy, b"before-%d" % number) for number in range(ROWS)]
        with ExitStack() as silent:
            for port in ports:
                silent.enter_context(socket.create_server(("127.0.0.1", port)))
            beside = [lag_s(west, healthy, b"beside-%d" % number) for number in range(ROWS)]
        assert statistics.median(beside) <= statistics.median(before) + SLACK_S, f"{before} became {beside}"
        assert sorted(beside)[-2] <= WORST_S, f"a row waits for the silent peer: {beside}"
        with local_cluster(tmp_path / "south"):
            assert not replication.wait(TABLE, "south", timeout_ms=int(LIMIT_S * 1_000))
        for name, quorum in quorums.items():
            replication.disable(TABLE, name)
            replication.delete_cluster(name, quorum)
