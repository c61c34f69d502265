"""Where ZooKeeper breaks what a file and kernel locks give for free: each schedule is a law, red without its cure.

A real server runs in one JVM. :data:`LAWS` has each law with the switch that takes its cure away.
Rules: R6, R14, R15, R23.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from unittest import mock

import psutil
import pytest
from kazoo.client import KazooClient

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.coordination.host_leases import HostLeases, new_token, own_token
from bookkeeper.coordination.lease import LeaseRecord
from bookkeeper.coordination.lease_file import read_boot_id
from bookkeeper.coordination.zookeeper.ensemble import Change, Node, Write, Written
from bookkeeper.coordination.zookeeper.layout import session_of
from bookkeeper.coordination.zookeeper.zookeeper import READ_NODES_MAX, ZooKeeperCoordination
from bookkeeper.coordination.zookeeper.zookeeper_session import ZooKeeperSession
from bookkeeper.errors import (
    BookkeeperError,
    InvalidInputError,
    LeaseLostError,
    RefusedError,
    TransientError,
    UnavailableError,
)
from bookkeeper.standalone.fencing import Fence, overdue
from bookkeeper.standalone.foreground import end_abandoned
from tests.support.coordination_process import LEASE_MS, MARGIN_MS, SHORT_LEASE_MS, CoordinationProcess, new_root
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.must_raise import must_raise
from tests.support.standstills import undisturbed
from tests.support.tcp_proxy import TcpProxy
from tests.support.tservers import wait_until
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_place import HOUR_MS, Place


@pytest.fixture
def place(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(zookeeper, new_root(zookeeper, tmp_path), stack)


def is_alive(store: ZooKeeperCoordination, session: Session) -> bool:
    return {info.session_id: info.alive for info in store.sessions("tserver")}[session.session_id]


def expire(store: ZooKeeperCoordination, server: ZooKeeperServer, proxy: TcpProxy) -> None:
    """Let the server end the session of the store's connection, as after its time-out, while it is cut off."""
    wait_until(lambda: client_id(store) is not None, "a connection")
    before = client_id(store)
    proxy.darken()
    other = KazooClient(server.quorum, client_id=before)
    other.start()
    other.stop()
    other.close()
    proxy.lighten()
    proxy.drop()
    wait_until(lambda: client_id(store) not in (None, before), "a new session of the connection")


def client_id(store: ZooKeeperCoordination) -> object:
    """The session of the store's connection, None while there is none. The store may make a new connection."""
    return store._zk._connection.client.client_id


# ---- the laws


def a_session_outlives_the_session_of_its_connection(place: Place) -> None:
    """S1, S9: a server grants another time-out than asked for, and kazoo begins a new session in silence."""
    proxy = place.proxy()
    store, observer = place.open(f"{proxy.host}:{proxy.port}"), place.open()
    session = store.open_session("tserver", "h:1")
    expire(store, place.server, proxy)
    assert session.is_valid(), "a live session counts as dead"
    assert is_alive(observer, session), "a live session counts as dead"
    before = store._zk.written(store._zk.at("alive", session.session_id))
    wait_until(lambda: store._zk.written(store._zk.at("alive", session.session_id)) != before, "a renewal")
    assert session.is_valid()


