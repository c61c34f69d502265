"""Processes that stand still accept connections and answer nothing: ``replication why`` says so within five seconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from bookkeeper.client import Mutation
from tests.support.asked_why import cause_of, until_drained
from tests.support.cluster import Cluster
from tests.support.standstill import stand_still

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

TABLE = "silent"


@contextmanager
def standing_still(cluster: Cluster, *roles: str) -> Iterator[None]:
    """Processes of a cluster stand still inside the block, and its supervisor, which would replace them."""
    pids = [cluster.pid(role) for role in roles]
    supervisor = psutil.Process(pids[0]).ppid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for pid in pids:
            stand_still(pid, cluster.settings)
        yield
    finally:
        for pid in (*pids, supervisor):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def put(west: Cluster, row: bytes) -> None:
    with west.client.writer(TABLE) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"v"))


def test_a_silent_peer_and_silent_tservers_are_named(west: Cluster, east: Cluster) -> None:
    replication = west.client.replication
    for client in (west.client, east.client):
        client.tables.create(TABLE)
    replication.define_cluster("east", east.quorum)
    replication.enable(TABLE, "east")
    put(west, b"a")
    assert not replication.wait(TABLE, timeout_ms=60_000)
    with standing_still(east, "master", "tserver1", "tserver2"):
        put(west, b"b")
        cause = cause_of(west.directory, TABLE, "peer_unreachable")
        assert "did not answer" in cause["text"]
        with standing_still(west, "tserver1", "tserver2"):
            cause = cause_of(west.directory, TABLE, "no_tserver")
            assert "is silent" in cause["text"]
    until_drained(west.directory, TABLE)
    assert {cell.row for cell in east.client.scan(TABLE).cells()} == {b"a", b"b"}
    replication.disable(TABLE, "east")
