"""The owner of a metadata table: only the instance that owns a store can open, write and read it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bookkeeper.errors import BookkeeperError, ExistsError, IncompatibleError, NotFoundError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.hbase import hbase_pool, hbase_store
from bookkeeper.metadata.metadata_table import CellKey, Column, MetadataTable, Row, RowPut
from bookkeeper.metadata.opening import make_metadata, open_metadata
from bookkeeper.metadata.owner import FORMAT_VERSION, owner_of, read_owner_row, round_of
from bookkeeper.metadata.sqlite import sqlite_store
from tests.support.faults import fault
from tests.support.metadata_stores import Store
from tests.support.must_raise import must_raise

ME, OTHER = "c4b4d4d2", "ff9fae57"
REPL = Column("repl", b"f")


def opened(store: Store, instance_id: str = ME, least_round: int = 0) -> MetadataTable:
    """The table as a process of an instance opens it; the test closes it."""
    store.opened.append(open_metadata(store.url, instance_id, least_round=least_round, retry_for_ms=5_000))
    return store.opened[-1]


def begin(table: MetadataTable, number: int) -> None:
    table.put([RowPut(keys.owner_row(), {keys.ROUND: values.EMPTY})], number)


def refused(store: Store, error: type[BookkeeperError], text: str, instance_id: str = ME, least_round: int = 0) -> None:
    """Check that opening raises this error, with the next step."""
    with must_raise(
        error, "books are opened that must be refused", match=rf"(?s){text}.*(metadata\.url|restore|use the version)"
    ):
        opened(store, instance_id, least_round)


def test_only_init_makes_a_table(store: Store) -> None:
    refused(store, NotFoundError, "does not exist")
    refused(store, NotFoundError, "does not exist")
    make_metadata(store.url, ME)
    owner = owner_of(read_owner_row(opened(store)))
    assert owner == values.Owner(ME, FORMAT_VERSION)


def test_a_table_is_made_once_and_for_one_instance(store: Store) -> None:
    make_metadata(store.url, ME)
    make_metadata(store.url, ME)
    with pytest.raises(ExistsError, match=f"holds the books of instance {ME}; name another"):
        make_metadata(store.url, OTHER)
    opened(store)


def test_init_refuses_a_table_with_rows_and_no_owner(store: Store) -> None:
    make_metadata(store.url, ME)
    table = opened(store)
    table.put([RowPut(b"1<", {REPL: b"v"})], 1)
    table.purge([CellKey(keys.owner_row(), keys.OWNER)])
    refused(store, NotFoundError, "has no owner row")
    with pytest.raises(ExistsError, match="holds the books of a cluster"):
        make_metadata(store.url, OTHER)


def check_another(store: Store) -> None:
    make_metadata(store.url, OTHER)
    refused(store, RefusedError, f"holds the books of instance {OTHER}, not of {ME}")


def test_the_books_of_another_instance_are_refused(store: Store) -> None:
    check_another(store)
    with fault("owners-are-not-compared"), pytest.raises(AssertionError, match="books are opened that must be refused"):
        check_another(store)


def test_another_format_is_refused(store: Store) -> None:
    make_metadata(store.url, ME)
    newer = values.Owner(ME, FORMAT_VERSION + 1).encode()
    opened(store).put([RowPut(keys.owner_row(), {keys.OWNER: newer})], 2**61)
    refused(store, IncompatibleError, f"has format {FORMAT_VERSION + 1}; this version supports {FORMAT_VERSION} only")


def check_older(store: Store) -> None:
    make_metadata(store.url, ME)
    begin(opened(store), 4)
    opened(store, least_round=4)
    refused(store, RefusedError, "older copy: its round is 4, and the latest round is 5", least_round=5)


def test_books_of_an_older_round_than_is_known_are_refused(store: Store) -> None:
    check_older(store)
    with (
        fault("older-books-are-believed"),
        pytest.raises(AssertionError, match="books are opened that must be refused"),
    ):
        check_older(store)


def test_a_round_that_begins_during_a_check_makes_no_older_copy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection reads the owner row; before it compares, another one sees the next round."""
    make_metadata(store.url, ME)
    begin(opened(store), 1)
    table = opened(store, least_round=1)
    checks = 0

    def meanwhile() -> None:
        begin(table, 2)
        table.get(b"1<")

    def reader(read: Callable[..., Row | None]) -> Callable[..., Row | None]:
        def slow_read(*args: Any) -> Row | None:
            nonlocal checks
            row, checks = read(*args), checks + 1
            if checks == 1:
                in_another_thread(meanwhile)
            return row

        return slow_read

    monkeypatch.setattr(hbase_pool, "CHECK_VALID_MS", 0)
    for module in (hbase_store, sqlite_store):
        monkeypatch.setattr(module, "read_owner", reader(module.read_owner))
    table.get(b"1<")
    assert checks > 1, "the connection of each thread was checked"


def in_another_thread(call: Callable[[], object]) -> None:
    """Return when it is done; raises what it raises."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(call).result()


def test_a_late_round_changes_nothing(store: Store) -> None:
    make_metadata(store.url, ME)
    table = opened(store)
    for number in (1, 3, 2):
        begin(table, number)
    assert round_of(read_owner_row(table)) == 3


def test_a_read_returns_the_owner_only_on_request(store: Store) -> None:
    make_metadata(store.url, ME)
    table = opened(store)
    assert list(table.scan()) == []
    assert table.get(keys.owner_row()) is None
    assert [row.key for row in table.scan(families=("owner",))] == [keys.owner_row()]
