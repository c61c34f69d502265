"""The promises of every replica system (``bookkeeper.peers.protocol``), in memory, over sockets and in files."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.config.file import new_settings
from bookkeeper.errors import GapError, RefusedError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.parquet import ParquetSystem
from bookkeeper.peers.parquet.file_store import open_store
from bookkeeper.peers.protocol import (
    Acked,
    BlockFacts,
    InstalledSystem,
    Message,
    MessageBlock,
    Peer,
    ReplicaSession,
    ReplicaSystem,
    RetryLimits,
)
from bookkeeper.peers.registry import BUILT_IN, GROUP, Registry, retry_limits
from bookkeeper.security.file_roots import ANYWHERE
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.cluster import THIRD_PARTY
from tests.support.directory_peer import DirectoryPeer, remote_twin
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.thrift_peer import ThriftPeer
from tests.support.wal_files import EAST, NORTH, WEST, records

ROOT = Path(__file__).parents[2]
NOON_MS = 1_795_348_800_000
STREAM = StreamKey(WEST, "w", "t1", "r1", 1)


def block(first: int, last: int) -> MessageBlock:
    rows = [b"%06d" % n for n in range(first, last + 1)]
    return MessageBlock(first, last, encode_batch(records(rows)), len(rows), rows[0], rows[-1])


def message(after: int, to: int, acked: int | None = None) -> Message:
    facts = BlockFacts(NOON_MS, after + 1)
    return Message((WEST,), after if acked is None else acked, after, to, (block(after + 1, to),), (facts,))


def rows(first: int, last: int) -> list[bytes]:
    return [b"%06d" % n for n in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Setting:
    """A replica system and the peer behind it."""

    system: ReplicaSystem
    quorum: str
    received: MemoryPeer | DirectoryPeer | LedgerPeer
    limits: RetryLimits
    instance_id: str = EAST

    def open(self, stream: StreamKey = STREAM, instance_id: str = "") -> ReplicaSession:
        return self.system.open(Peer("east", self.quorum, instance_id or self.instance_id), stream, self.limits)


@dataclass(frozen=True, slots=True)
class LedgerPeer:
    """The rows in the replica system of another party."""

    path: Path

    @property
    def rows(self) -> list[bytes]:
        with sqlite3.connect(self.path) as books:
            return [row for (row,) in books.execute("SELECT row FROM entry ORDER BY rowid")]

    @property
    def messages(self) -> list[bytes]:
        return self.rows


SYSTEMS = ("memory", "bookkeeper", "parquet", "parquet-remote", "third-party")


@pytest.fixture(params=SYSTEMS)
def setting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    received = MemoryPeer(EAST, splits=[b"000010"])
    base = new_settings(tmp_path, "west", instance_id=WEST)
    limits = replace(retry_limits(base), message_retries=0)
    if request.param == "third-party":
        monkeypatch.syspath_prepend(THIRD_PARTY)
        ledger, place = Registry().installed("ledger"), str(tmp_path / "books.db")
        yield Setting(ledger, place, LedgerPeer(tmp_path / "books.db"), limits, ledger.prepare(place).instance_id)
        return
    if request.param.startswith("parquet"):
        place = str(tmp_path / "lake")
        system = ParquetSystem(opener=open_store if request.param == "parquet" else remote_twin, roots=ANYWHERE)
        instance_id = system.prepare(place).instance_id
        yield Setting(system, place, DirectoryPeer(tmp_path / "lake"), limits, instance_id)
        return
    if request.param == "memory":
        yield Setting(MemorySystem({"east": received}), "east", received, limits)
        return
    with ThriftPeer(received) as peer:
        yield Setting(BookkeeperSystem(base), peer.quorum, received, limits)


def test_every_replica_system_of_this_package_is_tried() -> None:
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    missing = {BUILT_IN, *offered} - set(SYSTEMS)
    assert not missing, f"make {missing} parameters of the fixture in this file"


@pytest.mark.parametrize("kind", ["parquet", "parquet-remote", "third-party"])
def test_only_a_definition_makes_a_place_a_peer(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(THIRD_PARTY)
    system: InstalledSystem = (
        Registry().installed("ledger")
        if kind == "third-party"
        else ParquetSystem(opener=open_store if kind == "parquet" else remote_twin, roots=ANYWHERE)
    )
    place = tmp_path / "place"
    with pytest.raises(UnavailableError):
        system.identify(str(place))
    assert list(tmp_path.rglob("*")) in ([], [place])
    assert system.prepare(str(place)) == system.prepare(str(place)) == system.identify(str(place))


def test_what_is_shipped_arrives_in_order_and_is_acknowledged_to_its_end(setting: Setting) -> None:
    session = setting.open()
    assert session.ship(message(0, 8)) == Acked(8, 8, 0)
    assert session.ship(message(8, 20)) == Acked(20, 12, 0)
    assert setting.received.rows == rows(1, 20)


def test_a_message_again_changes_nothing_through_whatever_session(setting: Setting) -> None:
    session = setting.open()
    session.ship(message(0, 20))
    assert session.ship(message(0, 20)) == Acked(20, 0, 20)
    assert setting.open().ship(message(0, 20)) == Acked(20, 0, 20)
    assert setting.received.rows == rows(1, 20)


def test_streams_are_apart_by_incarnation_and_run(setting: Setting) -> None:
    setting.open().ship(message(0, 5))
    setting.open(replace(STREAM, incarnation=2)).ship(message(0, 5))
    setting.open(replace(STREAM, run_id="again")).ship(message(0, 5))
    assert setting.received.rows == rows(1, 5) * 3


def test_a_message_above_what_is_there_is_declined_with_the_high_water(setting: Setting) -> None:
    session = setting.open()
    session.ship(message(0, 5))
    with pytest.raises(GapError) as caught:
        session.ship(message(7, 9, acked=0))
    assert caught.value.high_water == 5
    assert setting.received.rows == rows(1, 5)


def test_a_fact_raises_the_high_water(setting: Setting) -> None:
    assert setting.open().ship(message(7, 9, acked=7)) == Acked(9, 2, 0)


@pytest.mark.parametrize("setting", ["memory", "bookkeeper"], indirect=True)
def test_a_failure_of_one_tablet_is_an_error_and_a_resend_completes_it(setting: Setting) -> None:
    assert isinstance(setting.received, MemoryPeer)
    setting.received.trouble = lambda _: frozenset({1})
    session = setting.open()
    with pytest.raises(UnavailableError):
        session.ship(message(0, 20))
    setting.received.trouble = lambda _: frozenset()
    assert session.ship(message(0, 20)) == Acked(20, 10, 10)
    assert setting.received.rows == rows(1, 20)


def test_nothing_is_shipped_to_another_instance_at_the_address(setting: Setting) -> None:
    with pytest.raises(RefusedError, match=setting.instance_id):
        setting.open(instance_id=NORTH).ship(message(0, 5))
    assert setting.received.messages == []


def test_a_cluster_declines_what_has_been_there(setting: Setting) -> None:
    with pytest.raises(RefusedError):
        setting.open().ship(replace(message(0, 5), provenance=(setting.instance_id, WEST)))
    assert setting.received.rows == []


def test_closing_twice_is_nothing(setting: Setting) -> None:
    session = setting.open()
    session.ship(message(0, 5))
    session.close()
    session.close()
