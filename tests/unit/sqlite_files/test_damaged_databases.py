"""Damaged, foreign and lost databases of a cluster: reads return the written rows, or an error names the file."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_changes import next_count, register_instance, set_authorizations, set_read_only
from bookkeeper.coordination.config_tree import Instance
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import CorruptionError, IncompatibleError, NotFoundError, RefusedError
from bookkeeper.metadata.metadata_table import CellKey, Column, RowPut
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.sqlite_file import check_journal
from tests.support.books import OWNER, sqlite_books
from tests.support.faults import fault

REPL, LOG = Column("repl", b"w/1.wal"), Column("log", b"w/1.wal")
DECLARED = (CorruptionError, IncompatibleError, NotFoundError, RefusedError)
PAGE = 4096
ME = "instance-1"


def fill(table: SqliteMetadataTable) -> None:
    """Rows of several pages, with values that were replaced, hidden, deleted before they came, and purged."""
    for rank in (3, 5):
        table.put([RowPut(b"1;row-%03d" % n, {REPL: b"%d" % rank * 30, LOG: b"{}"}) for n in range(150)], rank)
    table.delete([CellKey(b"1;row-%03d" % n, LOG) for n in range(0, 150, 3)], 5)
    table.delete([CellKey(b"1;row-%03d" % n, REPL) for n in range(0, 150, 5)], 4)
    table.purge([CellKey(b"2<", REPL)])


def contents(path: Path) -> list[object]:
    """All that shows, row by row and again by key; every check that a start makes. Raises declared errors."""
    check_journal(path, "metadata table")
    with closing(SqliteMetadataTable(path, OWNER)) as table:
        table.check()
        rows = list(table.scan())
        assert [table.get(row.key) for row in rows] == rows
        return [*rows]


def tree(path: Path) -> list[object]:
    """The same of a coordination store."""
    check_journal(path, "coordination store")
    with closing(EmbeddedCoordination(path.parent, CoordinationSettings())) as store:
        return [store.children("/"), store.generation(), store.sessions("tserver"), store.leader()]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("books") / "metadata.db"
    with closing(sqlite_books(path)) as table:
        fill(table)
        table.check()
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("store")
    with closing(EmbeddedCoordination(home, CoordinationSettings())) as made:
        register_instance(made, Instance(ME, "west"))
        set_read_only(made, False)
        for number in range(40):
            set_authorizations(made, f"user{number}", ["a", "b" * number])
        next_count(made, "table")
        session = made.open_session("tserver", "h:1")
        made.try_lead(session)
    return home / "coordination.db"


def attempt(read: Callable[[Path], list[object]], path: Path) -> tuple[list[object] | None, str]:
    """The rows, or None and the line of a declared error."""
    try:
        return read(path), ""
    except DECLARED as error:
        return None, error.message


def outcome(read: Callable[[Path], list[object]], path: Path, content: bytes) -> list[object] | None:
    """The rows of such a file, or None for a declared error; any other error fails the test."""
    for left in path.parent.glob(path.name + "*"):
        left.unlink()
    path.write_bytes(content)
    found, problem = attempt(read, path)
    assert found is not None or path.name in problem
    return found


def flips(raw: bytes, count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    places = [chance.randrange(len(raw)) for _ in range(count)]
    return [raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :] for at in places]


def check_flips(read: Callable[[Path], list[object]], whole: Path, place: Path, seed: int) -> None:
    expected, raw = read(Path(shutil.copy(whole, place))), whole.read_bytes()
    found = [outcome(read, place, content) for content in flips(raw, 50, seed)]
    assert all(one in (None, expected) for one in found)
    assert None in found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_flipped_bit_is_noticed_or_was_nobodys(books: Path, store: Path, tmp_path: Path, seed: int) -> None:
    check_flips(contents, books, tmp_path / "metadata.db", seed)
    (tmp_path / "c").mkdir()
    check_flips(tree, store, tmp_path / "c" / "coordination.db", seed)


def flipped_in(raw: bytes, needle: bytes, by: bytes) -> bytes:
    """The last place, which has the record that counts."""
    at = raw.rindex(needle)
    return raw[:at] + by + raw[at + len(by) :]


def check_values(books: Path, store: Path, place: Path) -> None:
    """A bit inside of a value, which SQLite takes for the written one."""
    place.mkdir(exist_ok=True)
    raw = books.read_bytes()
    assert outcome(contents, place / "metadata.db", flipped_in(raw, b"5" * 30, b"4")) is None, (
        "a damaged cell of the books is believed"
    )
    assert outcome(tree, place / "coordination.db", flipped_in(store.read_bytes(), b"west", b"v")) is None, (
        "a damaged node of the coordination is believed"
    )


def test_a_flipped_bit_in_a_value_is_noticed(books: Path, store: Path, tmp_path: Path) -> None:
    check_values(books, store, tmp_path)
    for name, says in (
        ("cells-are-believed", "a damaged cell of the books is believed"),
        ("any-content-will-do", "a damaged node of the coordination is believed"),
    ):
        with fault(name), pytest.raises(AssertionError, match=says):
            check_values(books, store, tmp_path)


def test_a_tombstone_that_hides_too_much_is_noticed(books: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(books, tmp_path / "metadata.db"))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE cells SET tombstone = 9 WHERE row = x'313B726F772D303031' AND family = 'repl'")
        raw.commit()
    with pytest.raises(CorruptionError, match=r"metadata\.db is damaged: the cell b'1;row-001' repl"):
        contents(path)
    with closing(SqliteMetadataTable(path, OWNER)) as table:
        for _ in range(2):
            table.compact()
        with pytest.raises(CorruptionError, match="row-001"):
            table.get(b"1;row-001")
        assert table.get(b"1;row-002") is not None, "other cells are read"


@pytest.mark.parametrize("length", [0, 1, 100, PAGE, 3 * PAGE, 3 * PAGE + 17])
def test_a_cut_file_is_noticed_or_as_good_as_new(books: Path, store: Path, tmp_path: Path, length: int) -> None:
    """An empty coordination store is a new one: its books tell that it was not (``standalone.books``)."""
    for read, whole in ((contents, books), (tree, store)):
        found = outcome(read, tmp_path / whole.name, whole.read_bytes()[:length])
        assert found in (None, [{}, 0, [], None])
        assert found is None or length < 100


@pytest.mark.parametrize("page", [0, 1, 3])
def test_zeros_and_garbage_are_noticed(books: Path, store: Path, tmp_path: Path, page: int) -> None:
    for read, whole in ((contents, books), (tree, store)):
        raw = whole.read_bytes()
        for filling in (bytes(PAGE), random.Random(1).randbytes(PAGE)):
            content = raw[: page * PAGE] + filling + raw[(page + 1) * PAGE :]
            assert outcome(read, tmp_path / whole.name, content) is None


def test_a_database_of_something_else_is_refused_and_left_as_it_is(books: Path, store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as raw:
        raw.execute("CREATE TABLE people (name TEXT)")
        raw.commit()
    for read, whole, foreign in ((contents, books, store), (tree, store, books)):
        for file in (foreign, other):
            place = tmp_path / whole.name
            content = file.read_bytes()
            assert outcome(read, place, content) is None
            with pytest.raises(CorruptionError, match="a database of another program"):
                read(place)
            with closing(sqlite3.connect(place)) as raw, closing(sqlite3.connect(file)) as before:
                assert list(raw.iterdump()) == list(before.iterdump())


# ---- what a killed process leaves


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database and its write-ahead file as they lie when everybody was killed: five transactions."""
    home = tmp_path_factory.mktemp("killed")
    with closing(sqlite_books(home / "metadata.db")) as table:
        for number in range(1, 6):
            table.put([RowPut(b"1;row-%d-%02d" % (number, n), {REPL: b"%d" % number * 40}) for n in range(40)], number)
        (home / "left").mkdir()
        for name in ("metadata.db", "metadata.db-wal"):
            shutil.copy(home / name, home / "left" / name)
    return home / "left"


