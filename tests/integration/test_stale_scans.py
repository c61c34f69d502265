"""Scans with a stated age on three hosts: followers answer while the leader is stopped, and say as of when."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import TransientError
from bookkeeper.rpc.contract.messages import TabletReplicas
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % number for number in range(50)]
HOUR_MS = 3_600_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "own", "own", tservers=1, overrides={"standalone.hosts": 3}) as made:
        yield made


def write(client: Client, value: bytes) -> None:
    """All rows, acknowledged."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def replicas(cluster: Cluster) -> TabletReplicas | None:
    """The replicas of the only tablet; None while the master changes."""
    try:
        return cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)[0]
    except TransientError:
        return None


def are_equal(cluster: Cluster) -> bool:
    """Whether all three hosts hold the same state, with rows."""
    tablet = replicas(cluster)
    held = [one.held for one in (() if tablet is None else tablet.replicas) if one.held is not None]
    return len(held) == 3 and len({one.root for one in held}) == 1 and all(one.files for one in held)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def test_followers_answer_while_their_leader_is_stopped_and_claim_no_write_that_they_lack(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", properties={"table.replicas": "3"})
    begun_ms = wall_ms()
    write(client, b"1")
    client.tables.flush("t")
    cluster.wait_until(lambda: are_equal(cluster), "three equal replicas")
    write(client, b"2")
    newer_ms = wall_ms()
    tablet = replicas(cluster)
    assert tablet is not None
    leader = next(one.host for one in tablet.replicas if one.leads)
    pid = cluster.pid("tserver1" if leader == "host1" else f"{leader}.tserver1")
    os.kill(pid, signal.SIGSTOP)
    try:
        scanner = client.scan("t", stale_ms=HOUR_MS)
        assert {cell.row: cell.value for cell in scanner.cells()} == dict.fromkeys(ROWS, b"1")
        as_of_ms = scanner.as_of_ms
        assert as_of_ms is not None, "a follower's page says no age"
        assert begun_ms <= as_of_ms <= newer_ms, "a follower claims a write that it lacks"
        assert {cell.row: cell.value for cell in client.scan("t").cells()} == dict.fromkeys(ROWS, b"2")
    finally:
        with suppress(ProcessLookupError):  # standalone ends a process whose lease is over
            os.kill(pid, signal.SIGCONT)
