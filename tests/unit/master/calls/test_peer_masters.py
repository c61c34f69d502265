"""Peers that are no clusters of ours: the master asks their replica system, and no code of another package ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.coordination.masters import MasterFinder
from bookkeeper.errors import (
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.master.calls.peer_masters import PeerMasters, refuse_strange
from bookkeeper.model import StreamKey
from bookkeeper.peers import registry
from bookkeeper.peers.protocol import Identity, Peer, ReplicaSession, RetryLimits
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.file_roots import ANYWHERE

OWN = "instance-west"
STREAM = StreamKey(OWN, "w", "1", "cities", 1)


@dataclass(slots=True)
class Shelf:
    """A replica system that records its calls, and fails on demand."""

    identity: Identity = field(default_factory=lambda: Identity("instance-shelf", "shelf"))
    error: Exception | None = None
    asked: list[tuple[object, ...]] = field(default_factory=list)
    name: str = "shelf"

    def prepare(self, quorum: str) -> Identity:
        self._ask("prepare", quorum)
        return self.identity

    def identify(self, quorum: str) -> Identity:
        self._ask("identify", quorum)
        return self.identity

    def resolve_table(self, peer: Peer, name: str) -> str:
        self._ask("resolve_table", peer, name)
        return f"{name}-there"

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:
        self._ask("stream_done", peer, tuple(streams))

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> ReplicaSession:
        raise AssertionError(f"a master opens no session: {peer}, {stream}, {limits}")

    def _ask(self, *question: object) -> None:
        self.asked.append(question)
        if self.error is not None:
            raise self.error


class Bare:
    """A replica system of an earlier version."""

    name = "bare"


SHELF = Shelf()


def make_shelf() -> Shelf:
    return SHELF


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    global SHELF
    SHELF = Shelf()
    points = [
        EntryPoint("shelf", f"{__name__}:make_shelf", registry.GROUP),
        EntryPoint("bare", f"{__name__}:Bare", registry.GROUP),
        EntryPoint("gone", "no_such_module:Thing", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(points).select(group=group))
    return SHELF


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[PeerMasters]:
    settings = new_settings(tmp_path, "west", instance_id=OWN)
    pool = RpcPool(Hello(PROTOCOL_VERSION, OWN, "west", "master"), settings.rpc, SystemClock())
    yield PeerMasters(pool, OWN, ANYWHERE, MasterFinder(SystemClock()))
    pool.close()


def test_a_replica_system_gives_identity_and_table_and_gets_ended_streams(peers: PeerMasters, shelf: Shelf) -> None:
    found = peers.prepare("shelf://attic/left")
    assert found == peers.contact("shelf://attic/left")
    assert (found.instance_id, found.name, found.leader) == ("instance-shelf", "shelf", "")
    assert peers.resolve_table("books", found, "cities") == "cities-there"
    peers.tell_done("books", "shelf://attic/left", "instance-shelf", [STREAM])
    place = Peer("books", "attic/left", "instance-shelf")
    assert shelf.asked == [
        ("prepare", "attic/left"),
        ("identify", "attic/left"),
        ("resolve_table", place, "cities"),
        ("identify", "attic/left"),
        ("stream_done", place, (STREAM,)),
    ]


def test_another_instance_at_the_place_is_refused_and_hears_nothing(peers: PeerMasters, shelf: Shelf) -> None:
    with pytest.raises(RefusedError, match="instance-shelf"):
        peers.tell_done("books", "shelf://attic", "instance-before", [STREAM])
    assert [question[0] for question in shelf.asked] == ["identify"]


def test_a_peer_that_says_nothing_of_itself_or_that_it_is_this_cluster_is_refused(
    peers: PeerMasters, shelf: Shelf
) -> None:
    shelf.identity = Identity("", "shelf")
    with pytest.raises(IncompatibleError, match="no instance id"):
        peers.contact("shelf://attic")
    shelf.identity = Identity(OWN, "shelf")
    with pytest.raises(RefusedError, match="this cluster itself"):
        peers.contact("shelf://attic")


def test_errors_of_the_system_are_passed_on_and_others_become_one_of_ours(peers: PeerMasters, shelf: Shelf) -> None:
    shelf.error = UnavailableError("the attic is dark")
    with pytest.raises(UnavailableError, match="dark"):
        peers.contact("shelf://attic")
    shelf.error = ZeroDivisionError("by nought")
    with pytest.raises(PermanentError, match="shelf failed in an unforeseen way: ZeroDivisionError: by nought"):
        peers.contact("shelf://attic")


@pytest.mark.usefixtures("shelf")
def test_a_system_that_is_not_there_or_does_not_fit_is_named(peers: PeerMasters) -> None:
    with pytest.raises(InvalidInputError, match=r"cellar://x: no replica system 'cellar'.*bare.*shelf"):
        peers.contact("cellar://x")
    with pytest.raises(IncompatibleError, match="bare is no InstalledSystem"):
        peers.contact("bare://x")
    with pytest.raises(IncompatibleError, match=r"gone .* can't be loaded"):
        peers.contact("gone://x")
    with pytest.raises(NotFoundError):
        registry.Registry().system("cellar")


def test_the_parquet_system_is_installed(peers: PeerMasters, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"_bookkeeper\.json: the directory is gone"):
        peers.contact(f"parquet://{tmp_path}/lake")
    assert not (tmp_path / "lake").exists()
    found = peers.prepare(f"parquet://{tmp_path}/lake")
    assert found.instance_id == peers.contact(f"parquet://file://{tmp_path}/lake").instance_id
    assert peers.resolve_table("lake", found, "cities") == "cities"
    peers.tell_done("lake", f"parquet://{tmp_path}/lake", found.instance_id, [STREAM])
    with pytest.raises(InvalidInputError):
        peers.contact("parquet://relative/path")


@pytest.mark.parametrize("strange", ["", "\x00", "a" * 300, "../..", "a b"])
def test_a_cluster_that_can_be_none_is_refused(strange: str) -> None:
    for hello in (Hello(PROTOCOL_VERSION, strange, "east", "master"), Hello(PROTOCOL_VERSION, "i-east", strange, "m")):
        with pytest.raises(IncompatibleError, match="no cluster can be that"):
            refuse_strange("127.0.0.1:1", hello)
    refuse_strange("127.0.0.1:1", Hello(PROTOCOL_VERSION, "i-east", "east", "master"))