def read_left(killed: Path, place: Path, journal: bytes) -> list[object] | None:
    place.mkdir(exist_ok=True)
    for left in place.glob("*"):
        left.unlink()
    shutil.copy(killed / "metadata.db", place / "metadata.db")
    (place / "metadata.db-wal").write_bytes(journal)
    return attempt(contents, place / "metadata.db")[0]


def check_journal_flips(killed: Path, place: Path) -> None:
    raw = (killed / "metadata.db-wal").read_bytes()
    whole = read_left(killed, place, raw)
    assert whole is not None
    assert len(whole) == 200
    for content in [*flips(raw, 40, 3), bytes(8) + raw[8:], raw[:PAGE] + bytes(PAGE) + raw[2 * PAGE :]]:
        found = read_left(killed, place, content)
        assert found is None or found == whole[: len(found)]
        assert found is None or len(found) >= 160, "only the last transaction may have been under way"


def test_of_a_damaged_write_ahead_file_nothing_durable_is_passed_over(killed: Path, tmp_path: Path) -> None:
    check_journal_flips(killed, tmp_path / "left")
    with (
        fault("journals-end-where-they-are-bad"),
        pytest.raises(AssertionError, match="only the last transaction may have been under way"),
    ):
        check_journal_flips(killed, tmp_path / "left")


def test_a_torn_end_of_a_write_ahead_file_is_what_a_crash_leaves(killed: Path, tmp_path: Path) -> None:
    raw = (killed / "metadata.db-wal").read_bytes()
    for lost in (1, 100, PAGE, PAGE + 24 + 5):
        for rest in (raw[:-lost], raw[:-lost] + bytes(lost)):
            found = read_left(killed, tmp_path / "left", rest)
            assert found is not None
            assert len(found) == 160
    assert len(read_left(killed, tmp_path / "left", raw + raw[:500]) or ()) == 200
    assert read_left(killed, tmp_path / "left", raw[:20]) == []
