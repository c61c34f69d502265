"""Each file is found where the home of its session is, and a question that came too early is asked again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.log_homes.host_logs import AWAY, Hosts
from bookkeeper.log_homes.log_volume import LogVolume, OwnLogs
from bookkeeper.log_homes.opening import SessionLogs, are_sealed, open_homes
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import session_of_numbered
from tests.support.books import sqlite_books
from tests.support.faults import fault

HOME = LogHome("host2", "9f3a")
LOG = "wal/s1/000001.wal"


@pytest.fixture
def books(tmp_path: Path) -> Iterator[SqliteMetadataTable]:
    made = sqlite_books(tmp_path / "books.db")
    yield made
    made.close()


@pytest.fixture
def shared(tmp_path: Path) -> LocalVolume:
    return LocalVolume(tmp_path / "shared")


def no_host(home: LogHome) -> str:
    """Every other host is away."""
    assert home.host
    raise UnavailableError(AWAY)


def no_call(address: str) -> TServer:
    """Nobody has an address."""
    raise AssertionError(address)


HOSTS = Hosts(no_host, no_call, SystemClock())


@pytest.mark.parametrize(
    ("name", "session"),
    [
        (LOG, "s1"),
        (LOG + ".seal", "s1"),
        (LOG + ".", "s1"),
        ("wal/s1/1000000.wal", "s1"),
        ("wal/s1/taken-000001.wal", None),
        ("wal/import/0a-000001.wal", None),
        ("wal/s1/000001.parquet", None),
        ("wal/s1/a/000001.wal", None),
        ("tables/1/t-0001/000001.wal", None),
        ("wal/s1", None),
    ],
)
def test_numbered_logs_have_a_home_and_other_files_have_none(name: str, session: str | None) -> None:
    assert session_of_numbered(name) == session


def test_files_beside_a_log_lie_with_it_and_others_on_the_volume(
    books: MetadataTable, shared: LocalVolume, tmp_path: Path
) -> None:
    homes = open_homes(books, shared)
    homes.put("s1", HOME)
    own = LocalVolume(tmp_path / "host2")
    volume = LogVolume(shared, homes, HOSTS, OwnLogs(HOME, own))
    relay, segment = "wal/s1/taken-0a.wal", "tables/1/t-0001/a"
    for name in (LOG, LOG + ".seal", relay, segment):
        volume.create(name, [b"x"]).close()
    assert own.list_names("") == [LOG, LOG + ".seal"]
    assert shared.list_names("") == [segment, relay]
    assert volume.list_names("wal/") == sorted([LOG, LOG + ".seal", relay])
    assert sorted(volume.entries("wal/s1")) == sorted([LOG, LOG + ".seal", relay])
    assert volume.list_directories("wal") == ["s1"]
    volume.delete([LOG, relay])
    assert own.list_names("") == [LOG + ".seal"]
    assert shared.list_names("") == [segment]


def test_r12_a_session_that_was_asked_about_too_early_is_asked_about_again(
    books: MetadataTable, shared: LocalVolume
) -> None:
    reader = open_homes(books, shared)
    assert reader.of("s1") is None
    open_homes(books, shared).put("s1", HOME)
    if reader.of("s1") != HOME:
        raise AssertionError("R12: a session that was asked about too early has no logs for ever")


def test_a_home_that_is_guessed_is_noticed(books: MetadataTable, shared: LocalVolume) -> None:
    with fault("homes-are-guessed"), pytest.raises(AssertionError, match="R12: a session that was asked about"):
        test_r12_a_session_that_was_asked_about_too_early_is_asked_about_again(books, shared)


class CountedReads(SqliteMetadataTable):
    """Counts the rows that are read."""

    reads = 0

    def get(self, *arguments: object, **options: object) -> Row | None:
        self.reads += 1
        return super().get(*arguments, **options)  # type: ignore[arg-type]


def test_logs_on_the_volume_cost_one_read_of_the_books_for_each_session(shared: LocalVolume, tmp_path: Path) -> None:
    sqlite_books(tmp_path / "counted.db").close()
    books = CountedReads(tmp_path / "counted.db", "tests")
    volume = LogVolume(shared, open_homes(books, shared), HOSTS)
    for number in range(1, 4):
        shared.create(f"wal/s1/{number:06d}.wal", [b"x"]).close()
    for _ in range(100):
        for number in range(1, 4):
            assert volume.exists(f"wal/s1/{number:06d}.wal")
            assert volume.read(f"wal/s1/{number:06d}.wal.seal", 9) is None
    assert volume.read("tables/1/a", 9) is None
    assert books.reads == 1
    books.close()


def test_a_log_is_sealed_by_the_seal_beside_it_alone() -> None:
    assert are_sealed([])
    assert are_sealed([LOG, LOG + ".seal", LOG + ".fence"])
    assert not are_sealed([LOG, LOG + ".fence"])
    assert not are_sealed([LOG, LOG + ".seal", "wal/s1/000002.wal"])


def test_where_a_process_makes_its_own_logs_needs_no_read_of_the_books(
    books: SqliteMetadataTable, shared: LocalVolume
) -> None:
    homes = open_homes(books, shared)
    SessionLogs("s1", shared).begin(homes)
    SessionLogs("s2", shared, HOME).begin(homes)
    books.close()
    volume = LogVolume(shared, homes, HOSTS)
    assert [volume.home_of(f"wal/{session}/000001.wal") for session in ("s1", "s2")] == [None, HOME]
