"""A tablet's segments in the books: put together, dead for ever when they count no more (R1, R16 to R18)."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import StreamKey
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.tablets import tablet_segments
from bookkeeper.tserver.tablets.load_plan import first_flush_id
from bookkeeper.tserver.tablets.tablet_segments import dead_segments, is_own, named_state, segments_put

ROW = keys.tablet_row("1", None)
SERIAL = 3
FIRST = first_flush_id(SERIAL)
STREAM = StreamKey("east-id", "their.wal", "7", "1", 1)
STATE = FlushState(FIRST + 5, {"w1": 30}, 40, 900, {STREAM: 8}, (("w0", 12),), ("a", "b"), FIRST)


def ref(name: str, flush_id: int = FIRST) -> SegmentRef:
    return SegmentRef(name, "default", 3, 40, b"a", b"z", 1, 3, flush_id)


def row(state: FlushState | None, **cells: int) -> Row:
    """A row with this state, and a cell at this rank for each segment."""
    found: dict[Column, Cell] = {
        keys.segment_column(name): Cell(rank, segment_entry(ref(name, rank)).encode()) for name, rank in cells.items()
    }
    if state is not None:
        found[keys.FLUSH] = Cell(state.flush_id, state.encode())
    return Row(ROW, found)


def test_new_segments_and_the_state_that_names_them_go_in_one_row_put() -> None:
    put = segments_put(ROW, STATE, [ref("b")])
    assert put.key == ROW
    assert put.values.keys() == {keys.segment_column("b"), keys.FLUSH}
    assert SegmentEntry.decode(put.values[keys.segment_column("b")]) == segment_entry(ref("b"))
    assert FlushState.decode(put.values[keys.FLUSH]) == STATE


def test_r18_a_compaction_changes_nothing_but_segments() -> None:
    behind = tablet_segments.merged_state(STATE, FIRST + 9, [ref("c")], FIRST + 7)
    assert behind == replace(STATE, flush_id=FIRST + 9, segments=("c",), compacted=FIRST + 7), (
        "R18: a compaction changes more than segments"
    )
    assert tablet_segments.merged_state(None, FIRST, [ref("c")], 0).segments == ("c",)


def test_a_flush_adds_its_segments_to_those_that_count() -> None:
    assert named_state(STATE, FIRST + 6, [ref("a"), ref("x")], 4).segments == ("a", "x")


def test_cells_that_the_newest_state_does_not_name_are_dead() -> None:
    dead = dead_segments(row(STATE, a=FIRST, b=FIRST + 1, c=FIRST + 2, late=first_flush_id(SERIAL - 1)), SERIAL)
    assert dead is not None, "a cell that the newest state does not name stays"
    assert dead.names == ("c", "late")
    assert {cell.column for cell in dead.cells} == {keys.segment_column("c"), keys.segment_column("late")}
    assert {cell.key for cell in dead.cells} == {ROW}
    assert dead.rank >= STATE.flush_id
    assert [put.key for put in dead.marks()] == [keys.del_row("c"), keys.del_row("late")]


def test_a_rank_hides_every_dead_cell() -> None:
    dead = dead_segments(row(STATE, a=FIRST, b=FIRST, c=FIRST + 100), SERIAL)
    assert dead is not None
    assert dead.rank == FIRST + 100


def test_nothing_is_dead_by_the_state_of_another_holder_or_by_none() -> None:
    zombies = replace(STATE, flush_id=first_flush_id(SERIAL - 1) + 3)
    assert dead_segments(row(zombies, a=FIRST, c=FIRST), SERIAL) is None, (
        "a late state of another holder decides what is dead"
    )
    assert dead_segments(row(replace(STATE, flush_id=first_flush_id(SERIAL + 1)), c=FIRST), SERIAL) is None
    assert dead_segments(row(None, c=FIRST), SERIAL) is None
    assert dead_segments(None, SERIAL) is None
    assert dead_segments(row(STATE, a=FIRST, b=FIRST), SERIAL) is None


def test_what_an_earlier_holder_left_needs_a_state_of_ones_own() -> None:
    earlier = replace(STATE, flush_id=first_flush_id(SERIAL - 1) + 3)
    assert tablet_segments.has_cells_of_others(row(earlier, a=FIRST, b=FIRST, c=FIRST), SERIAL, {"a", "b"})
    assert not tablet_segments.has_cells_of_others(row(earlier, a=FIRST, b=FIRST), SERIAL, {"a", "b"})
    assert not tablet_segments.has_cells_of_others(row(STATE, a=FIRST, c=FIRST), SERIAL, {"a"})
    assert not tablet_segments.has_cells_of_others(
        row(replace(STATE, flush_id=first_flush_id(SERIAL + 1)), c=FIRST), SERIAL, {}
    )
    assert not tablet_segments.has_cells_of_others(row(None), SERIAL, ())
    assert not tablet_segments.has_cells_of_others(None, SERIAL, ())


def test_a_holders_states_lie_between_its_serial_and_the_next() -> None:
    assert is_own(FIRST, SERIAL)
    assert is_own(first_flush_id(SERIAL + 1) - 1, SERIAL)
    assert not is_own(FIRST - 1, SERIAL)
    assert not is_own(first_flush_id(SERIAL + 1), SERIAL)