def a_renewal_after_a_pause_counts(place: Place) -> None:
    """S2: a process stands still, resumes, renews its lease, and is cut off; its lease counts from that renewal."""
    clock = TestClock()
    store = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    observer = place.open(clock=clock, lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    session = renewing(store.open_session("tserver", "h:1"))
    assert is_alive(observer, session)
    clock.jump(HOUR_MS)
    assert session._renew()
    assert is_alive(observer, session)
    clock.jump(MARGIN_MS + 1_000)
    assert is_alive(observer, session), "a live session counts as dead"
    clock.jump(HOUR_MS)
    assert not is_alive(observer, session), "a session without a renewal is dead after lease and margin"
    assert not session._renew()
    assert not session.is_valid()


def a_renewal_before_the_verdict_counts(place: Place) -> None:
    """S2: a process renews its lease between an observer's look and its verdict."""
    clock = TestClock()
    store = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    observer = place.open(clock=clock, lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    session = renewing(store.open_session("tserver", "h:1"))
    assert is_alive(observer, session)
    clock.jump(HOUR_MS + MARGIN_MS + 1_000)
    look = observer._zk.written

    def renewed_after_look(*paths: str, is_synced: bool = False) -> list[Written | None]:
        found = look(*paths, is_synced=is_synced)
        assert session._renew()
        return found

    observer._zk.written = renewed_after_look  # type: ignore[method-assign]
    assert is_alive(observer, session), "a live session counts as dead"
    assert session._renew()


def the_host_ends_its_overdue_processes_without_zookeeper(place: Place) -> None:
    """S4: the machine is cut off from ZooKeeper, and a process stands still in the middle of a write."""
    leases, margin_ns = HostLeases(place.leases, SHORT_LEASE_MS, SystemClock()), MARGIN_MS * 1_000_000

    def check_renewals() -> None:
        with closing(place.open(lease_ms=SHORT_LEASE_MS).open_session("tserver", "h:1")):
            (own,) = leases.processes()
            over_ns = own.expires_ns + 2 * margin_ns
            wait_until(lambda: SystemClock().boot_ns() > over_ns, "the end of the first lease")
            late = overdue(leases.processes(), SystemClock().boot_ns(), margin_ns)
            assert not late, "the host ends a process that renews its lease"

    undisturbed(check_renewals)
    assert not leases.processes()
    fence = Fence(leases.processes, margin_ns, lambda _: None)
    with CoordinationProcess("zookeeper", place.root) as member:
        member.ask("open", "tserver", "h:1")
        with place.server.stopped():
            member.freeze()
            (seen,) = leases.processes()
            fence.run_once(seen.expires_ns + margin_ns + 1)
            psutil.Process(seen.pid).wait(60)


def a_dark_server_ends_no_session(place: Place) -> None:
    """S5: the machine with the server that a process uses goes dark, without a reset of its connections."""

    def check() -> None:
        first, second = place.proxy(), place.proxy()
        store = place.open(*(f"{one.host}:{one.port}" for one in (first, second)), lease_ms=4_000, renew_ms=500)
        session = store.open_session("tserver", "h:1")
        (used,) = (one for one in (first, second) if one.connections)
        used.darken()
        threading.Event().wait(5)
        assert session.is_valid(), "a server that went dark ended a session"
        used.drop()

    undisturbed(check)


def a_machine_without_power_leaves_time_for_the_other_servers(place: Place) -> None:
    """S5: the connection ends, and the first servers that are tried do not even refuse."""
    order = mock.patch("random.shuffle")  # kazoo tries the servers in a random order
    with full_server() as dark, full_server() as other, order:
        proxy = place.proxy()
        store = place.open(dark, other, f"{proxy.host}:{proxy.port}")
        ended, client = threading.Event(), store._zk._connection.client
        client.add_listener(lambda _state: ended.set())
        proxy.drop()
        assert ended.wait(10), "the connection has not ended"
        try:
            store.generation()
        except UnavailableError as error:
            raise AssertionError(f"dark servers took all of the time of a call: {error}") from error


@contextmanager
def full_server() -> Iterator[str]:
    """The address of a server that takes no more connections, and refuses none: the kernel drops their packets."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(server.getsockname())
            except TimeoutError:
                break
        yield "{}:{}".format(*server.getsockname())


def a_session_comes_in_one_step(place: Place) -> None:
    """S7: a session is listed, and lives, or it is not there."""
    store, observer = place.open(), place.open()
    commit = store._zk.commit
    seen: list[bool] = []

    def watched(*changes: Change) -> list[int]:
        found = commit(*changes)
        seen.extend(info.alive for info in observer.sessions("tserver"))
        return found

    store._zk.commit = watched  # type: ignore[method-assign]
    store.open_session("tserver", "h:1")
    store._zk.commit = commit  # type: ignore[method-assign] # the observer closes first
    assert seen, "nothing was seen"
    assert all(seen), "a session was dead before it lived"


def a_restored_root_gives_out_no_id_again(place: Place) -> None:
    """S8: the number of sessions is what it was at the time of the backup."""
    store = place.open()
    first = store.open_session("tserver", "h:1")
    first.close()
    store.forget_session(first.session_id)
    client = store._zk._connection.client
    client.delete(store._zk.at("serial"))
    client.create(store._zk.at("serial"))
    assert store.open_session("tserver", "h:1").session_id != first.session_id, "an id came again"


def a_tree_that_went_back_is_not_read(place: Place) -> None:
    """S8, S9: the root was restored from a backup, and the process went on."""
    store, writer = place.open(), place.open()
    before = writer.put("/a", b"1")
    assert store.get("/a") is not None
    client = writer._zk._connection.client
    client.delete(writer._zk.at("generation"))
    client.create(writer._zk.at("generation"))
    client.set(writer._zk.at("tree", "%2Fa"), b"0")
    for look in (store.tree, store.generation, store.settled_generation, lambda: store.put("/b", b"2")):
        with must_raise(UnavailableError, "an older tree was read", match=f"went back from generation {before} to 0"):
            look()


def another_root_is_refused(place: Place) -> None:
    """S8: the root is another one under the same name."""
    url, _, leases = place.root.split(" ")
    other = Place(place.server, f"{url} {'0' * 32} {leases}", place.stack)
    with must_raise(RefusedError, "the root of another cluster was opened", match="is the root of another cluster"):
        other.open()


def a_dead_process_changes_nothing(place: Place) -> None:
    """S9: the session is over, and the process's connection goes on."""
    store, observer = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3), place.open()
    session = store.open_session("tserver", "h:1")
    store.put("/a", b"1")
    observer.end_session(session.session_id, own_token())
    with must_raise(LeaseLostError, "a process that counts as dead changed the tree"):
        store.put("/a", b"2")
    with must_raise(LeaseLostError, "a process that counts as dead changed the tree"):
        store.delete("/a")
    assert observer.children("/") == {"/a": observer.get("/a")}


def a_large_value_is_refused_before_it_is_sent(place: Place) -> None:
    """S10: a server drops the connection of whoever sends more than it takes."""
    store = place.open()
    session = store.open_session("tserver", "h:1")
    connection = store._zk._connection
    for send in (
        lambda: store.put("/a", bytes(1_100_000)),
        lambda: store.campaign(session, {"1": os.urandom(1_100_000)}),
    ):
        try:
            send()
        except InvalidInputError:
            continue
        except BookkeeperError as error:
            raise AssertionError(f"the value was sent: {error}") from error
    assert store._zk._connection is connection, "the connection was lost"
    assert session.is_valid()
    assert store.children("/") == {}


def many_candidacies_are_split(place: Place) -> None:
    """S10: all candidacies of a host with very many replicas are more than a server takes at once."""
    store, observer = place.open(), place.open()
    session = store.open_session("tserver", "h:1")
    wanted = {f"1/t-{number:05}": os.urandom(150) for number in range(10_000)}
    try:
        store.campaign(session, wanted)
    except BookkeeperError as error:
        raise AssertionError(f"a host with many replicas can't stand: {error}") from error
    found = {election: one for election, (one,) in observer.candidates().items()}
    assert {election: one.value for election, one in found.items()} == wanted
    fewer = {election: value for election, value in wanted.items() if election > "1/t-05000"} | {"2/t-00000": b"new"}
    store.campaign(session, fewer)
    again = {election: one for election, (one,) in observer.candidates().items()}
    assert {election: one.value for election, one in again.items()} == fewer
    assert all(again[election] == found[election] for election in again.keys() & found.keys())
    assert again["2/t-00000"].order > max(one.order for one in found.values())
    session.close()
    observer.forget_session(session.session_id)
    assert observer._zk.names(observer._zk.at("candidates")) == []


def each_call_ends_in_time(place: Place) -> None:
    """S11: the server stands still."""
    store = place.open(lease_ms=SHORT_LEASE_MS)
    calls: list[Callable[[], object]] = [
        store.generation,
        lambda: store.get("/a"),
        lambda: store.put("/a", b"2"),
        lambda: store.children("/"),
        lambda: store.sessions("tserver"),
        store.leader,
        store.candidates,
        lambda: store.raise_number("n", 1),
        lambda: store.open_session("tserver", "h:1"),
    ]

    def ended_in_time(call: Callable[[], object]) -> bool:
        began = time.perf_counter()
        with must_raise(TransientError, "a server that stands still answered"):
            call()
        return time.perf_counter() - began < 4

    def check() -> None:
        wait_until(lambda: store.put("/a", b"1") > 0, "a server that runs")
        with place.server.stopped(), ThreadPoolExecutor(len(calls)) as threads:
            assert all(threads.map(ended_in_time, calls)), "a call took longer than it may"

    undisturbed(check)
    wait_until(lambda: store.get("/a") is not None, "an answer")


def a_lease_file_ends_only_a_session_of_its_token(place: Place) -> None:
    """A file in the directory of one host names a live session of another: somebody wrote it."""
    other = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    session = other.open_session("tserver", "h:1")
    store, leases = place.open(), HostLeases(place.leases.with_name("host2"), LEASE_MS, SystemClock(), new_token())
    record = store._zk.at("sessions", session.session_id)
    (node,) = store._zk.read(record)
    assert node is not None
    for token in ("", leases.token):
        write_lease(leases, session.session_id, token)
        end_abandoned(leases, store.end_session)
        assert is_alive(store, session), "a lease file without the token ended a session"
        assert list(leases.directory.iterdir()) == []
    store.end_session(session.session_id, session_of(node.content).token_digest)
    assert is_alive(store, session), "what every reader of the tree knows ended a session"
    look = store._zk.read

    def replaced_after_look(*paths: str) -> list[Node | None]:
        found = look(*paths)
        other._zk.commit(Write(record, node.content, node.version))
        return found

    store._zk.read = replaced_after_look  # type: ignore[method-assign]
    store.end_session(session.session_id, own_token())
    store._zk.read = look  # type: ignore[method-assign]
    assert is_alive(store, session), "a session was ended by a record that was replaced"
    write_lease(leases, session.session_id, own_token())
    end_abandoned(leases, store.end_session)
    assert not is_alive(store, session)


def write_lease(leases: HostLeases, session_id: str, token: str) -> None:
    """A lease file of a process that is gone."""
    leases.directory.mkdir(exist_ok=True)
    path = leases.directory / f"{session_id}.1.{leases.directory.stat().st_ino}"
    path.write_bytes(LeaseRecord(read_boot_id(), 1, token).encode())


def a_change_whose_answer_is_lost_is_known(place: Place) -> None:
    """S11: the transaction is made, and the connection ends before the answer."""
    proxy = place.proxy()
    store = place.open(f"{proxy.host}:{proxy.port}")
    commit = store._zk.commit

    def cut(*changes: Change) -> list[int]:
        store._zk.commit = commit  # type: ignore[method-assign]
        proxy.lose_answer()
        return commit(*changes)

    store._zk.commit = cut  # type: ignore[method-assign]
    try:
        version = store.put("/a", b"1", 0)
    except BookkeeperError as error:
        raise AssertionError(f"a change was made, and its caller was told that it was not: {error}") from error
    assert version == 1
    assert [one.version for one in place.open().children("/").values()] == [1]


def a_look_at_what_has_not_changed_costs_one_packet(place: Place) -> None:
    """An idle process looks at the same things again and again."""
    store, leading = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3), place.open(lease_ms=HOUR_MS)
    assert leading.try_lead(leading.open_session("master", "h:1")) is not None
    candidate = store.open_session("master", "h:2")
    looks: list[Callable[[], object]] = [
        lambda: store.sessions("master", "tserver", "replay"),
        store.leader,
        store.candidates_version,
        store.tree,
        store.generation,
        lambda: store.number("n"),
    ]
    for look in looks:
        look()
    asked = requests_of(store)
    for look in looks:
        look()
    assert asked == ["Sync"] * len(looks), f"a look at what has not changed costs more than one packet: {asked}"
    asked.clear()
    assert [store.try_lead(candidate) for _ in range(10)] == [None] * 10
    assert not asked, "a master that stands by asks although nothing has changed"


