"""``init`` makes a complete cluster or changes nothing; the next start completes an interrupted ``init``."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.file import SETTINGS_FILE, load_settings, new_settings, write_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import create_table_record, set_table_state
from bookkeeper.coordination.config_tree import Instance, read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import (
    CorruptionError,
    ExistsError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    TransientError,
)
from bookkeeper.master.operations.table_lifecycle import new_tablet_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.opening import sqlite_url
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.standalone.books import make_books
from bookkeeper.standalone.directory import NOTE, complete_cluster, init_cluster
from tests.support.books import books_of
from tests.support.faults import fault
from tests.support.must_raise import must_raise


def _instance(settings: Settings) -> Instance | None:
    coordination = open_coordination(settings)
    try:
        return read_config(coordination).instance
    finally:
        coordination.close()


def _paths(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_new_cluster_is_complete(tmp_path: Path) -> None:
    made = init_cluster(tmp_path / "a" / "west", "west", tservers=2, overrides={"tserver.wal_roll_bytes": 4_096})
    settings = load_settings(tmp_path / "a" / "west")
    assert settings == made
    assert (settings.instance.name, settings.standalone.tservers, settings.tserver.wal_roll_bytes) == ("west", 2, 4_096)
    assert {"wal", "tables", "logs", "metadata.db", "coordination"} <= _paths(settings.directory)
    assert _instance(settings) == Instance(settings.instance.instance_id, "west")


def test_two_clusters_of_one_machine_differ_in_identity_and_port(tmp_path: Path) -> None:
    west, east = init_cluster(tmp_path / "west", "west"), init_cluster(tmp_path / "east", "east")
    assert west.instance.instance_id != east.instance.instance_id
    for settings in (west, east):
        with socket.socket() as free:
            free.bind((settings.master.host, settings.master.port))


def test_init_uses_the_requested_port(tmp_path: Path) -> None:
    assert init_cluster(tmp_path, "west", master_port=12_345).master.address == "127.0.0.1:12345"


def test_an_existing_cluster_is_refused_and_kept(tmp_path: Path) -> None:
    init_cluster(tmp_path, "west")
    before = (tmp_path / SETTINGS_FILE).read_bytes()
    with pytest.raises(ExistsError, match="has a cluster already"):
        init_cluster(tmp_path, "west")
    assert (tmp_path / SETTINGS_FILE).read_bytes() == before


def test_logs_of_a_cluster_whose_settings_are_gone_are_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    with pytest.raises(ExistsError, match="'wal'"):
        init_cluster(tmp_path, "west")
    assert _paths(tmp_path) == {"wal"}


def test_a_directory_with_other_files_is_refused_and_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes.txt").chmod(0o644)
    with pytest.raises(ExistsError, match=r"is not empty \(notes\.txt\)"):
        init_cluster(tmp_path, "west")
    assert _paths(tmp_path) == {"notes.txt"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "notes.txt")] == [0o755, 0o644]


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(InvalidInputError, match="belongs to another user"):
        init_cluster(tmp_path, "west")
    assert not _paths(tmp_path)


def test_a_start_says_that_secrets_were_missing(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    assert complete_cluster(settings) == []
    shutil.rmtree(settings.directory / "secrets")
    (line,) = complete_cluster(settings)
    assert "lacked the secrets of processes, clients, viewers, and new ones were made" in line
    assert complete_cluster(settings) == []


def test_a_start_says_that_files_were_restored_into_the_directory(tmp_path: Path) -> None:
    """The directory itself stays, as the root of a disk has one inode on every disk."""
    settings = init_cluster(tmp_path / "c", "west")
    backup = shutil.copytree(settings.directory, tmp_path / "backup")
    assert complete_cluster(load_settings(settings.directory)) == []
    for entry in settings.directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(backup, settings.directory, dirs_exist_ok=True)
    (line,) = complete_cluster(load_settings(settings.directory))
    assert "has files that were restored or copied into it" in line
    assert "peers may have records that it lacks" in line
    assert complete_cluster(load_settings(settings.directory)) == []


def test_a_note_of_an_older_version_is_completed(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "c", "west")
    note = settings.directory / NOTE
    known = json.loads(note.read_text())
    note.write_text(json.dumps({"inode": known["inode"], "path": known["path"]}))
    assert complete_cluster(load_settings(settings.directory)) == []
    assert json.loads(note.read_text()) == known


def test_a_start_says_that_the_directory_is_a_copy(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    shutil.copytree(settings.directory, tmp_path / "copy", copy_function=shutil.copy2)
    (line,) = complete_cluster(load_settings(tmp_path / "copy"))
    assert f"is a copy of {settings.directory}, which is still there: start only one of the two" in line
    assert complete_cluster(load_settings(tmp_path / "copy")) == []
    settings.directory.rename(tmp_path / "moved")
    assert complete_cluster(load_settings(tmp_path / "moved")) == [], "a directory that was moved is no copy"


def test_a_start_says_that_the_directory_may_be_a_restored_one(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    complete_cluster(settings)
    shutil.copytree(settings.directory, tmp_path / "backup", copy_function=shutil.copy2)
    settings.directory.rename(tmp_path / "lost")
    (tmp_path / "backup").rename(settings.directory)
    (line,) = complete_cluster(settings)
    assert f"was {settings.directory}, and was copied, restored or moved to another disk" in line
    assert complete_cluster(settings) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "a b"}, "instance.name"),
        ({"master_port": 70_000}, "master.port"),
        ({"tservers": 0}, "standalone.tservers"),
        ({"metadata_url": "mysql://host/db"}, "metadata.url"),
        ({"metadata_url": "sqlite:///nowhere/books.db"}, "no directory"),
        ({"overrides": {"tserver.nonsense": 1}}, "tserver.nonsense"),
        ({"overrides": {"tserver.wal_roll_bytes": "much"}}, "wal_roll_bytes"),
    ],
)
def test_bad_input_changes_nothing(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        init_cluster(tmp_path / "new", **{"name": "west", **arguments})  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    assert not _paths(tmp_path)


def test_a_path_that_can_not_be_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInputError, match="choose another directory"):
            init_cluster(path, "west")
    assert (tmp_path / "file").read_text() == "mine"


def test_books_of_another_cluster_are_not_shared(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "books.db")
    init_cluster(tmp_path / "east", "east", metadata_url=url)
    with pytest.raises(ExistsError, match="holds the books"):
        init_cluster(tmp_path / "west", "west", metadata_url=url)
    assert not (tmp_path / "west").exists()


def test_a_metadata_store_that_does_not_answer_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.standalone.books.RETRY_MS", 100)
    with pytest.raises(TransientError):
        init_cluster(tmp_path / "west", "west", metadata_url="hbase://127.0.0.1:1/west")
    assert not _paths(tmp_path)


def test_a_start_completes_an_interrupted_init(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    make_books(settings)
    write_settings(settings)
    complete_cluster(settings)
    complete_cluster(settings)
    assert _instance(settings) == Instance(settings.instance.instance_id, "west")
    assert (tmp_path / "wal").is_dir()


def test_a_copied_coordination_store_is_refused(tmp_path: Path) -> None:
    mine, other = (init_cluster(tmp_path / name, name) for name in ("mine", "other"))
    shutil.copy(
        other.directory / "coordination" / "coordination.db", mine.directory / "coordination" / "coordination.db"
    )
    with pytest.raises(RefusedError, match="belongs to instance"):
        complete_cluster(mine)


def _used(home: Path) -> Settings:
    """A cluster with a table, stopped."""
    settings = init_cluster(home, "west")
    complete_cluster(settings)
    with closing(open_coordination(settings)) as coordination, closing(books_of(settings)) as books:
        create_table_record(coordination, "1", "t", [], {})
        books.put(new_tablet_rows("1", ()), 1)
        books.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], 1)
        coordination.raise_number(ROUND_NAME, 1)
        set_table_state(coordination, "1", "online")
    complete_cluster(settings)
    return settings


def check_lost_stores(home: Path, leave: Callable[[Path], None]) -> None:
    """One store is lost: a start must not treat the other one as that of a new cluster."""
    for name, error in (("metadata.db", NotFoundError), ("coordination/coordination.db", CorruptionError)):
        settings = _used(home / name)
        leave(settings.directory / name)
        with must_raise(error, f"a cluster starts without its {name}", match=rf"{name} .*empty.*restore"):
            complete_cluster(settings)


@pytest.mark.parametrize("leave", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_a_store_that_is_lost_is_not_made_anew(tmp_path: Path, leave: Callable[[Path], None]) -> None:
    check_lost_stores(tmp_path, leave)
    with fault("lost-stores-are-new"), pytest.raises(AssertionError, match="a cluster starts without its"):
        check_lost_stores(tmp_path / "again", leave)


def check_older_copies(home: Path) -> None:
    """One of the two stores is replaced by a copy from before the latest rounds."""
    for name, said in (
        ("metadata.db", "its round is 1, and the latest round is 3"),
        ("coordination.db", "its round is 1, and the round of the metadata table"),
    ):
        settings = _used(home / name)
        file = next(settings.directory.rglob(name))
        shutil.copy(file, home / "copy")
        with closing(open_coordination(settings)) as coordination, closing(books_of(settings)) as books:
            for number in (2, 3):
                books.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], number)
                coordination.raise_number(ROUND_NAME, number)
        complete_cluster(settings)
        shutil.copy(home / "copy", file)
        with must_raise(
            RefusedError,
            f"a cluster starts with an older copy of {name}",
            match=rf"(?s)(?=.*{said}).*older copy.*restore the directory",
        ):
            complete_cluster(settings)


def test_an_older_copy_of_a_store_is_refused(tmp_path: Path) -> None:
    """R9: a table that is missing in the copy would count as fully replicated."""
    check_older_copies(tmp_path)
    for switch, says in (
        ("older-books-are-believed", "an older copy of metadata.db"),
        ("older-coordination-is-believed", "an older copy of coordination.db"),
    ):
        with fault(switch), pytest.raises(AssertionError, match=says):
            check_older_copies(tmp_path / switch)


def test_a_round_that_was_cut_between_the_stores_keeps_no_cluster_from_starting(tmp_path: Path) -> None:
    settings = _used(tmp_path)
    with closing(books_of(settings)) as books:
        books.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], 2)
    complete_cluster(settings)


def check_emptied_books(home: Path) -> None:
    """The books have no tablet of an online table, because all rows of tablets were deleted."""
    settings = _used(home)
    with closing(books_of(settings)) as books:
        books.purge([CellKey(row.key, column) for row in books.scan() for column in row.cells])
    with must_raise(
        CorruptionError,
        "a cluster starts without the tablets of an online table",
        match=r"no tablets of table t \(id 1\), which is online.*restore",
    ):
        complete_cluster(settings)


def test_books_without_a_table_that_is_online_stop_the_start(tmp_path: Path) -> None:
    check_emptied_books(tmp_path / "west")
    with (
        fault("tables-without-rows-are-complete"),
        pytest.raises(AssertionError, match="a cluster starts without the tablets of an online table"),
    ):
        check_emptied_books(tmp_path / "again")


def test_an_init_that_was_cut_leaves_books_that_the_next_one_does_not_share(tmp_path: Path) -> None:
    make_books(new_settings(tmp_path, "west"))
    with pytest.raises(ExistsError, match=r"holds the books of instance .*interrupted init"):
        init_cluster(tmp_path, "west")
    (tmp_path / "metadata.db").unlink()
    init_cluster(tmp_path, "west")


def test_books_of_another_cluster_are_not_taken_over(tmp_path: Path) -> None:
    mine, other = _used(tmp_path / "mine"), _used(tmp_path / "other")
    (mine.directory / "metadata.db").write_bytes((other.directory / "metadata.db").read_bytes())
    with pytest.raises(RefusedError, match=f"holds the books of instance {other.instance.instance_id}"):
        complete_cluster(mine)
