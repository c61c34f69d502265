"""A cluster names its own lack of Java, tablet servers or slots before its peer. The printed step ends the wait."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import NO_JAVA
from bookkeeper.master.queries.cause_texts import INSTALL_JAVA
from bookkeeper.rpc.contract.messages import ReplicateRequest
from bookkeeper.standalone.hbase.java import find_java
from tests.support.asked_why import ask, cause_of, command_words, execute, until_drained
from tests.support.cluster import Cluster
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.masters import MasterNode

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]


FEW_SLOTS: dict[str, object] = {"replay.tasks_max": 2, "replay.followers_max": 0}
"""Each record is shipped by a run, and two of them fill the slots."""


@pytest.mark.long
def test_a_cluster_without_java_and_then_without_tablet_servers(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "nothing")}
    west = Cluster(tmp_path / "west", "west", 1, overrides=FEW_SLOTS, environment=environment)
    with local_cluster(tmp_path / "east") as east:
        with west:
            for client in (west.client, east.client):
                client.tables.create("t")
            west.client.replication.define_cluster("east", east.quorum)
            west.client.replication.enable("t", "east")
            put(west, "t", b"a", b"1")
            cause = cause_of(west.directory, "t", "no_replay")
            assert NO_JAVA in cause["text"]
            assert [step["command"] for step in cause["steps"]] == [INSTALL_JAVA], "its supervisor does the rest"
            cause_of(west.directory, "east", "no_replay")
            home = find_java().parents[1]
            (tmp_path / "nothing").symlink_to(home)  # as the command would, at JAVA_HOME
            until_drained(west.directory, "t")
            check_a_tserver_that_ends_each_time(west, east)
            west.crash()
        master = MasterNode(west.settings, tmp_path / "master.log")
        started = None
        try:
            cause = cause_of(west.directory, "t", "no_tserver")
            (step,) = cause["steps"]
            east.start_tserver()
            started = subprocess.Popen(command_words(step["command"]))
            until_drained(west.directory, "t")
            check_a_peer_waits_for_a_slot(west, tmp_path)
        finally:
            master.kill9()
            if started is not None:
                started.send_signal(signal.SIGTERM)
                started.wait(60)
        assert east.rows("t") == {b"a": b"1", b"b": b"2", b"c": b"3"}


def check_a_tserver_that_ends_each_time(west: Cluster, east: LocalCluster) -> None:
    """The supervisor starts it again and again, so the step shows its log instead of starting another supervisor. East
    has no tserver behind this, and a record waits.
    """
    east.tserver.stop()
    put(west, "t", b"c", b"3")
    cause_of(west.directory, "t", "peer_unreachable")
    cause = None
    while cause is None:
        with suppress(ProcessLookupError):  # the supervisor has not started it again yet
            west.kill9("tserver1")
        _, report = ask(west.directory, "t")
        cause = next((found for found in report["causes"] if found["kind"] == "no_tserver"), None)
    (shown,) = execute(cause["steps"], {None: west.directory})
    assert shown.code == 0, shown
    assert shown.out


def check_a_peer_waits_for_a_slot(west: Cluster, place: Path) -> None:
    """Both slots of west's replay process wait for peers that take long."""
    asked: list[threading.Event] = []
    with ExitStack() as peers:
        for name in ("north", "south"):
            peer = peers.enter_context(local_cluster(place / name))
            for client in (west.client, peer.client):
                client.tables.create(name)
            west.client.replication.define_cluster(name, peer.quorum)
            west.client.replication.enable(name, name)
            asked.append(peers.enter_context(slow(peer)))
        for name in ("north", "south"):
            put(west, name, b"a", b"1")
        assert all(one.wait(60) for one in asked), "each peer has a message that it does not take"
        for name in ("north", "south"):
            cause_of(west.directory, name, "shipping")
        put(west, "t", b"b", b"2")
        cause = cause_of(west.directory, "t", "slots_busy")
        assert (cause["needs_person"], cause["steps"]) == (False, [])
    until_drained(west.directory, "t")


@contextmanager
def slow(peer: LocalCluster) -> Iterator[threading.Event]:
    """The peer takes no message before the block ends, and says hello meanwhile; set once it was sent one."""
    asked, taken_from = threading.Event(), threading.Event()
    functions = peer.tserver._server._dispatcher._functions
    take = functions["replicate"]

    def take_late(request: ReplicateRequest) -> object:
        asked.set()
        taken_from.wait()
        return take(request)

    functions["replicate"] = take_late
    try:
        yield asked
    finally:
        taken_from.set()


def put(west: Cluster, table: str, row: bytes, value: bytes) -> None:
    with west.client.writer(table) as writer:
        writer.add(Mutation(row).put(b"f", b"q", value))
