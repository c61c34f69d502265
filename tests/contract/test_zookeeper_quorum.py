"""Three servers of ZooKeeper: one of them ends, and two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination, make_root
from bookkeeper.errors import TransientError
from tests.support.coordination_process import SETTINGS
from tests.support.faults import fault
from tests.support.hbase import HBaseUnavailableError
from tests.support.tservers import wait_until
from tests.support.zookeeper import ZooKeeperServer, three_servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

LEASE_MS = 8_000


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ZooKeeperServer]]:
    try:
        with three_servers(tmp_path / "zookeeper") as found:
            yield found
    except HBaseUnavailableError as error:
        pytest.skip(f"NO ZOOKEEPER, so no quorum was tested: {error}")


def new_root(servers: Sequence[ZooKeeperServer], directory: Path) -> Callable[..., ZooKeeperCoordination]:
    """Makes a root; its store is then opened by a name, and the servers that it uses."""
    made = parse_url(f"zk://{','.join(server.quorum for server in servers)}/west")
    store_id = make_root(Access(made), SystemClock(), 3_000)

    def opened(name: str, used: Sequence[ZooKeeperServer] = servers) -> ZooKeeperCoordination:
        url = parse_url(f"zk://{','.join(server.quorum for server in used)}/west")
        settings = replace(SETTINGS, url=str(url), store_id=store_id, session_lease_ms=LEASE_MS, session_renew_ms=500)
        return ZooKeeperCoordination(
            Access(url), settings, HostLeases(directory / name, LEASE_MS, SystemClock()), SystemClock()
        )

    return opened


def test_the_end_of_one_server_ends_no_session_and_without_a_quorum_all_end_and_come_back(
    servers: list[ZooKeeperServer], tmp_path: Path
) -> None:
    opened = new_root(servers, tmp_path)
    with closing(opened("one")) as one, closing(opened("two")) as two:
        sessions = [store.open_session("master", f"{name}:1") for store, name in ((one, "one"), (two, "two"))]
        leader = one.try_lead(sessions[0])
        one.put("/a", b"1")
        (lost,) = (server for server in servers if server.mode == "leader")
        lost.kill9()
        threading.Event().wait(2 * LEASE_MS / 1000)
        assert all(session.is_valid() for session in sessions), "the end of one server ended a session"
        assert two.leader() == one.leader() == leader
        wait_until(lambda: two.put("/b", b"2") > 0, "a write through the two others")
        assert set(one.children("/")) == set(two.children("/")) == {"/a", "/b"}

        second = next(server for server in servers if server is not lost)
        second.kill9()
        wait_until(lambda: not any(session.is_valid() for session in sessions), "the end of the leases", 30)
        with pytest.raises(TransientError):
            one.put("/a", b"3")
        lost.launch()
        second.launch()
        for server in (lost, second):
            server.wait()
        wait_until(lambda: [info.alive for info in two.sessions("master")] == [False, False], "the end of sessions", 30)
        assert {path: found.value for path, found in two.children("/").items()} == {"/a": b"1", "/b": b"2"}
    with closing(opened("three")) as three:
        again = three.try_lead(three.open_session("master", "three:1"))
        assert leader is not None
        assert again is not None
        assert again.epoch == leader.epoch + 1


def no_change_is_missed_behind_a_server_that_lags(servers: Sequence[ZooKeeperServer], directory: Path) -> None:
    """S9: the leading server is cut off from the others, which elect another one, and does not know it: it answers
    reads, and a sync before them.
    """
    opened = new_root(servers, directory)
    (lagging,) = (server for server in servers if server.mode == "leader")
    assert lagging.followers is not None
    with (
        closing(opened("behind", [lagging])) as behind,
        closing(opened("writer", [server for server in servers if server is not lagging])) as writer,
    ):
        writer.put("/a", b"1")
        before = behind.settled_generation()
        lagging.followers.abandon()
        wait_until(lambda: writer.put("/a", b"2") > 0, "a write through the two others", 60)
        assert (behind.generation(), lagging.mode) == (before, "leader"), "no server lags, and nothing is shown"
        with suppress(TransientError):
            found = behind.settled_generation()
            assert found == writer.generation(), "a change that was made before is missed (R14)"
        lagging.followers.restore()
        wait_until(lambda: behind.settled_generation() == writer.generation(), "the server that lagged", 60)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[list[ZooKeeperServer]]:
    """Servers whose leader can be left alone."""
    try:
        with three_servers(tmp_path / "zookeeper", can_be_left_alone=True) as found:
            yield found
    except HBaseUnavailableError as error:
        pytest.skip(f"NO ZOOKEEPER, so no quorum was tested: {error}")


def test_r14_no_change_is_missed_behind_a_server_that_lags(patient: list[ZooKeeperServer], tmp_path: Path) -> None:
    no_change_is_missed_behind_a_server_that_lags(patient, tmp_path)


def test_r14_without_a_write_before_it_a_change_is_missed(patient: list[ZooKeeperServer], tmp_path: Path) -> None:
    with fault("zookeeper-generation-unsettled"), pytest.raises(AssertionError, match=r"a change .* is missed"):
        no_change_is_missed_behind_a_server_that_lags(patient, tmp_path)
