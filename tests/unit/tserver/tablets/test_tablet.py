"""A served tablet: the content of its blocks, the writes that it takes back, the end of a flush (R13, R18, R24)."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.model import BlockTarget, Extent, Origin, StreamKey, TargetKey
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.load_plan import Recovered
from bookkeeper.tserver.tablets.tablet import (
    Moment,
    ServedTablet,
    TabletRecords,
    Tenure,
    tablet_records,
    with_timestamps,
)
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.tablets.wal_order import WalPosition
from tests.support.tservers import records
from tests.support.volumes import MACHINE, name_at

WHOLE = Extent("1", None, None)
STREAM = StreamKey("east", "1.wal", "7", "1", 1)
TARGET = block_target_to_pb(BlockTarget(TargetKey("east", "r1", "1", 1), None))
VIEW = TableView("1", "t", True, GroupMap({"a": [b"f"]}), (TARGET,), ("instance-east",))


def row_records(*rows: bytes, timestamp: int | None = None) -> TabletRecords:
    return tablet_records(records([(row, b"v") for row in rows], timestamp=timestamp))


def at(wal: str, now_ms: int = 1_000) -> Moment:
    return Moment(wal, VIEW, now_ms)


def after(draft: DraftBlock) -> list[tuple[str, int]]:
    return [(place.file, place.offset) for place in draft.header.after]


def placed(draft: DraftBlock, wal: str, first: int) -> PlacedBlock:
    return PlacedBlock(wal, first, draft)


class Served:
    """A tablet, and a log's offsets."""

    def __init__(self, directory: Path, recovered: Recovered | None = None) -> None:
        data = TabletData(WHOLE, VIEW.groups, MACHINE, name_at(directory), [])
        self.tablet = ServedTablet(WHOLE, data, recovered or Recovered(), Tenure(1, 1), 0)
        self.offset = 0

    def write(self, wal: str, *rows: bytes) -> DraftBlock:
        draft, _ = self.tablet.stage(row_records(*rows), at(wal))
        self.tablet.apply(placed(draft, wal, self.offset + 1))
        self.offset += len(rows)
        return draft


def test_a_block_says_what_it_is_and_for_whom(tmp_path: Path) -> None:
    served = Served(tmp_path)
    first, second = served.write("w1", b"b", b"a"), served.write("w1", b"c")
    header = first.header
    assert (header.table_id, header.first_seq, header.min_row, header.max_row) == ("1", 1, b"a", b"b")
    assert [group.name for group in header.groups] == ["a"]
    assert list(header.block_targets) == [TARGET]
    assert second.header.first_seq == 3


def test_r24_the_first_block_in_another_log_says_after_what(tmp_path: Path) -> None:
    served = Served(tmp_path, Recovered(last_wals=(WalPosition("w0", 9),)))
    first, second = served.write("w1", b"a"), served.write("w1", b"b")
    served.offset = 0
    third = served.write("w2", b"c")
    assert after(first) == [("w0", 9)], "R24: the first block in another log does not say after what it comes"
    assert after(second) == []
    assert after(third) == [("w1", 2)]


def test_r24_a_merged_tablet_comes_after_all_that_it_was_made_of(tmp_path: Path) -> None:
    served = Served(tmp_path, Recovered(last_wals=(WalPosition("w0", 9), WalPosition("w1", 4))))
    served.offset = 4
    first, second = served.write("w1", b"a"), served.write("w1", b"b")
    assert (after(first), after(second)) == ([("w0", 9)], [])
    served.offset = 0
    assert after(served.write("w2", b"c")) == [("w1", 6)]


def test_r24_a_block_that_was_given_up_leaves_its_predecessor_to_the_next(tmp_path: Path) -> None:
    served = Served(tmp_path, Recovered(last_wals=(WalPosition("w0", 9),)))
    _, undo = served.tablet.stage(row_records(b"a"), at("w1"))
    served.tablet.take_back(undo)
    draft = served.write("w1", b"a")
    assert (after(draft), draft.header.first_seq) == ([("w0", 9)], 1)


def test_the_server_time_never_goes_back(tmp_path: Path) -> None:
    tablet = Served(tmp_path).tablet
    late, _ = tablet.stage(row_records(b"a"), at("w", now_ms=50))
    early, _ = tablet.stage(row_records(b"a"), at("w", now_ms=20))
    assert late.batch.column("timestamp").to_pylist() == early.batch.column("timestamp").to_pylist() == [50]
    assert early.header.write_time_ms == 50


def test_only_missing_timestamps_are_filled() -> None:
    assert with_timestamps(records([(b"a", b"")], timestamp=7), 99).column("timestamp").to_pylist() == [7]


