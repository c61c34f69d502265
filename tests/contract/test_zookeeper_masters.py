"""Clients and peers find a cluster by its root in ZooKeeper: what the root shows, who believes it, and what goes wrong.

A real server runs in one JVM. :data:`LAWS` has each law with the switch that takes its cure away. Rule: R23.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl
from msgspec.structs import replace

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.masters import READ_AGAIN_MS, MasterFinder, read_masters
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.errors import NotAdmittedError, RefusedError, UnavailableError
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.protocol import Peer
from bookkeeper.peers.registry import retry_limits
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.ports import free_ports
from tests.support.faults import fault
from tests.support.local_pair import HASTE
from tests.support.masters import LocalMaster
from tests.support.memory_peer import MemoryPeer
from tests.support.must_raise import must_raise
from tests.support.thrift_peer import ThriftPeer
from tests.support.tservers import wait_until
from tests.support.wal_files import EAST, NORTH, WEST
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.peers.test_bookkeeper_system import STREAM, message

LIMIT_MS = 20_000
SILENT_MS = 2_000
"""The limit where nobody answers."""


@dataclass
class Place:
    """A ZooKeeper, a directory of the test's own, and what is closed at its end."""

    server: ZooKeeperServer
    directory: Path
    stack: ExitStack

    def cluster(self, name: str, **overrides: object) -> Settings:
        """A new cluster whose coordination store is in ZooKeeper."""
        url = f"zk://{self.server.quorum}/{name}-{secrets.token_hex(4)}"
        return init_cluster(self.directory / name, name, overrides={**HASTE, "coordination.url": url, **overrides})

    def root(self, content: object = None) -> str:
        """A root that an attacker made, with this public node; None = no such node."""
        root = f"/{secrets.token_hex(8)}"
        with self.anybody() as client:
            client.create(root)
            if content is not None:
                client.create(f"{root}/masters", json.dumps(content).encode())
        return f"zk://{self.server.quorum}{root}"

    @contextmanager
    def anybody(self) -> Iterator[KazooClient]:
        """A client of ZooKeeper without a user."""
        client = KazooClient(self.server.quorum)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


