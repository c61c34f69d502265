"""A Python worker that hangs makes its own peer wait, and no other one: ``replication why`` names the process."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Mutation
from bookkeeper.master.queries.causes import FAULTS
from tests.support.asked_why import ask, cause_of
from tests.support.cluster import Cluster
from tests.support.local_pair import local_cluster
from tests.support.replay_process import workers_connected_to
from tests.support.tservers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(300)]

HUNG_S = 60.0
"""Limit until a process that hangs is named."""


def put(west: Cluster, table: str, row: bytes) -> None:
    with west.client.writer(table) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"v"))


def test_a_worker_that_hangs_makes_only_its_own_peer_wait(west: Cluster, east: Cluster, tmp_path: Path) -> None:
    replication = west.client.replication
    east.client.tables.create("hung-not")
    replication.define_cluster("east", east.quorum)
    with local_cluster(tmp_path / "silent") as silent:
        for client, table in ((west.client, "hung"), (silent.client, "hung"), (west.client, "hung-not")):
            client.tables.create(table)
        replication.define_cluster("silent", silent.quorum)
        replication.enable("hung", "silent")
    replication.enable("hung-not", "east")
    port = silent.settings.master.port
    with socket.create_server(("127.0.0.1", port)):
        put(west, "hung", b"a")
        found: list[int] = []

        def is_stopped() -> bool:
            found[:] = workers_connected_to(west.pid("replay"), {port})
            with suppress(ProcessLookupError):  # it has just ended
                if found:
                    os.kill(found[0], signal.SIGSTOP)
                    return True
            return False

        wait_until(is_stopped, "a worker that waits for the silent peer")
        stopped = found[0]
        put(west, "hung-not", b"a")
        assert not replication.wait("hung-not", "east", timeout_ms=int(HUNG_S * 1_000))
        cause = cause_of(west.directory, "hung", "replay_fails", HUNG_S)
        assert f"process {stopped}, which ships {cause['file']} to silent, hung" in cause["text"]
        put(west, "hung-not", b"b")
        assert FAULTS.isdisjoint(one["kind"] for one in ask(west.directory, "east")[1]["causes"]), "east waits, too"
        assert not replication.wait("hung-not", "east", timeout_ms=int(HUNG_S * 1_000))
    wait_until(lambda: not psutil.pid_exists(stopped), "the end of the worker that hung")
    for table, peer in (("hung", "silent"), ("hung-not", "east")):
        replication.disable(table, peer)
    replication.delete_cluster("silent", silent.quorum)
