"""The laws that splits and merges must keep, each green with its rule and red without: R1, R16, R18 and R24.

R16 is held against every interleaving of a scan that reads row after row with every write that a store may make of a
change: schedule 18 (a merge) and its mirror (a split).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import cast

import pytest

from bookkeeper.errors import CorruptionError
from bookkeeper.master.gc import gc_rules, gc_runner
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.snapshot import BrokenChainError, take_snapshot
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.model import PartialHighWater, StreamKey
from bookkeeper.tserver.origins.partial_high_water import unknown_parts
from bookkeeper.tserver.receive.slice_decision import Accept, Gap, decide
from bookkeeper.tserver.tablets.load_plan import drop_reached
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, tablet_records
from bookkeeper.tserver.tablets.wal_order import WalPosition, predecessors
from tests.support.border_world import (
    STREAM,
    ModelTable,
    elements,
    ends_of,
    held_row,
    hold,
    meaning,
    new_rows,
    segment,
)
from tests.support.faults import fault
from tests.support.master_values import scopes, status_value
from tests.support.tservers import records

LOW, HIGH, BOTH = "s/low", "s/high", "s/both"
W1, W2 = "wal/s1/000001.wal", "wal/s2/000001.wal"


@dataclass
class Stage:
    """Table 1 before a change: ``made`` is the change, ``files`` are those that it must never hide."""

    table: ModelTable
    made: Change
    files: frozenset[str]


def to_be_split() -> Stage:
    table = ModelTable()
    new_rows(table, [b"t"])
    hold(
        table,
        held_row(b"1;t", {LOW: segment(b"a", b"c"), HIGH: segment(b"p", b"s"), BOTH: segment(b"a", b"s")}, 40, (W1, 9)),
    )
    table.put([RowPut(b"1;t", {keys.repl_column(W1): status_value(9)})], keys.needed_rank(9))
    rows = {row.key: row for row in table.rows()}
    change = split_rules.split_change(split_rules.facts_of(rows[b"1;t"]), [b"h"], 2, "s")
    return Stage(table, change, frozenset({LOW, HIGH, BOTH, W1}))


def to_be_merged() -> Stage:
    table = ModelTable()
    new_rows(table, [b"h"])
    hold(table, held_row(b"1;h", {LOW: segment(b"a", b"c")}, 40, (W1, 9)))
    hold(table, held_row(b"1<", {HIGH: segment(b"p", b"s")}, 70, (W2, 4)))
    table.put([RowPut(b"1;h", {keys.repl_column(W1): status_value(9)})], keys.needed_rank(9))
    table.put([RowPut(b"1<", {keys.repl_column(W2): status_value(4)})], keys.needed_rank(4))
    facts = [split_rules.facts_of(row) for row in table.rows()]
    return Stage(table, split_rules.merge_change(facts, 2), frozenset({LOW, HIGH, W1, W2}))


STAGES: dict[str, Callable[[], Stage]] = {"split": to_be_split, "merge": to_be_merged}


# ---- R16


def scans(stage_of: Callable[[], Stage], backwards: bool) -> Iterator[tuple[set[str] | None, frozenset[str]]]:
    """Every interleaving: the findings of a scan for references (None: it has to start over), and those it must not
    miss.
    """
    begun = stage_of()
    writes = len(elements(begun.table, begun.made, backwards))
    reads = 2 * (len(begun.table.rows()) + 2)
    for places in combinations(range(writes + reads), writes):
        table = ModelTable(begun.table.model.copy())
        todo = elements(table, begun.made, backwards)
        due = [place - number for number, place in enumerate(places)]
        yield _scan(table, todo, due), begun.files


def _scan(table: ModelTable, todo: Sequence[Callable[[], None]], due: Sequence[int]) -> set[str] | None:
    """``due``: before which read each write is made."""
    read = 0

    def between() -> None:
        nonlocal read
        for write, at in zip(todo, due, strict=True):
            if at == read:
                write()
        read += 1

    table.between = between
    try:
        rows = gc_runner.reference_rows(cast("MetadataTable", table), ("1",))
        return {file.decode() for file in gc_rules.references(rows, ())}
    except BrokenChainError:
        return None


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", STAGES)
def test_r16_no_scan_misses_a_reference_whenever_it_reads_which_row(name: str, backwards: bool) -> None:
    found = list(scans(STAGES[name], backwards))
    assert all(files is None or wanted <= files for files, wanted in found)
    assert any(files is None for files, _ in found), "some have to start over"
    assert sum(files is not None for files, _ in found) > len(found) // 5


@pytest.mark.parametrize(
    ("name", "switch"),
    [("split", "broken-chains-pass"), ("split", "references-go-first"), ("merge", "references-go-first")],
)
def test_r16_without_its_rule_a_scan_misses_a_reference(name: str, switch: str) -> None:
    with fault(switch):
        assert any(files is not None and not wanted <= files for files, wanted in scans(STAGES[name], True))


@pytest.mark.parametrize("name", STAGES)
def test_r16_every_moment_shows_a_broken_chain_or_a_whole_table(name: str) -> None:
    stage = STAGES[name]()
    before = meaning(stage.table.rows())
    broken = 0
    for write in elements(stage.table, stage.made, False):
        write()
        rows = stage.table.rows()
        try:
            seen = take_snapshot(rows, 1, scopes(), ("1",), Outstanding())
        except BrokenChainError:
            broken += 1
        else:
            assert {file.decode() for file in seen.files} == {file for file in stage.files if file.endswith(".wal")}
            assert {row: known.segments for row, known in meaning(rows).items()} == {
                row: known.segments for row, known in before.items()
            }
    assert broken


# ---- R1: ranks, and rows that come back


def test_r1_nothing_that_is_written_late_changes_what_a_split_or_merge_has_left() -> None:
    """A deposed master repeats its writes, and a former holder flushes, when the row has come back and is in use."""
    stage = to_be_split()
    _make(stage.table, stage.made)
    merged = split_rules.merge_change([_facts(stage.table, b"1;h"), _facts(stage.table, b"1;t")], _serial(stage.table))
    _make(stage.table, merged)
    again = split_rules.split_change(_facts(stage.table, b"1;t"), [b"h"], _serial(stage.table), "again")
    _make(stage.table, again)
    hold(stage.table, held_row(b"1;h", {"s/new": segment(b"b", b"b")}, 90, (W2, 7), 9), 9)
    before = meaning(stage.table.rows())
    for late in (stage.made, merged, again):
        _make(stage.table, late)
        assert meaning(stage.table.rows()) == before
    for row in (b"1;h", b"1;t"):
        zombie = held_row(row, {"s/late": segment(b"a", b"z")}, 999, (W1, 999), 1)
        stage.table.put([zombie], keys.first_flush_id(1) + 5)
    assert meaning(stage.table.rows()) == before


def _split_merge_split() -> list[bytes | None]:
    stage = to_be_split()
    _make(stage.table, stage.made)
    parts = [_facts(stage.table, b"1;h"), _facts(stage.table, b"1;t")]
    _make(stage.table, split_rules.merge_change(parts, _serial(stage.table)))
    _make(stage.table, split_rules.split_change(_facts(stage.table, b"1;t"), [b"h"], _serial(stage.table), "again"))
    return ends_of(stage.table.rows())


def test_r1_a_row_that_comes_back_goes_on_above_its_remnant() -> None:
    assert _split_merge_split() == [b"h", b"t", None]


def test_r1_without_the_serial_of_its_remnant_the_records_of_a_row_stay_hidden() -> None:
    with fault("serials-begin-again"), pytest.raises(CorruptionError, match="has no segment: cell of"):
        _split_merge_split()


def _make(table: ModelTable, change: Change) -> None:
    for write in elements(table, change, False):
        write()


def _facts(table: ModelTable, row: bytes) -> split_rules.TabletFacts:
    (found,) = (known for known in table.rows() if known.key == row)
    return split_rules.facts_of(found)


def _serial(table: ModelTable) -> int:
    return split_rules.next_serial(row for row in table.rows() if row.key != b"1<")


# ---- R18: a stream that goes on over a merge


@dataclass
class Receiving:
    """A receiving tablet as a merge has left it."""

    high_water: int
    ahead: dict[StreamKey, tuple[PartialHighWater, ...]]
    taken: list[bytes] = field(default_factory=list)

    def receive(self, after: int, to: int, blocks: Sequence[ReceivedBlock]) -> None:
        """A message; a gap is declined, and the sender reads on from there."""
        decision = decide(self.high_water, 0, after, to, unknown_parts(blocks, self.ahead.get(STREAM, ())))
        if isinstance(decision, Gap):
            self.receive(decision.high_water, to, [block for block in SENT if block.first_offset > decision.high_water])
            return
        if isinstance(decision, Accept):
            self.taken += [
                value for block in decision.blocks for value in block.records.batch.column("value").to_pylist()
            ]
        self.high_water = decision.high_water
        drop_reached(self.ahead, STREAM, decision.high_water)


def _sent(first: int, row: bytes) -> ReceivedBlock:
    return ReceivedBlock(first, first + 9, tablet_records(records([(row, b"%d" % first)], timestamp=1)))


SENT = [_sent(1, b"a"), _sent(11, b"p"), _sent(21, b"a"), _sent(31, b"p"), _sent(41, b"a")]
"""Offsets 1 to 50 of a stream: records of the left and of the right tablet in turn."""


def _over_a_merge() -> list[bytes]:
    """The left tablet has the stream up to 10, the right one up to 40; merged, everything is sent again."""
    stage = to_be_merged()
    hold(stage.table, held_row(b"1;h", {}, 10, (W1, 9), 2), 2)
    hold(stage.table, held_row(b"1<", {}, 40, (W2, 4), 2), 2)
    had = [b"1", b"11", b"31"]
    made = split_rules.merge_change([_facts(stage.table, b"1;h"), _facts(stage.table, b"1<")], 3)
    _make(stage.table, made)
    flush = _facts(stage.table, b"1<").flush
    assert flush is not None
    tablet = Receiving(flush.high_water[STREAM], dict(flush.partial_high_waters))
    tablet.receive(30, 50, SENT[3:])
    tablet.receive(0, 50, SENT)
    return sorted([*had, *tablet.taken])


def test_r18_over_a_merge_each_record_is_taken_once() -> None:
    assert _over_a_merge() == sorted([b"1", b"11", b"21", b"31", b"41"])


def test_r18_with_the_highest_high_water_a_record_is_lost() -> None:
    with fault("highest-of-merged-counts"):
        assert b"21" not in _over_a_merge()


def test_r18_with_the_lowest_alone_records_are_taken_twice() -> None:
    with fault("nothing-is-ahead"):
        assert _over_a_merge().count(b"31") == 2


# ---- R24: the logs before a merged tablet


def _waits_for() -> list[WalPosition]:
    stage = to_be_merged()
    _make(stage.table, stage.made)
    flush = _facts(stage.table, b"1<").flush
    assert flush is not None
    return predecessors([WalPosition(*place) for place in flush.last_wals], "wal/s3/000001.wal")


def test_r24_the_first_record_of_a_merged_tablet_waits_for_all_that_it_was_made_of() -> None:
    assert _waits_for() == [WalPosition(W1, 9), WalPosition(W2, 4)]


def test_r24_without_it_a_record_overtakes_what_one_of_them_wrote() -> None:
    with fault("one-predecessor-is-enough"):
        assert WalPosition(W1, 9) not in _waits_for()
