"""Connecting, following the leader, calls whose answers were lost, and waiting for replication."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from bookkeeper.client import Client, master_link
from bookkeeper.client.client import CONNECT_BUDGET_MS
from bookkeeper.client.master_link import MasterLink
from bookkeeper.client.retry import PAUSE_MAX_MS
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings, write_settings
from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, OverloadedError, UnavailableError
from bookkeeper.rpc import rpc_pool
from bookkeeper.rpc.contract.messages import FileMark, TableInfo, TargetStatus
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from tests.support.fake_cluster import TABLE, FakeCluster
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.rpc_peer import pooled

NOBODY = "127.0.0.1:1"


def _link(quorum: str) -> MasterLink:
    pool = RpcPool(plain_hello(), RpcSettings())
    return MasterLink(pool, quorum, SystemClock(), random.Random(1), threading.Event())


def test_a_directory_or_a_quorum_names_a_cluster(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        port = int(cluster.quorum.rpartition(":")[2])
        overrides = {"security.authentication": "none"}
        settings = new_settings(tmp_path, "west", instance_id="i-west", master_port=port, overrides=overrides)
        write_settings(settings)
        for where in (str(tmp_path), tmp_path, cluster.quorum, f"{NOBODY},{cluster.quorum}"):
            with Client.connect(where) as client:
                assert client.tables.get("t") == TABLE


class Waits(TestClock):
    """A clock that a wait moves forward at once; it counts the waited time."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_ms = 0.0

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.waited_ms += timeout_ms
        self.jump(round(timeout_ms))
        return event.is_set()


def test_a_cluster_that_does_not_answer_is_named_with_every_master() -> None:
    clock = Waits()
    with pytest.raises(UnavailableError, match=rf"no master of {NOBODY} says who leads: {NOBODY} can't be reached"):
        Client.connect(NOBODY, clock=clock)
    assert CONNECT_BUDGET_MS - PAUSE_MAX_MS <= clock.waited_ms <= CONNECT_BUDGET_MS
    with FakeCluster(masters=2) as cluster:
        cluster.leader = None
        with pytest.raises(UnavailableError, match=r"no master leads; no master leads"):
            Client.connect(cluster.quorum, clock=Waits())
        with pytest.raises(UnavailableError, match=r"no master leads; no master leads"):
            Client.connect(cluster.quorum, clock=(impatient := Waits()), budget_ms=0)
        assert impatient.waited_ms == 0


def connects_while_a_master_restarts() -> None:
    with FakeCluster(masters=2) as cluster:
        leader, cluster.leader = cluster.leader, None
        asked = [0]

        def elect(name: str) -> None:
            asked[0] += name == "leader"
            cluster.leader = leader if asked[0] > 3 else None

        for master in cluster.masters:
            master.hook = elect
        with Client.connect(cluster.quorum, clock=Waits()) as client:
            assert client.tables.get("t") == TABLE


def test_a_client_that_connects_waits_for_a_master_that_restarts() -> None:
    connects_while_a_master_restarts()


def test_without_a_wait_a_master_that_restarts_is_an_error() -> None:
    with fault("connect-asks-once"), pytest.raises(UnavailableError, match="no master leads"):
        connects_while_a_master_restarts()


def test_a_name_that_is_no_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no directory nowhere"):
        Client.connect("nowhere")
    with pytest.raises(InvalidInputError, match="not an address"):
        Client.connect("nowhere:")
    with pytest.raises(NotFoundError, match="bookkeeper init"):
        Client.connect(tmp_path)


def test_arguments_of_a_wrong_type_are_named() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        with pytest.raises(InvalidInputError, match="a split is bytes, not 'm'"):
            client.tables.create("new", splits=cast("list[bytes]", ["m"]))
        with pytest.raises(InvalidInputError, match="from 0 on, not -1"):
            client.scan("t", stale_ms=-1)


def test_the_leader_is_followed_to_another_master() -> None:
    with FakeCluster(masters=2) as cluster, Client.connect(cluster.quorum) as client:
        first, second = cluster.masters
        assert client.tables.list() == (TABLE,)
        first.leads, second.leads = False, True
        attempts = [0]

        def elect(name: str) -> None:
            attempts[0] += name == "leader"
            if attempts[0] == 3:
                cluster.leader = cluster.master_servers[1].address

        first.hook = elect
        assert client.tables.list() == (TABLE,)
        assert second.calls == ["tables"]
        cluster.master_servers[0].stop()
        assert client.tables.list() == (TABLE,)


def connections_of(listening: socket.socket) -> int:
    """How many connections wait to be accepted."""
    listening.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            count += 1
    return count


def silent_leader(monkeypatch: pytest.MonkeyPatch, calls: int) -> tuple[list[str], int]:
    """The calls of the other master, and the number of connections to the silent leader, in ``calls`` searches."""
    monkeypatch.setattr(master_link, "LEADER_TIMEOUT_MS", 200)
    monkeypatch.setattr(master_link, "SILENT_TIMEOUT_MS", 20)
    asked: list[str] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        FakeCluster() as cluster,
    ):  # it takes calls, and never answers
        address = "{}:{}".format(*silent.getsockname())
        cluster.masters[0].hook = asked.append
        cluster.leader = address
        with pooled(silent_ms=100) as pool:
            link = MasterLink(pool, f"{address},{cluster.quorum}", SystemClock(), random.Random(1), threading.Event())
            for _ in range(calls):
                with pytest.raises(UnavailableError, match=f"{address} did not answer hello"):
                    link.find_leader()
            cluster.leader = cluster.master_servers[0].address
            assert link.find_leader() == cluster.leader
            return asked, connections_of(silent)


