"""The load plan of a tablet's row and its logs: nothing lost, nothing twice, one value a rank (R1, R15, R18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, NotFoundError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent, Origin, StreamKey
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import origin_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.tablets.load_plan import (
    LogToRead,
    Recovered,
    TabletRow,
    all_uses,
    check_assignment,
    first_flush_id,
    forgotten_streams,
    is_behind,
    live_segments,
    next_serial,
    parse_tablet,
    recovery_plan,
    replay_order,
    tablet_key,
    unneeded_logs,
    writer_of,
)
from bookkeeper.tserver.tablets.wal_order import WalPosition

WHOLE = Extent("1", None, None)
STREAM = StreamKey("east-id", "their.wal", "7", "1", 1)
EMPTY = pa.py_buffer(b"")


def flush_state(
    flush_id: int = 5, through: Mapping[str, int] | None = None, last_seq: int = 40, high_water: int = 0
) -> FlushState:
    streams = {STREAM: high_water} if high_water else {}
    return FlushState(flush_id, through or {}, last_seq, 900, streams, (("w0", 12),))


def tablet_row(**cells: bytes) -> Row:
    base = {keys.PREV_ROW: Cell(1, values.encode_prev_row(None)), keys.DIR: Cell(1, values.encode_dir("t-0"))}
    named = {"flush": keys.FLUSH, "location": keys.LOCATION}
    more = {named[name]: Cell(9, value) for name, value in cells.items()}
    return Row(keys.tablet_row("1", None), {**base, **more})


def block(
    first: int,
    count: int = 1,
    seq: int = 1,
    rows: tuple[bytes, bytes] = (b"a", b"b"),
    table_id: str = "1",
    to_offset: int = 0,
) -> Block:
    origin = origin_to_pb(Origin(STREAM, 0, to_offset)) if to_offset else None
    header = BlockHeader(
        table_id=table_id,
        first_offset=first,
        record_count=count,
        first_seq=seq,
        min_row=rows[0],
        max_row=rows[1],
        write_time_ms=1000 + seq,
        origin=origin,
    )
    return Block(header, EMPTY)


def segment(flush_id: int, first_seq: int, last_seq: int, group: str = "default") -> SegmentEntry:
    return SegmentEntry(group, last_seq - first_seq + 1, 10, b"a", b"z", first_seq, last_seq, flush_id)


def test_a_row_is_parsed_whole() -> None:
    row = tablet_row(flush=flush_state().encode(), location=values.Location("s1", "h:1").encode())
    cells = {**row.cells, keys.log_column("w1"): Cell(1, values.LOG), keys.SERIAL: Cell(3, keys.SERIAL_VALUE)}
    parsed = parse_tablet(Row(row.key, cells))
    assert (parsed.extent, parsed.directory, parsed.session, parsed.serial) == (WHOLE, "t-0", "s1", 3)
    assert (parsed.logs, parsed.flush) == (("w1",), flush_state())


def test_a_row_without_its_borders_is_corrupt() -> None:
    with pytest.raises(CorruptionError):
        parse_tablet(Row(keys.tablet_row("1", None), {Column("log", b"w"): Cell(1, values.LOG)}))


def test_a_tablet_is_loaded_only_by_the_session_that_its_row_names() -> None:
    row = parse_tablet(tablet_row(location=values.Location("s1", "h:1").encode()))
    assert check_assignment(row, WHOLE, "s1") is row
    with pytest.raises(RefusedError):
        check_assignment(row, WHOLE, "s2")
    with pytest.raises(RefusedError):
        check_assignment(parse_tablet(tablet_row()), WHOLE, "s1")
    parked = parse_tablet(tablet_row(location=values.Location("s1", "").encode()))
    with pytest.raises(RefusedError):
        check_assignment(parked, WHOLE, "s1")
    with pytest.raises(NotFoundError):
        check_assignment(None, WHOLE, "s1")
    with pytest.raises(NotFoundError):
        check_assignment(row, Extent("1", None, b"m"), "s1")


def test_every_log_of_the_row_is_read_from_where_the_segments_end() -> None:
    cells = dict(tablet_row(flush=flush_state(through={"w1": 30}).encode()).cells)
    cells |= {keys.log_column("w1"): Cell(1, values.LOG), keys.log_column("w2"): Cell(1, values.LOG)}
    plan = recovery_plan(parse_tablet(Row(keys.tablet_row("1", None), cells)))
    assert plan == [LogToRead("w1", 30), LogToRead("w2", 0)]


def test_only_blocks_that_the_segments_lack_are_replayed() -> None:
    log = LogToRead("w", 10)
    assert not is_behind(log, block(6, 5).header)
    assert is_behind(log, block(11).header)


def test_a_tablet_that_was_split_wrote_under_another_name_than_its_halves() -> None:
    middle = Extent("1", b"m", b"c")
    whole, half = block(11).header, block(11).header
    half.end_row = b"m"
    assert (writer_of(whole), writer_of(half)) == (tablet_key(WHOLE), tablet_key(middle))
    assert tablet_key(WHOLE) not in (tablet_key(middle), writer_of(block(11, table_id="2").header))


def test_r24_blocks_are_replayed_in_the_order_in_which_the_tablet_wrote_them() -> None:
    found = [("w9", block(1, seq=5)), ("w2", block(7, seq=9)), ("w9", block(2, seq=6))]
    assert [(name, b.header.first_seq) for name, b in replay_order(found)] == [("w9", 5), ("w9", 6), ("w2", 9)]


def test_the_state_goes_on_where_the_flush_ended() -> None:
    recovered = Recovered.start(flush_state(high_water=4))
    assert (recovered.next_seq, recovered.last_time_ms, recovered.last_wals) == (41, 900, (WalPosition("w0", 12),))
    assert recovered.high_water == {STREAM: 4}


def test_r18_the_high_water_is_rebuilt_from_block_headers() -> None:
    recovered = Recovered.start(flush_state(high_water=4))
    recovered.absorb("w1", block(1, 3, seq=41, to_offset=9))
    recovered.absorb("w1", block(4, 1, seq=44, to_offset=7))
    assert recovered.high_water == {STREAM: 9}, "R18: the high-water is not rebuilt from the blocks"


def test_sequence_numbers_time_and_place_follow_the_replayed_blocks() -> None:
    recovered = Recovered.start(flush_state())
    assert recovered.absorb("w1", block(4, 3, seq=41)) == 41
    assert (recovered.next_seq, recovered.last_time_ms, recovered.last_wals) == (44, 1041, (WalPosition("w1", 6),))


def test_records_that_no_log_held_do_not_share_numbers_with_those_that_a_log_holds() -> None:
    recovered = Recovered.start(flush_state(last_seq=60))
    assert recovered.absorb("w1", block(1, 3, seq=50)) == 61
    assert recovered.absorb("w1", block(4, 1, seq=53)) == 64


def test_logs_without_a_record_for_the_tablet_are_let_go_beyond_their_seal() -> None:
    row = replace(parse_tablet(tablet_row()), logs=("w1", "w2", "w3"), lost=frozenset({"w3"}))
    assert unneeded_logs(row, {"w2"}) == ["w1"], "a log that was not read may have records that the tablet needs"
    through = all_uses(["w1"])["w1"]
    assert keys.log_delete_rank(through) > keys.first_use_rank(keys.OFFSET_MAX), "however many groups were lost"


def test_r1_flush_ids_of_holders_never_meet() -> None:
    old, new = (
        parse_tablet(tablet_row()),
        parse_tablet(Row(keys.tablet_row("1", None), {**tablet_row().cells, keys.SERIAL: Cell(1, keys.SERIAL_VALUE)})),
    )
    first, second = first_flush_id(next_serial(old)), first_flush_id(next_serial(new))
    assert first + 2**32 - 2 < second


def row_with(named: Sequence[str], *cells: str) -> TabletRow:
    """A row whose newest state names some segments, and that has cells of some."""
    state = replace(flush_state(), segments=tuple(named))
    found = {keys.segment_column(name): Cell(1, segment(5, 1, 9).encode()) for name in cells}
    return parse_tablet(Row(keys.tablet_row("1", None), {**tablet_row(flush=state.encode()).cells, **found}))


def test_a_segment_that_the_newest_state_does_not_name_does_not_count() -> None:
    assert set(live_segments(row_with(["s1", "s3"], "s1", "late", "s3"))) == {"s1", "s3"}, (
        "a segment that the newest state does not name counts"
    )


def test_a_tablet_whose_state_names_a_segment_without_a_cell_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="s2"):
        live_segments(row_with(["s1", "s2"], "s1"))


def test_a_tablet_that_was_never_flushed_has_no_segments() -> None:
    late = {keys.segment_column("late"): Cell(1, segment(5, 1, 9).encode())}
    assert live_segments(parse_tablet(Row(keys.tablet_row("1", None), {**tablet_row().cells, **late}))) == {}


def test_r20_only_marks_of_streams_that_are_over_are_dropped() -> None:
    ended, goes_on = (StreamKey("east", f"{n}.wal", "7", "1", 1) for n in (1, 2))
    assert forgotten_streams({ended: 5, goes_on: 7}, {goes_on}) == [ended]
    assert forgotten_streams({}, {goes_on}) == []
