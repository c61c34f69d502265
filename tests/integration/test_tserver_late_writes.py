"""A write that its client gave up, and that its tserver gets to when the tablet has been elsewhere and come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import ConflictError
from bookkeeper.master.splits import split_rules
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.faults import fault
from tests.support.local_pair import Books
from tests.support.tservers import Ground, LocalNode, ground, records

pytestmark = pytest.mark.integration

WHOLE = Extent("1", None, None)
LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")


@pytest.fixture
def west(tmp_path: Path, books: Books) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}, books("west")) as made:
        yield made


def as_located(west: Ground, extent: Extent, value: bytes) -> list[WriteBatch]:
    """The batches of a client that has just located the tablet."""
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("location",))
    assert row is not None
    return [WriteBatch(extent, encode_batch(records([(b"a", value)])).to_pybytes(), keys.location_rank(row))]


def write_again_and_on(west: Ground, node: LocalNode, extent: Extent) -> None:
    """The client sends again what it gave up, and then something newer."""
    for attempt, value in ((2, b"again"), (3, b"new")):
        answer = west.tserver(node).write(as_located(west, extent, value), "sync", "w", attempt)
        assert answer.not_serving == ()


def let_go(west: Ground, node: LocalNode, *extents: Extent) -> list[Row]:
    for extent in extents:
        west.tserver(node).unload_tablet(extent, 1, False)
    return [row for row in west.metadata.scan(*keys.table_section("1")) if keys.is_tablet(row)]


def change(west: Ground, made: split_rules.Change) -> None:
    for write in split_rules.in_order(made):
        if write.puts:
            west.metadata.put(write.puts, write.rank)
        if write.deletes:
            west.metadata.delete(write.deletes, write.rank)


def moved_and_back(west: Ground, node: LocalNode) -> None:
    other = west.local()
    let_go(west, node, WHOLE)
    west.assign(other, WHOLE)
    write_again_and_on(west, other, WHOLE)
    let_go(west, other, WHOLE)


def split_and_merged(west: Ground, node: LocalNode) -> None:
    (row,) = let_go(west, node, WHOLE)
    change(west, split_rules.split_change(split_rules.facts_of(row), [b"m"], split_rules.next_serial([row]), "s"))
    west.assign(node, LEFT, RIGHT)
    write_again_and_on(west, node, LEFT)
    parts = let_go(west, node, LEFT, RIGHT)
    change(west, split_rules.merge_change([split_rules.facts_of(row) for row in parts], split_rules.next_serial(parts)))


WAYS = [moved_and_back, split_and_merged]


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_was_given_up_does_not_land_after_a_later_one_that_went_elsewhere(
    west: Ground, way: Callable[[Ground, LocalNode], None]
) -> None:
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    given_up = as_located(west, WHOLE, b"old")
    way(west, node)
    west.assign(node, WHOLE)
    with contextlib.suppress(ConflictError):
        assert west.tserver(node).write(given_up, "sync", "w", 1).not_serving == (WHOLE,), (
            "a write that was given up lands after a later one"
        )
    assert west.scan(node, WHOLE) == {(b"a", b"f", b"q"): b"new"}
    west.tserver(node).write(as_located(west, WHOLE, b"newer"), "sync", "w", 4)
    assert west.scan(node, WHOLE) == {(b"a", b"f", b"q"): b"newer"}


@pytest.mark.parametrize("way", WAYS)
def test_without_the_rule_it_lands(west: Ground, way: Callable[[Ground, LocalNode], None]) -> None:
    with (
        fault("any-tserver-writes-it"),
        pytest.raises(AssertionError, match="a write that was given up lands after a later one"),
    ):
        test_a_write_that_was_given_up_does_not_land_after_a_later_one_that_went_elsewhere(west, way)


def test_a_location_that_a_new_master_wrote_again_is_the_same_home(west: Ground) -> None:
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    row = west.metadata.get(keys.tablet_row("1", None))
    assert row is not None
    west.metadata.put([RowPut(row.key, {keys.LOCATION: row.cells[keys.LOCATION].value})], keys.master_rank(2, 1))
    assert west.tserver(node).write(as_located(west, WHOLE, b"1"), "sync", "w", 1).not_serving == ()
