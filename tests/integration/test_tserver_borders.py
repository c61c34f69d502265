"""Tservers hold tablets that were split or merged: their reads, their records of a stream, the logs before theirs.

Rules: R7, R15, R18, R22 and R24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptionError, NotServingError, RefusedError
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import TabletAssignment
from tests.support.faults import fault
from tests.support.fixtures import BOOKS_IN_BOTH
from tests.support.local_pair import Books
from tests.support.must_raise import must_raise
from tests.support.tservers import (
    Ground,
    LocalNode,
    flush_of,
    ground,
    logs_in_row,
    own_blocks,
    records,
    replicate_request,
    source_block,
    status_of,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)
WHOLE = Extent("1", None, None)
LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")


@pytest.fixture
def west(tmp_path: Path, books: Books) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}, books("west")) as made:
        yield made


def let_go(west: Ground, *held: tuple[LocalNode, Extent]) -> list[Row]:
    """Tablets are unloaded; returns their rows."""
    for node, extent in held:
        west.tserver(node).unload_tablet(extent, 1, False)
        assert logs_in_row(west, extent) == set()
    found = [west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row)) for _, extent in held]
    return [row for row in found if row is not None]


def change(west: Ground, made: Change) -> None:
    for write in split_rules.in_order(made):
        if write.puts:
            west.metadata.put(write.puts, write.rank)
        if write.deletes:
            west.metadata.delete(write.deletes, write.rank)


def split(west: Ground, held: Sequence[Row]) -> None:
    (row,) = held
    change(west, split_rules.split_change(split_rules.facts_of(row), [b"m"], split_rules.next_serial([row]), "s"))


def merge(west: Ground, held: Sequence[Row]) -> None:
    change(west, split_rules.merge_change([split_rules.facts_of(row) for row in held], split_rules.next_serial(held)))


def send(west: Ground, node: LocalNode, acked: int, after: int, *rows: bytes) -> tuple[int, int]:
    """A record of the stream for each row, from ``after`` on; how many were applied, and dropped."""
    tserver = west.tserver(node)
    blocks = [source_block(after + n, records([(row, b"v")], timestamp=5)) for n, row in enumerate(rows, 1)]
    token = tserver.open_stream(STREAM)
    result = tserver.replicate(replicate_request(token, STREAM, acked, after, after + len(rows), blocks))
    return result.records_applied, result.records_dropped


def test_both_halves_read_the_file_of_the_whole_and_write_on(west: Ground) -> None:
    west.create_table("1")
    first, second = west.local(), west.local()
    west.assign(first, WHOLE)
    west.write(first, WHOLE, records([(b"a", b"1"), (b"z", b"1")]))
    split(west, let_go(west, (first, WHOLE)))
    west.assign(first, LEFT)
    west.assign(second, RIGHT)
    with pytest.raises(NotServingError):
        west.scan(first, WHOLE)
    assert west.scan(first, LEFT) == {(b"a", b"f", b"q"): b"1"}
    assert west.scan(second, RIGHT) == {(b"z", b"f", b"q"): b"1"}
    west.write(first, LEFT, records([(b"a", b"2")]))
    west.write(second, RIGHT, records([(b"z", b"2")]))
    merge(west, let_go(west, (first, LEFT), (second, RIGHT)))
    west.assign(second, WHOLE)
    assert west.scan(second, WHOLE) == {(b"a", b"f", b"q"): b"2", (b"z", b"f", b"q"): b"2"}


@BOOKS_IN_BOTH
def test_a_half_that_dies_is_recovered_from_its_own_records_only(west: Ground) -> None:
    """Both halves go on in the log of the whole, whose records lie there too."""
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    west.write(node, WHOLE, records([(b"a", b"old"), (b"z", b"old")]))
    split(west, let_go(west, (node, WHOLE)))
    west.assign(node, LEFT, RIGHT)
    west.write(node, LEFT, records([(b"a", b"new")]))
    west.write(node, RIGHT, records([(b"z", b"new")]))
    node.lose_session()
    west.recover_logs(node)
    other = west.local()
    try:
        west.assign(other, LEFT, RIGHT)
    except CorruptionError as error:
        raise AssertionError("a half is recovered from records of the other one") from error
    assert west.scan(other, LEFT) == {(b"a", b"f", b"q"): b"new"}
    assert west.scan(other, RIGHT) == {(b"z", b"f", b"q"): b"new"}
    west.tserver(other).flush_tablet(LEFT)
    assert flush_of(west, LEFT).last_seq == 3, "two records of the whole, one of its own"


def test_r18_each_row_of_a_merged_tablet_takes_a_record_of_a_stream_once(west: Ground) -> None:
    west.create_table("1", [b"m"])
    node = west.local()
    west.assign(node, LEFT, RIGHT)
    assert send(west, node, 0, 0, b"a") == (1, 0)
    assert send(west, node, 1, 1, b"z", b"y") == (2, 0)
    merge(west, let_go(west, (node, LEFT), (node, RIGHT)))
    west.assign(node, WHOLE)
    assert flush_of(west, WHOLE).high_water == {STREAM: 1}
    with pytest.raises(NotServingError):  # parted by the borders that were; they are read again then
        send(west, node, 0, 0, b"a", b"z", b"y", b"b")
    assert send(west, node, 0, 0, b"a", b"z", b"y", b"b") == (1, 3), (
        "R18: a row of a merged tablet takes a record twice"
    )
    assert send(west, node, 0, 0, b"a", b"z", b"y", b"b") == (0, 4)
    node.lose_session()
    west.recover_logs(node)
    other = west.local()
    west.assign(other, WHOLE)
    assert send(west, other, 0, 0, b"a", b"z", b"y", b"b", b"c") == (1, 4)
    west.tserver(other).flush_tablet(WHOLE)
    assert (flush_of(west, WHOLE).high_water, flush_of(west, WHOLE).partial_high_waters) == ({STREAM: 5}, {})


def test_r24_the_first_record_after_a_split_or_merge_names_what_it_comes_after(west: Ground) -> None:
    west.create_table("1", [b"m"])
    west.enable("1")
    first, second, third = west.local(), west.local(), west.local()
    west.assign(first, LEFT)
    west.assign(second, RIGHT)
    west.write(first, LEFT, records([(b"a", b"1"), (b"b", b"1")]))
    west.write(second, RIGHT, records([(b"z", b"1")]))
    (w1,), (w2,) = west.logs_of(first), west.logs_of(second)
    merge(west, let_go(west, (first, LEFT), (second, RIGHT)))
    west.assign(third, WHOLE)
    west.write(third, WHOLE, records([(b"a", b"2")]))
    (block,) = own_blocks(west, third)
    assert sorted((place.file, place.offset) for place in block.header.after) == sorted([(w1, 2), (w2, 1)])
    (w3,) = west.logs_of(third)
    status = status_of(west, WHOLE, w3)
    assert status is not None
    assert sorted((b.offset, b.file, b.until_offset) for b in status.barriers) == sorted([(1, w1, 2), (1, w2, 1)])
    split(west, let_go(west, (third, WHOLE)))
    west.assign(first, LEFT)
    west.write(first, LEFT, records([(b"a", b"3")]))
    after = own_blocks(west, first)[-1].header.after
    assert [(place.file, place.offset) for place in after] == [(w3, 1)]


def test_r7_nobody_loads_a_parked_tablet(west: Ground) -> None:
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    parked = values.Location(node.session_id, "").encode()
    west.metadata.put([RowPut(b"1<", {keys.LOCATION: parked})], keys.master_rank(2, 1))
    let_go(west, (node, WHOLE))
    with must_raise(RefusedError, "R7: a parked tablet is loaded"):
        west.tserver(node).load_tablet(TabletAssignment(WHOLE, "", 2))


@pytest.mark.parametrize(
    ("name", "law", "says"),
    [
        (
            "logs-of-parents-are-replayed",
            test_a_half_that_dies_is_recovered_from_its_own_records_only,
            "a half is recovered from records of the other one",
        ),
        (
            "rows-ahead-do-not-count and paths-are-not-compared",
            test_r18_each_row_of_a_merged_tablet_takes_a_record_of_a_stream_once,
            "a row of a merged tablet takes a record twice",
        ),
        ("parking-is-optional", test_r7_nobody_loads_a_parked_tablet, "a parked tablet is loaded"),
    ],
)
def test_without_its_rule_a_law_of_split_and_merged_tablets_is_red(
    name: str, law: Callable[[Ground], None], says: str, west: Ground
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(west)