def test_r18_what_is_in_flight_counts_and_what_is_given_up_does_not(tmp_path: Path) -> None:
    tablet = Served(tmp_path).tablet
    draft, first = tablet.stage(row_records(b"a", timestamp=1), at("w"), ["east"], Origin(STREAM, 0, 4))
    assert tablet.received.staged_high_water(STREAM) == 4
    second = tablet.stage_high_water(STREAM, 9)
    assert tablet.received.staged_high_water(STREAM) == 9
    tablet.take_back(second)
    assert tablet.received.staged_high_water(STREAM) == 4
    tablet.apply(placed(draft, "w", 1))
    tablet.received.apply_high_water(STREAM, 4)
    assert tablet.received.high_water == {STREAM: 4}
    other = tablet.stage_high_water(STREAM, 6)
    tablet.take_back(other)
    assert tablet.received.staged_high_water(STREAM) == 4
    tablet.take_back(first)


def test_r20_what_is_given_up_when_the_message_before_it_is_applied_leaves_nothing_in_flight(tmp_path: Path) -> None:
    tablet = Served(tmp_path).tablet
    tablet.stage_high_water(STREAM, 4)
    given_up = tablet.stage_high_water(STREAM, 9)
    tablet.received.apply_high_water(STREAM, 4)
    tablet.take_back(given_up)
    assert tablet.received.staged_high_water(STREAM) == 4
    tablet.received.forget_stream(STREAM)
    assert not tablet.received.has_stream(STREAM)


def test_a_flush_holds_what_was_applied_and_nothing_that_is_only_staged(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.write("w1", b"a", b"b")
    served.tablet.stage(row_records(b"c", timestamp=1), at("w1"), ["east"], Origin(STREAM, 0, 4))
    point = served.tablet.begin_flush("w1", 0)
    assert point is not None
    state = point.state
    assert (dict(state.through), state.last_seq, dict(state.high_water), state.last_wals) == (
        {"w1": 2},
        2,
        {},
        (("w1", 2),),
    )
    assert point.frozen is not None
    assert point.frozen.records == 2


def test_a_flush_that_is_not_in_the_books_yet_is_the_one_that_goes_on(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.write("w1", b"a")
    point = served.tablet.begin_flush("w1", 0)
    served.write("w1", b"b")
    assert served.tablet.begin_flush("w1", 0) is point
    assert point is not None
    served.tablet.data.finish_flush(point.frozen, served.tablet.data.write_segments(point.frozen, 1))  # type: ignore[arg-type]
    served.tablet.flushes.end(point)
    assert served.tablet.flushes.needed_logs() == {"w1": 2}
    following = served.tablet.begin_flush("w1", 0)
    assert following is not None
    assert following is not point
    assert served.tablet.flushes.take_flush_id() < served.tablet.flushes.take_flush_id()


def flushed(served: Served, wal: str, now_ns: int) -> FlushPoint:
    """A flush that is complete."""
    point = served.tablet.begin_flush(wal, now_ns)
    assert point is not None
    assert point.frozen is not None
    served.tablet.data.finish_flush(point.frozen, served.tablet.data.write_segments(point.frozen, now_ns + 1))
    served.tablet.flushes.end(point)
    return point


def test_r4_a_log_whose_cell_waits_for_a_name_has_its_offset_in_each_state(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.write("w1", b"a")
    served.tablet.flushes.retain_logs(flushed(served, "w1", 0).logs)
    for now_ns in (1, 2):
        served.write("w2", b"b")
        state = flushed(served, "w2", now_ns).state
    assert state.through.get("w1") == 1, "R4: a log that the row still names is replayed from its beginning"
    served.tablet.flushes.release_logs({})
    for now_ns in (3, 4):
        served.write("w2", b"c")
        state = flushed(served, "w2", now_ns).state
    assert "w1" not in state.through


def test_nothing_new_needs_no_flush(tmp_path: Path) -> None:
    tablet = Served(tmp_path).tablet
    assert tablet.begin_flush("w1", 0) is None
    tablet.received.apply_high_water(STREAM, 3)
    assert tablet.begin_flush("w1", 0) is not None


def test_unlogged_records_are_numbered_and_in_no_log(tmp_path: Path) -> None:
    tablet = Served(tmp_path).tablet
    draft, _ = tablet.stage_unlogged(row_records(b"a"), 5)
    tablet.apply(PlacedBlock("", 0, draft))
    assert tablet.flushes.needed_logs() == {}
    assert tablet.last_wals == ()
    following, _ = tablet.stage(row_records(b"b"), at("w"))
    assert following.header.first_seq == 2
