"""The tests of the metadata table's laws detect errors: each fails with its switch (R1, R4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.opening import sqlite_url
from tests.contract import test_metadata_table as laws
from tests.support.books import made_books
from tests.support.faults import fault

RED: list[tuple[str, Callable[[MetadataTable], None], str]] = [
    (
        "newest-write-wins",
        partial(laws.test_the_highest_rank_stays_in_any_order, order=(9, 3)),
        "a lower rank replaces a higher one",
    ),
    (
        "newest-write-wins",
        laws.test_a_closed_status_stays_above_a_later_open_one,
        "a later open status hides a closed one",
    ),
    (
        "newest-write-wins",
        laws.test_a_delete_before_its_put_hides_it_all_the_same,
        "a delete before its put hides nothing",
    ),
    ("newest-write-wins", laws.test_a_purge_hides_everything_for_good, "a put shows after a purge"),
    (
        "newest-write-wins",
        laws.test_threads_that_write_ranks_in_any_order_leave_the_maximum,
        "a lower rank replaces a higher one",
    ),
    (
        "deletes-leave-no-tombstone",
        laws.test_a_delete_hides_values_up_to_its_rank_and_none_above,
        "a put at the rank of a delete shows",
    ),
    ("deletes-leave-no-tombstone", laws.test_a_purge_hides_everything_for_good, "a put shows after a purge"),
    (
        "deletes-leave-no-tombstone",
        laws.test_repeated_and_reordered_calls_end_the_same,
        "what is left depends on the order of the calls",
    ),
    (
        "closed-ranks-like-open",
        laws.test_a_closed_status_stays_above_a_later_open_one,
        "a later open status hides a closed one",
    ),
]


@pytest.fixture
def sqlite_table(tmp_path: Path) -> Iterator[MetadataTable]:
    table = made_books(sqlite_url(tmp_path / "metadata.db"))
    yield table
    table.close()


@pytest.mark.parametrize(("name", "law", "says"), RED)
def test_a_broken_rule_turns_its_law_red(
    sqlite_table: MetadataTable, name: str, law: Callable[[MetadataTable], None], says: str
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(sqlite_table)


@pytest.mark.parametrize("law", [law for _, law, _ in RED])
def test_without_a_fault_the_law_holds(sqlite_table: MetadataTable, law: Callable[[MetadataTable], None]) -> None:
    law(sqlite_table)