def test_a_silent_leader_is_asked_behind_those_who_know_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, calls = silent_leader(monkeypatch, 3)
    assert asked == ["leader"] * 4
    assert calls == 3, "once for each search that had no other leader, and never before the others were asked"


def test_a_leader_that_falls_silent_is_not_called_again_before_the_others_name_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a note of its silence, each try would connect to it, for as long as a connection may take."""
    monkeypatch.setattr(rpc_pool, "LOOK_MS", 10)
    monkeypatch.setattr(master_link, "SILENT_TIMEOUT_MS", 20)
    with socket.create_server(("127.0.0.1", 0)) as silent, FakeCluster() as cluster:
        address = "{}:{}".format(*silent.getsockname())
        with pooled(silent_ms=100) as pool:
            link = MasterLink(pool, cluster.quorum, SystemClock(), random.Random(1), threading.Event())
            tries = [0]

            def elect(name: str) -> None:
                tries[0] += name == "leader"
                cluster.leader = address if tries[0] < 4 else cluster.master_servers[0].address

            cluster.masters[0].hook = elect
            assert link.call("tables") == (TABLE,)
            assert connections_of(silent) == 3, "one call, and two brief questions"


def test_a_budget_ends_the_tries_and_a_permanent_error_at_once() -> None:
    with FakeCluster() as cluster:
        master = cluster.masters[0]

        def full(name: str) -> None:
            if name == "tables":
                raise OverloadedError("full")

        master.hook = full
        link = _link(cluster.quorum)
        with pytest.raises(OverloadedError):
            link.call("tables", budget_ms=200)
        assert len(master.calls) >= 3
        with pytest.raises(NotFoundError):
            link.call("flush_table", "t", budget_ms=10_000)


class _Losing:
    """Loses the answer to the first call of each method after it was carried out."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.lost: set[str] = set()
        self.master = cluster.masters[0]

    def lose(self, method: str) -> None:
        if method not in self.lost:
            self.lost.add(method)
            raise UnavailableError("the answer is lost")

    def create_table(self, name: str, *_: object) -> TableInfo:
        if name in self.master.made:
            raise ExistsError(name)
        self.master.made[name] = TableInfo("2", name, "online", (), {})
        self.lose("create")
        return self.master.made[name]

    def delete_table(self, name: str) -> None:
        if self.master.made.pop(name, None) is None:
            raise NotFoundError(name)
        self.lose("delete")


def test_a_change_whose_answer_was_lost_is_not_taken_for_a_failure() -> None:
    cluster = FakeCluster()
    losing = _Losing(cluster)
    cluster.masters[0].__dict__.update(create_table=losing.create_table, delete_table=losing.delete_table)
    with cluster, Client.connect(cluster.quorum) as client:
        assert client.tables.create("new").table_id == "2"
        with pytest.raises(ExistsError):
            client.tables.create("new")
        client.tables.delete("new")
        with pytest.raises(NotFoundError):
            client.tables.delete("new")
    assert losing.lost == {"create", "delete"}


def _status(file: str) -> TargetStatus:
    from bookkeeper.model import TargetKey

    key = TargetKey("east", "7", "1", 1)
    return TargetStatus(file, key, "OPEN", 10, 4, 6, 60, 0.5, "shipping", None, None, None, 4, 40, 0, "t", ())


def test_waiting_looks_at_marks_taken_once_until_nothing_of_them_is_left() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        asked: list[Sequence[FileMark]] = []

        def pending(marks: Sequence[FileMark]) -> Sequence[TargetStatus]:
            asked.append(marks)
            return tuple(_status(mark.file) for mark in marks) if len(asked) < 4 else ()

        cluster.masters[0].pending = pending
        seen: list[int] = []
        assert not client.replication.wait("t", "east", progress=lambda unwritten: seen.append(len(unwritten)))
        assert seen == [1, 1, 1, 0]
        assert asked == [(FileMark("t.wal", 10),)] * 4
        assert cluster.masters[0].calls.count("replication_mark") == 1


def test_waiting_ends_at_its_limit_with_what_is_left_and_survives_a_lost_answer() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        master, lost = cluster.masters[0], [0]

        def lose(name: str) -> None:
            if name == "replication_pending" and lost[0] < 2:
                lost[0] += 1
                raise UnavailableError("lost")

        master.hook = lose
        master.pending = lambda marks: tuple(_status(mark.file) for mark in marks)
        unwritten = client.replication.wait("t", "east", marks=[FileMark("x", 1)], timeout_ms=300)
        assert [status.file for status in unwritten] == ["x"]
        assert lost[0] == 2
        assert master.calls.count("replication_mark") == 0


def test_a_quorum_is_checked_before_it_is_sent() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        for call in (client.replication.define_cluster, client.replication.delete_cluster):
            with pytest.raises(InvalidInputError, match="not an address"):
                call("east", "nowhere")