@pytest.fixture
def place(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(zookeeper, tmp_path, stack)


def moved(settings: Settings) -> LocalMaster:
    """A master of the cluster at another port."""
    return LocalMaster(settings, port=free_ports(1)[0])


# ---- the laws


def masters_that_move_are_followed(place: Place) -> None:
    """A client and a peer know the root alone."""
    east, west = place.cluster("east"), place.cluster("west")
    url = east.coordination.url
    with LocalMaster(west) as asking:
        with LocalMaster(east):
            client = place.stack.enter_context(Client.connect(url))
            assert not client.tables.list()
            assert asking.calls.define_cluster("east", url).quorum == url
        with pytest.raises(UnavailableError, match="says who leads"):
            client._master.find_leader()
        with moved(east) as elsewhere:
            peers = asking.leadership.origins.service.peers
            own = east.instance.instance_id

            def leaders() -> set[str]:
                return {client._master.find_leader(), peers.contact_as("east", url, own).leader}

            try:
                wait_until(lambda: leaders() == {elsewhere.address}, "the new address of the master", 10)
            except AssertionError as error:
                raise AssertionError("a cluster that moved its masters is lost") from error


def everybody_reads_where_masters_are_and_nothing_else(place: Place) -> None:
    """The root belongs to a user."""
    password = place.directory / "password"
    password.write_text("pass word\n")
    password.chmod(0o600)
    server = place.stack.enter_context(ZooKeeperServer(place.directory / "zookeeper", {"west": "pass word"}))
    own = Place(server, place.directory, place.stack)
    overrides: dict[str, object] = {
        **HASTE,
        "coordination.url": f"zk://{server.quorum}/west",
        "coordination.user": "west",
    }
    settings = init_cluster(place.directory / "west", "west", overrides=overrides, password_file=password)
    with LocalMaster(settings) as master, own.anybody() as client:
        try:
            found = read_masters(parse_url(settings.coordination.url), LIMIT_MS)
        except UnavailableError as error:
            raise AssertionError(f"only the cluster itself reads where its masters are: {error}") from error
        assert found.masters == (master.address,)
        content, stat = client.get("/west/masters")
        assert json.loads(content) == {"instance_id": settings.instance.instance_id, "masters": [master.address]}
        with pytest.raises(NoAuthError):
            client.set("/west/masters", content, stat.version)
        for other in ("", "/leader", "/sessions", "/tree", "/generation"):
            with pytest.raises(NoAuthError):
                client.get(f"/west{other}")


def a_root_that_names_another_cluster_gets_nothing(place: Place) -> None:
    """R23: the attacker writes the node, or runs the ZooKeeper; the processes that he names are those of a cluster."""
    settings = new_settings(place.directory / "sender", "west", instance_id=WEST)
    with ThriftPeer(MemoryPeer(NORTH)) as other:
        for named in (NORTH, EAST):
            url = place.root({"instance_id": named, "masters": [other.quorum]})
            limits = replace(retry_limits(settings), message_retries=0)
            session = BookkeeperSystem(settings).open(Peer("east", url, EAST), STREAM, limits)
            with must_raise(RefusedError, "R23: another cluster gets the data", match=f"the caller wants {EAST}"):
                session.ship(message(0, 5))
        assert other.memory.messages == [], "R23: another cluster gets the data"


def a_process_that_takes_the_peers_name_gets_nothing(place: Place) -> None:
    """The attacker's process says that it is the peer, and asks for no secret; the sender has one for the peer."""
    settings = new_settings(place.directory / "sender", "west", instance_id=WEST)
    made = SecretStore(place.directory / "east").make_for_peer("west", "east", EAST, WEST, all_tables=True)
    SecretStore(settings.directory).keep_for_peer("east", made.secret)
    with ThriftPeer(MemoryPeer(EAST)) as other:
        url = place.root({"instance_id": EAST, "masters": [other.quorum]})
        limits = replace(retry_limits(settings), message_retries=0)
        session = BookkeeperSystem(settings).open(Peer("east", url, EAST), STREAM, limits)
        with must_raise(NotAdmittedError, "a process without the peer's secret gets the data", match="does not prove"):
            session.ship(message(0, 5))
        assert other.memory.messages == [], "a process without the peer's secret gets the data"


def a_definition_finds_the_cluster_of_its_secret(place: Place) -> None:
    """R23: the root names a cluster that asks for no secret, and the operator has one of another cluster."""
    west = place.cluster("west")
    made = SecretStore(place.directory / "east").make_for_peer("west", "east", EAST, all_tables=True)
    with LocalMaster(west) as master, ThriftPeer(MemoryPeer(NORTH)) as other:
        (west.directory / "secrets" / "to" / "everybody.secret").unlink()
        SecretStore(west.directory).keep_for_peer("east", made.secret)
        for quorum in (place.root({"instance_id": NORTH, "masters": [other.quorum]}), other.quorum):
            with must_raise(
                RefusedError,
                "R23: another cluster than that of the secret is the peer",
                match=f"is for instance {EAST}",
            ):
                master.calls.define_cluster("east", quorum)
        assert list(master.calls.clusters()) == []


class FalseServer:
    """A server that speaks ZooKeeper's protocol up to a point; a context manager."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connection = self._listener
        self.answered = threading.Event()
        self.url = parse_url(f"zk://127.0.0.1:{self._listener.getsockname()[1]}/east")

    def _serve(self) -> None:
        self._connection, _ = self._listener.accept()
        with self._connection:
            self._connection.recv(4096)
            with suppress(OSError):  # the caller is gone
                self._answer(self._connection)
        self.answered.set()

    def __enter__(self) -> FalseServer:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RDWR)


WELCOME = struct.pack(">iiiqi16s", 36, 0, 2**31 - 1, 7, 16, bytes(16))
"""The answer to a new connection: its time-out is 24 days."""


def a_false_server_fills_no_memory(place: Place) -> None:
    """It begins an answer, and goes on for as long as somebody reads."""
    del place
    sent = 0

    def pour(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(WELCOME + struct.pack(">i", 64 * 2**20))
        while sent < 64 * 2**20:
            connection.sendall(bytes(2**16))
            sent += 2**16

    with FalseServer(pour) as server:
        with pytest.raises(UnavailableError, match=r"does not answer|no server of"):
            read_masters(server.url, LIMIT_MS)
        assert server.answered.wait(60)
        assert sent < 32 * 2**20, "a false server fills the memory of the reader"


def a_false_server_keeps_no_thread(place: Place) -> None:
    """It says that it may be silent for 24 days, and is."""
    del place
    before = kazoo_threads()

    def keep(connection: socket.socket) -> None:
        connection.sendall(WELCOME)
        while connection.recv(4096):
            pass

    with FalseServer(keep) as server:
        with pytest.raises(UnavailableError, match=r"does not answer|no server of"):
            read_masters(server.url, SILENT_MS)
        try:
            wait_until(server.answered.is_set, "the end of the connection", 20)
        except AssertionError as error:
            raise AssertionError("a false server keeps a thread for ever") from error
    wait_until(lambda: not kazoo_threads() - before, "the end of the threads")


def kazoo_threads() -> set[threading.Thread]:
    """Those that talk with servers, and those that end them."""
    return {one for one in threading.enumerate() if "contained" in one.name or one.name == "zookeeper-end"}


LAWS: dict[str, tuple[Callable[[Place], None], str]] = {
    "zookeeper-masters-read-once": (masters_that_move_are_followed, "a cluster that moved its masters is lost"),
    "zookeeper-masters-closed": (
        everybody_reads_where_masters_are_and_nothing_else,
        "only the cluster itself reads where its masters are",
    ),
    "any-cluster-will-do and any-instance-will-do and any-target-will-do": (
        a_root_that_names_another_cluster_gets_nothing,
        "R23: another cluster gets the data",
    ),
    "any-name-will-do": (
        a_process_that_takes_the_peers_name_gets_nothing,
        "a process without the peer's secret gets the data",
    ),
    "definition-with-any-secret": (
        a_definition_finds_the_cluster_of_its_secret,
        "R23: another cluster than that of the secret is the peer",
    ),
    "zookeeper-untrusted-without-bound": (a_false_server_fills_no_memory, "a false server fills the memory"),
    "zookeeper-untrusted-stay": (a_false_server_keeps_no_thread, "a false server keeps a thread for ever"),
}


@pytest.mark.parametrize("law", [law for law, _ in LAWS.values()], ids=[law.__name__ for law, _ in LAWS.values()])
def test_a_law_of_the_public_node_holds(place: Place, law: Callable[[Place], None]) -> None:
    law(place)


SLOW = {"zookeeper-masters-read-once", "zookeeper-untrusted-stay"}
"""Those wait until they are sure that nothing comes."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in LAWS]
)
def test_without_its_rule_a_law_of_the_public_node_is_red(place: Place, name: str) -> None:
    law, broken = LAWS[name]
    with fault(name), pytest.raises(AssertionError, match=broken):
        law(place)


