"""Keys, columns and ranks: exact both ways, and in the order of the named things."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CLOSED_RANK, MAX_RANK, Column, prefix_stop
from bookkeeper.model import StreamKey, TargetKey

TABLE_IDS = st.from_regex(r"[a-z0-9]{1,3}", fullmatch=True)
ROWS = st.binary(max_size=4) | st.sampled_from([b"", b"\x00", b"\xff", b"\xff\xff", b";", b"<", b"a\x00"])
TEXT = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["_", "%5F", "a_b", "a:b", "%", "~repl_", "\x00", "\uffff", "\U0010ffff", "wal/w-1/1.wal"]
)
COUNTS = st.integers(0, 2**40)
OFFSETS = st.integers(1, keys.OFFSET_MAX)
TARGETS = st.builds(TargetKey, TEXT, TEXT, TEXT, COUNTS)
STREAMS = st.builds(StreamKey, TEXT, TEXT, TEXT, TEXT, COUNTS, TEXT | st.just(""))


@given(TABLE_IDS, st.none() | ROWS)
def test_tablet_rows_round_trip(table_id: str, end_row: bytes | None) -> None:
    assert keys.parse_tablet_row(keys.tablet_row(table_id, end_row)) == (table_id, end_row)


@given(TABLE_IDS, st.none() | ROWS, st.none() | ROWS)
def test_tablets_sort_by_end_row_and_the_last_one_last(table_id: str, a: bytes | None, b: bytes | None) -> None:
    def by_end(end: bytes | None) -> tuple[bool, bytes]:
        return end is None, end or b""

    assert (keys.tablet_row(table_id, a) < keys.tablet_row(table_id, b)) == (by_end(a) < by_end(b))


@given(TABLE_IDS, TABLE_IDS, st.none() | ROWS)
def test_a_table_section_holds_its_own_tablets_only(table_id: str, other: str, end_row: bytes | None) -> None:
    start, stop = keys.table_section(table_id)
    row = keys.tablet_row(other, end_row)
    assert (start <= row < stop) == (table_id == other)
    assert keys.TABLETS_START <= row < keys.TABLETS_STOP


@given(st.binary(max_size=6))
def test_each_row_that_parses_is_a_tablet_row(raw: bytes) -> None:
    try:
        table_id, end_row = keys.parse_tablet_row(raw)
    except CorruptionError:
        return
    assert keys.tablet_row(table_id, end_row) == raw


@pytest.mark.parametrize("table_id", ["", "A", "a-b", "ä", "a;", "~", "\ud800", "1\n"])
def test_other_table_ids_are_refused(table_id: str) -> None:
    with pytest.raises(InvalidInputError):
        keys.tablet_row(table_id, None)


@given(TEXT)
def test_file_names_round_trip(name: str) -> None:
    for column in (keys.segment_column(name), keys.log_column(name), keys.repl_column(name)):
        assert keys.parse_file(column.qualifier) == name
    assert keys.parse_repl_row(keys.repl_row(name)) == name
    assert keys.parse_fate_row(keys.fate_row(name)) == name
    assert keys.parse_del_row(keys.del_row(name)) == name
    assert keys.parse_quar_row(keys.quar_row(name)) == name
    assert keys.parse_hold_row(keys.hold_row(name)) == name
    assert keys.parse_home_row(keys.home_row(name)) == name
    assert keys.parse_lost(keys.lost_column(name)) == name
    assert keys.parse_hold_column(keys.hold_column(name).qualifier) == name
    assert keys.parse_log_hold(keys.log_hold_column(name).qualifier) == name
    assert keys.parse_arrival(keys.arrival_column(name).qualifier) == name
    assert keys.parse_taking(keys.taking_column("tserver-1", name).qualifier) == "tserver-1"


@pytest.mark.parametrize("session", ["", "a/b"])
def test_a_taking_needs_a_session(session: str) -> None:
    with pytest.raises(InvalidInputError):
        keys.taking_column(session, "order")
    with pytest.raises(CorruptionError):
        keys.parse_taking(b"tserver-1/")


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True))
def test_the_host_of_a_replica_round_trips(host: str) -> None:
    assert keys.parse_replica(keys.replica_column(host).qualifier) == host


@pytest.mark.parametrize("host", ["", "-a", "Host", "a" * 32, "a_b", "ä", "a\n"])
def test_a_name_that_no_host_may_have_is_refused(host: str) -> None:
    with pytest.raises(InvalidInputError, match="host's name"):
        keys.replica_column(host)
    with pytest.raises(CorruptionError, match="not the name of a host"):
        keys.parse_replica(host.encode())


@given(TEXT, TEXT)
def test_the_two_sides_of_the_join_sort_alike(a: str, b: str) -> None:
    order = a.encode() < b.encode()
    assert (keys.repl_row(a) < keys.repl_row(b)) == order
    assert (keys.repl_column(a) < keys.repl_column(b)) == order
    assert (a < b) == order


@given(TARGETS)
def test_targets_round_trip(target: TargetKey) -> None:
    assert keys.parse_target(keys.needed_column(target).qualifier) == target
    assert keys.parse_target(keys.done_column(target).qualifier) == target
    assert keys.needed_column(target).family != keys.done_column(target).family


@given(TARGETS, TARGETS)
def test_different_targets_have_different_columns(a: TargetKey, b: TargetKey) -> None:
    assert (keys.needed_column(a) == keys.needed_column(b)) == (a == b)


@given(TARGETS, OFFSETS)
def test_quarantined_ranges_round_trip(target: TargetKey, first: int) -> None:
    assert keys.parse_quar_column(keys.quar_column(target, first).qualifier) == (target, first)


@pytest.mark.parametrize("raw", [b"", b"a:b:c:1", b"a:b:c:1:", b"a:b:c:1:0", b"a:b:c:1:01", b"a:b:c:1:-1", b"a:b:1:5"])
def test_other_qualifiers_are_not_quarantined_ranges(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        keys.parse_quar_column(raw)


@given(STREAMS)
def test_streams_round_trip(stream: StreamKey) -> None:
    cell = keys.recv_cell(stream)
    assert cell.key == keys.recv_row(stream.source_instance_id, stream.file)
    assert keys.parse_recv_cell(cell.key, cell.column.qualifier) == stream


@given(STREAMS, TEXT, TEXT)
def test_a_recv_section_holds_one_source_in_order_of_files(stream: StreamKey, file: str, other: str) -> None:
    start, stop = keys.recv_section(stream.source_instance_id)
    row = keys.recv_cell(stream).key
    assert start <= row
    assert stop is None or row < stop
    second = keys.recv_cell(replace(stream, file=file)).key
    assert (row < second) == (stream.file.encode() < file.encode())
    assume(other != stream.source_instance_id)
    outside = keys.recv_row(other, file)
    assert not (start <= outside and (stop is None or outside < stop))


@pytest.mark.parametrize(
    "raw",
    [b"", b"a:b:c", b"a:b:c:1:2", b"a:b:c:x", b"a:b:c:01", b"a:b:c: 1", b"a b:c:d:1", b"%61:b:c:1", b"\xff:b:c:1"],
)
def test_a_target_that_would_be_written_otherwise_is_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        keys.parse_target(raw)


@pytest.mark.parametrize(
    ("key", "qualifier"),
    [
        (b"~recv_i_f", b"a:b"),
        (b"~recv_i_f", b"a:b:c"),
        (b"~recv_i_f", b"a:b:-1"),
        (b"~recv_i_f", b"a:b:01"),
        (b"~recv_i_f", b"a:b:1:"),
        (b"~recv_i_f", b"a:b:1:r:s"),
        (b"~recv_i_f", b"a:b:" + b"9" * 5000),
        (b"~recv_i_f", b"\xff:b:1"),
        (b"~recv_i%5f_f", b"a:b:1"),
        (b"~recv_if", b"a:b:1"),
        (b"~recv__f", b"a:b:1"),
        (b"~recv_i_", b"a:b:1"),
        (b"~repl_i_f", b"a:b:1"),
    ],
)
def test_a_stream_that_would_be_written_otherwise_is_corrupt(key: bytes, qualifier: bytes) -> None:
    with pytest.raises(CorruptionError):
        keys.parse_recv_cell(key, qualifier)


@pytest.mark.parametrize("key", [b"", b"~repl_", b"~recv_x", b"~repl_\xff", b"x~repl_f"])
def test_other_rows_are_not_repl_rows(key: bytes) -> None:
    with pytest.raises(CorruptionError):
        keys.parse_repl_row(key)


def test_sections_are_disjoint_and_above_every_table() -> None:
    rows = {
        keys.REPL_PREFIX: keys.repl_row("f"),
        keys.RECV_PREFIX: keys.recv_row("i", "f"),
        keys.FATE_PREFIX: keys.fate_row("t"),
        keys.DEL_PREFIX: keys.del_row("f"),
    }
    for prefix in rows:
        start, stop = keys.section(prefix)
        assert start >= keys.TABLETS_STOP
        assert {p for p, row in rows.items() if start <= row and (stop is None or row < stop)} == {prefix}


@given(st.binary(max_size=3), st.binary(max_size=4))
def test_a_section_is_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    stop = prefix_stop(prefix)
    assert (prefix <= key and (stop is None or key < stop)) == key.startswith(prefix)


@given(OFFSETS, OFFSETS)
def test_needed_ranks_rise_and_stay_below_closed(a: int, b: int) -> None:
    assert (keys.needed_rank(a) < keys.needed_rank(b)) == (a < b)
    assert 0 < keys.first_use_rank(a) < keys.needed_rank(a) < CLOSED_RANK <= keys.closed_rank(0)
    assert keys.needed_rank(a) < keys.closed_rank(b) <= MAX_RANK


@given(OFFSETS, OFFSETS)
def test_deleting_a_log_cell_hides_the_uses_up_to_it_and_no_later_one(through: int, first: int) -> None:
    assert (keys.first_use_rank(first) <= keys.log_delete_rank(through)) == (first <= through)


@given(st.integers(1, (MAX_RANK >> 32) - 2), st.integers(0, 2**32 - 1))
def test_master_ranks_split(epoch: int, number: int) -> None:
    rank = keys.master_rank(epoch, number)
    assert keys.split_master_rank(rank) == (epoch, number)
    assert 0 < rank <= MAX_RANK
    assert keys.master_rank(epoch, 2**32 - 1) < keys.master_rank(epoch + 1, 0)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.booleans(), st.booleans())
def test_recv_ranks_rise_with_offset_then_done(a: int, b: int, done_a: bool, done_b: bool) -> None:
    assert (keys.recv_rank(a, done_a) < keys.recv_rank(b, done_b)) == ((a, done_a) < (b, done_b))
    assert keys.recv_rank(a, done_a) > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: keys.needed_rank(0),
        lambda: keys.needed_rank(keys.OFFSET_MAX + 1),
        lambda: keys.first_use_rank(0),
        lambda: keys.log_delete_rank(-1),
        lambda: keys.closed_rank(-1),
        lambda: keys.closed_rank(keys.OFFSET_MAX + 1),
        lambda: keys.master_rank(0, 1),
        lambda: keys.master_rank(MAX_RANK >> 32, 0),
        lambda: keys.master_rank(1, 2**32),
        lambda: keys.recv_rank(-1, False),
        lambda: keys.repl_row(""),
        lambda: keys.repl_row("\ud800"),
        lambda: keys.needed_column(TargetKey("\ud800", "a", "b", 1)),
        lambda: keys.recv_row("", "f"),
        lambda: keys.recv_cell(StreamKey("i", "f", "a", "b", -1)),
        lambda: keys.recv_cell(StreamKey("i", "f", "\ud800", "b", 1)),
    ],
)
def test_values_without_a_key_or_rank_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError):
        make()


def test_keys_are_as_documented() -> None:
    target = TargetKey("east", "5", "2a", 3)
    stream = StreamKey("i_1", "w/1.wal", "2a", "5", 3)
    assert keys.tablet_row("2a", b"m") == b"2a;m"
    assert keys.tablet_row("2a", None) == b"2a<"
    assert keys.repl_row("w/1.wal") == b"~repl_w/1.wal"
    assert keys.done_column(target) == Column("done", b"east:5:2a:3")
    assert keys.recv_cell(stream).key == b"~recv_i%5F1_w/1.wal"
    assert keys.recv_cell(stream).column == Column("recv", b"2a:5:3")
    assert keys.recv_cell(replace(stream, run_id="r")).column == Column("recv", b"2a:5:3:r")
    assert keys.master_rank(3, 4) == 3 * 2**32 + 4