def a_successor_knows_who_has_been_silent(place: Place) -> None:
    """A machine dies, and with it the leading master and a tserver."""
    clock = TestClock()
    there = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    candidate = place.open(clock=clock, lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    leader, tserver = there.open_session("master", "h:1"), there.open_session("tserver", "h:2")
    own = renewing(candidate.open_session("master", "h:3"))
    assert there.try_lead(leader) is not None
    assert candidate.try_lead(own) is None
    clock.jump(HOUR_MS // 2)
    assert own._renew()
    assert candidate.try_lead(own) is None
    clock.jump(HOUR_MS // 2 + MARGIN_MS + 1_000)
    assert candidate.try_lead(own) is not None
    assert not is_alive(candidate, tserver), "the tablets of a dead machine wait for a second lease"


def requests_of(store: ZooKeeperCoordination) -> list[str]:
    """The requests of the store from now on."""
    client, asked = store._zk._connection.client, list[str]()
    call = client._call

    def noted(request: object, answer: object) -> object:
        asked.append(type(request).__name__)
        return call(request, answer)

    client._call = noted
    return asked


def news_are_told(place: Place) -> None:
    """A process that asks no server until there are news."""
    store = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    candidate, other = store.open_session("master", "h:2"), place.open(lease_ms=HOUR_MS)
    leader = other.open_session("master", "h:1")
    assert other.try_lead(leader) is not None
    assert store.try_lead(candidate) is None
    assert {info.session_id for info in store.sessions("master")} == {candidate.session_id, leader.session_id}
    assert not store.has_session_news()
    other.open_session("tserver", "h:3")
    wait_for_news(store.has_session_news)
    assert len(store.sessions("master", "tserver")) == 3
    leader.close()
    wait_for_news(store.has_session_news)
    wait_for_news(lambda: store.try_lead(candidate) is not None)


def the_end_of_a_lease_is_news(place: Place) -> None:
    """A process asks no server until there are news, and another one renews nothing."""
    clock = TestClock()
    there = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    store = place.open(clock=clock, lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3)
    silent = there.open_session("tserver", "h:1")
    assert is_alive(store, silent)
    clock.jump(HOUR_MS // 2)
    assert store.sessions("tserver")
    clock.jump(HOUR_MS // 2 - 60_000)
    assert not store.has_session_news()
    clock.jump(MARGIN_MS + 61_000)
    assert store.has_session_news(), "the tablets of a dead machine wait for the next look at all sessions"
    assert not is_alive(store, silent)


def wait_for_news(has_come: Callable[[], bool]) -> None:
    try:
        wait_until(has_come, "news", 3)
    except AssertionError as error:
        raise AssertionError("a change was not told") from error


LAWS: dict[str, tuple[Callable[[Place], None], str]] = {
    "zookeeper-ephemeral-lives": (a_session_outlives_the_session_of_its_connection, "a live session counts as dead"),
    "zookeeper-lives-by-first-look": (a_renewal_after_a_pause_counts, "a live session counts as dead"),
    "zookeeper-death-at-any-version": (a_renewal_before_the_verdict_counts, "a live session counts as dead"),
    "zookeeper-lease-not-on-the-host": (
        the_host_ends_its_overdue_processes_without_zookeeper,
        "the host ends a process that renews its lease",
    ),
    "zookeeper-waits-for-its-server": (a_dark_server_ends_no_session, "a server that went dark ended a session"),
    "zookeeper-a-server-takes-all-the-time": (
        a_machine_without_power_leaves_time_for_the_other_servers,
        "dark servers took all of the time of a call",
    ),
    "zookeeper-session-in-two-steps": (a_session_comes_in_one_step, "a session was dead before it lived"),
    "zookeeper-ends-without-token": (
        a_lease_file_ends_only_a_session_of_its_token,
        "a lease file without the token ended a session",
    ),
    "zookeeper-ends-by-a-look": (
        a_lease_file_ends_only_a_session_of_its_token,
        "a session was ended by a record that was replaced",
    ),
    "zookeeper-bare-serials": (a_restored_root_gives_out_no_id_again, "an id came again"),
    "zookeeper-tree-goes-back": (a_tree_that_went_back_is_not_read, "an older tree was read"),
    "zookeeper-any-root": (another_root_is_refused, "the root of another cluster was opened"),
    "zookeeper-dead-write": (a_dead_process_changes_nothing, "a process that counts as dead changed the tree"),
    "zookeeper-any-size": (a_large_value_is_refused_before_it_is_sent, "the value was sent"),
    "zookeeper-candidacies-in-one-node": (many_candidacies_are_split, "a host with many replicas can't stand"),
    "zookeeper-calls-without-limit": (each_call_ends_in_time, "a call took longer than it may"),
    "zookeeper-lost-answer-is-no": (
        a_change_whose_answer_is_lost_is_known,
        "a change was made, and its caller was told that it was not",
    ),
    "zookeeper-reads-again": (a_look_at_what_has_not_changed_costs_one_packet, "costs more than one packet"),
    "zookeeper-lists-again": (a_look_at_what_has_not_changed_costs_one_packet, "costs more than one packet"),
    "zookeeper-candidates-ask": (a_look_at_what_has_not_changed_costs_one_packet, "asks although nothing has changed"),
    "zookeeper-forgets-the-order": (
        a_successor_knows_who_has_been_silent,
        "the tablets of a dead machine wait for a second lease",
    ),
    "zookeeper-no-news": (news_are_told, "a change was not told"),
    "zookeeper-silence-is-no-news": (
        the_end_of_a_lease_is_news,
        "the tablets of a dead machine wait for the next look at all sessions",
    ),
}
"""By the switch that takes the cure away: the law, and the words of its failure then."""


@pytest.mark.parametrize("switch", LAWS)
def test_a_law_of_the_store_holds(switch: str, place: Place) -> None:
    law, _ = LAWS[switch]
    law(place)


SLOW = ("zookeeper-waits-for-its-server", "zookeeper-calls-without-limit", "zookeeper-any-size")


@pytest.mark.parametrize("switch", [pytest.param(one, marks=pytest.mark.long if one in SLOW else ()) for one in LAWS])
def test_a_law_of_the_store_is_red_without_its_cure(switch: str, place: Place) -> None:
    law, words = LAWS[switch]
    with fault(switch), pytest.raises(AssertionError, match=words):
        law(place)


# ---- the price


def test_the_tree_is_read_by_its_changes(place: Place) -> None:
    store, writer = place.open(lease_ms=HOUR_MS), place.open(lease_ms=HOUR_MS)
    for number in range(1_000):
        writer.put(f"/tables/{number}", b"x" * 100)
    read_at: list[str] = []
    most, read = 0, store._zk.read

    def counted(*paths: str) -> list[Node | None]:
        nonlocal most
        most = max(most, len(paths))
        read_at.extend(paths)
        return read(*paths)

    store._zk.read = counted  # type: ignore[method-assign]
    assert len(store.children("/tables/")) == 1_000
    assert most <= READ_NODES_MAX, "a call asks for a whole tree, and has the time of a call for it"
    read_at.clear()
    writer.put("/tables/7", b"new")
    assert store.children("/tables/")["/tables/7"].value == b"new"
    assert len(read_at) <= 5, f"one changed value costs {read_at}"
    children, generation = (packets(place.server, call) for call in (lambda: store.children("/"), store.generation))
    assert children <= 3 * generation, f"packets for 100 calls: children {children}, generation {generation}"


def packets(server: ZooKeeperServer, call: Callable[[], object]) -> int:
    """What the server gets and sends for a hundred calls."""
    before = server.packets
    for _ in range(100):
        call()
    return server.packets - before


# ---- the host's lease files


def test_the_session_of_a_killed_process_is_ended_by_its_host_and_not_by_a_copy_of_it(
    place: Place, tmp_path: Path
) -> None:
    store = place.open()
    leases = HostLeases(place.leases, LEASE_MS, SystemClock())
    with CoordinationProcess("zookeeper", place.root) as member:
        session_id = member.ask("open", "tserver", "h:1")
        (seen,) = leases.processes()
        assert seen.session_id == session_id
        assert leases.abandoned() == []
        copied = tmp_path / "copied"
        copied.mkdir()
        for path in place.leases.iterdir():
            (copied / path.name).write_bytes(path.read_bytes())
        ended: list[str] = []
        end_abandoned(HostLeases(copied, LEASE_MS, SystemClock()), lambda one, _token: ended.append(one))
        assert ended == []
        assert list(copied.iterdir()) == []
        os.kill(seen.pid, signal.SIGKILL)
        wait_until(lambda: leases.abandoned() != [], "the lock's end")
        assert None not in (found := [leases.session_of(path) for path in leases.abandoned()])
        assert (session_id, leases.token) not in found, "the process has the token of another one"
        end_abandoned(leases, store.end_session)
        assert [info.alive for info in store.sessions("tserver")] == [False]
        assert list(place.leases.iterdir()) == []


def test_a_session_that_stays_is_told_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    session = place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3).open_session("tserver", "h:1")
    store, leases = place.open(), HostLeases(place.leases.with_name("host2"), LEASE_MS, SystemClock())
    write_lease(leases, session.session_id, new_token())
    for _ in range(3):
        end_abandoned(leases, store.end_session)
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said.startswith(f"session {session.session_id} is not ended: ")


def test_a_process_whose_lease_file_was_removed_gives_up(place: Place) -> None:
    """R15: its supervisor could not end it any more."""
    session = renewing(place.open(lease_ms=HOUR_MS, renew_ms=HOUR_MS // 3).open_session("tserver", "h:1"))
    assert session._renew()
    for path in place.leases.iterdir():
        path.unlink()
    assert not session._renew()
    assert not session.is_valid()


def test_a_file_that_was_never_finished_is_no_lease(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", LEASE_MS, SystemClock())
    leases.clear()
    assert not leases.processes()
    assert not leases.abandoned()
    own = leases.make("tserver-1-a", SystemClock().boot_ns())
    renewed = own.path.read_bytes()
    own.file.write(SystemClock().boot_ns())
    assert len(own.path.read_bytes()) == len(renewed)
    (tmp_path / "leases" / ".tserver-2-b.1.1").touch()
    assert [process.session_id for process in leases.processes()] == ["tserver-1-a"]
    assert leases.abandoned() == []
    leases.clear()
    own.file.close()
    assert [leases.session_of(path) for path in leases.abandoned()] == [("tserver-1-a", leases.token)]
    own.path.write_bytes(b"rubbish")
    assert [leases.session_of(path) for path in leases.abandoned()] == [None]
    own.remove()
    assert list((tmp_path / "leases").iterdir()) == []


# ---- small things


def renewing(session: Session) -> ZooKeeperSession:
    assert isinstance(session, ZooKeeperSession)
    return session