# ---- the cases that go wrong


def _closed(place: Place) -> str:
    """A root whose public node only its maker may read."""
    url = place.root({"instance_id": EAST, "masters": ["h:1"]})
    with place.anybody() as client:
        client.set_acls(f"{parse_url(url).root}/masters", [make_digest_acl("east", "word", all=True)])
    return url


def _away(place: Place) -> str:
    del place
    return f"zk://127.0.0.1:{free_ports(1)[0]}/east"


BAD: dict[str, tuple[Callable[[Place], str], str]] = {
    "no server": (_away, r"no server of .* answers within \d+ ms: correct the addresses, or start that ZooKeeper"),
    "no root": (lambda place: f"zk://{place.server.quorum}/nowhere", "has no node /nowhere: correct the root"),
    "an earlier version": (lambda place: place.root(), "has no node 'masters': .* start it with this version, or name"),
    "a closed node": (_closed, "does not let everybody read its node 'masters': give it the right world:anyone:r"),
    "another node": (lambda place: place.root("hello"), "something else in its node 'masters' .*: correct the root"),
    "no address": (
        lambda place: place.root({"instance_id": EAST, "masters": []}),
        "something else in its node 'masters' .*0 addresses",
    ),
    "bad addresses": (
        lambda place: place.root({"instance_id": EAST, "masters": ["a b:1"]}),
        "'a b:1' is not an address",
    ),
    "a bad instance": (
        lambda place: place.root({"instance_id": "\n", "masters": ["h:1"]}),
        r"no cluster can be '\\n'",
    ),
    "very many": (
        lambda place: place.root({"instance_id": EAST, "masters": [f"h:{n}" for n in range(1, 2_000)]}),
        "it has .* bytes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_root_that_does_not_say_where_masters_are_is_an_error_with_the_next_step(place: Place, case: str) -> None:
    make, words = BAD[case]
    url = make(place)
    with pytest.raises(UnavailableError, match=words):
        read_masters(parse_url(url), SILENT_MS if make is _away else LIMIT_MS)


def test_the_shell_shows_the_reason_and_nothing_is_defined(place: Place) -> None:
    west = place.cluster("west")
    url = f"zk://{place.server.quorum}/nowhere"
    with pytest.raises(UnavailableError, match="has no node /nowhere: correct the root"):
        Client.connect(url, budget_ms=0)
    with LocalMaster(west) as master:
        with pytest.raises(UnavailableError, match=r"cluster east can't be asked .*has no node /nowhere"):
            master.calls.define_cluster("east", url.removeprefix("zk://"))
        with pytest.raises(RefusedError, match="is a master of this cluster itself"):
            master.calls.define_cluster("east", west.coordination.url)
        assert list(master.calls.clusters()) == []


def test_the_quorum_may_be_spelled_without_the_scheme(place: Place) -> None:
    east, west = place.cluster("east"), place.cluster("west")
    url = east.coordination.url
    with LocalMaster(west) as master, LocalMaster(east):
        assert master.calls.define_cluster("east", url.removeprefix("zk://")).quorum == url
        master.calls.delete_cluster("east", url.removeprefix("zk://"))
        assert list(master.calls.clusters()) == []


def test_the_root_names_all_masters_and_the_leading_one_first(place: Place) -> None:
    settings = place.cluster("east")
    url = parse_url(settings.coordination.url)
    with LocalMaster(settings) as first:
        second = moved(settings)
        second._thread.start()
        both = (first.address, second.address)
        wait_until(lambda: read_masters(url, LIMIT_MS).masters == both, "both masters, the leading one first")
        first.stop()
        wait_until(lambda: read_masters(url, LIMIT_MS).masters == (second.address,), "the one that leads now")
        second.__exit__(None, None, None)
    assert read_masters(url, LIMIT_MS).instance_id == settings.instance.instance_id


def test_masters_that_are_known_are_asked_without_zookeeper(place: Place) -> None:
    settings = place.cluster("east")
    finder = MasterFinder(SystemClock())
    with LocalMaster(settings) as master:
        found = finder.addresses(settings.coordination.url, LIMIT_MS)
        assert next(found).address == master.address
        threading.Event().wait(READ_AGAIN_MS / 1000)
        with place.server.stopped():
            again = finder.addresses(settings.coordination.url, SILENT_MS)
            assert next(again).address == master.address
            with pytest.raises(UnavailableError, match="no server of"):
                next(again)
