"""Values of the metadata table: round trips, their bytes on disk, and corrupt ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper import strict_json
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata import values
from bookkeeper.metadata.values import (
    FateOp,
    FateStep,
    FlushState,
    Json,
    Location,
    LogHome,
    Quarantined,
    Received,
    ReplicaCell,
    SegmentEntry,
)
from bookkeeper.model import BlockRange, PartialHighWater, RowRange, StreamKey
from combiners import ReplicationStatus
from tests.support.status_strategies import statuses

TEXT = st.text(max_size=6)
COUNTS = st.integers(0, strict_json.INT_MAX)
STREAMS = st.builds(StreamKey, TEXT, TEXT, TEXT, TEXT, COUNTS, TEXT)
LEAVES = st.none() | st.booleans() | COUNTS | TEXT | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Json] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
OFFSETS = st.dictionaries(TEXT, COUNTS, max_size=3)

ROWS = st.none() | st.binary(max_size=4)
RANGES = st.builds(RowRange, ROWS, ROWS)

ANY = st.one_of(
    st.builds(Location, TEXT, TEXT),
    st.builds(ReplicaCell, TEXT, TEXT, st.sampled_from((values.VOTER, values.JOINING)), TEXT),
    st.builds(LogHome, TEXT, TEXT),
    st.builds(
        FlushState,
        flush_id=st.integers(1, strict_json.INT_MAX),
        through=OFFSETS,
        last_seq=COUNTS,
        last_time_ms=COUNTS,
        high_water=st.dictionaries(STREAMS, COUNTS, max_size=3),
        last_wals=st.lists(st.tuples(TEXT, COUNTS), max_size=3).map(tuple),
        segments=st.lists(TEXT, max_size=3).map(tuple),
        compacted=COUNTS,
        partial_high_waters=st.dictionaries(
            STREAMS, st.lists(st.builds(PartialHighWater, RANGES, COUNTS), max_size=2).map(tuple), max_size=2
        ),
    ),
    st.builds(
        SegmentEntry,
        *(TEXT, COUNTS, COUNTS, st.binary(), st.binary(), COUNTS, COUNTS, COUNTS),
        st.lists(RANGES, max_size=2).map(tuple),
    ),
    st.builds(Received, COUNTS, st.booleans()),
    st.builds(FateOp, TEXT, OBJECTS, COUNTS),
    st.builds(FateStep, TEXT, OBJECTS),
    st.builds(
        Quarantined, st.builds(BlockRange, COUNTS, COUNTS, COUNTS, COUNTS), TEXT, TEXT, COUNTS, st.booleans(), COUNTS
    ),
)
OPTIONAL = ("done", "in_place_of")
KINDS = (Location, ReplicaCell, LogHome, FlushState, SegmentEntry, Received, FateOp, FateStep, Quarantined)
Value = Location | ReplicaCell | LogHome | FlushState | SegmentEntry | Received | FateOp | FateStep | Quarantined

GOLDEN: dict[bytes, Value] = {
    b'{"address":"127.0.0.1:9","session":"s-1"}': Location("s-1", "127.0.0.1:9"),
    b'{"incarnation":"9f3a","placement":"p200000029","role":"joining"}': ReplicaCell(
        "p200000029", "9f3a", values.JOINING
    ),
    b'{"in_place_of":"p1","incarnation":"9f3a","placement":"p2","role":"voter"}': ReplicaCell(
        "p2", "9f3a", values.VOTER, "p1"
    ),
    b'{"host":"host2","incarnation":"9f3a"}': LogHome("host2", "9f3a"),
    b'{"ahead":{"i|f|a|b|1|":[["bQ==",null,9]]},"compacted":1,"flush_id":2,"high_water":{"i|f|a|b|1|":7},"last_seq":9,'
    b'"last_time_ms":1000,"last_wals":[["w/1.wal",9]],"segments":["s/1.parquet"],'
    b'"through":{"w/1.wal":9}}': FlushState(
        2,
        {"w/1.wal": 9},
        9,
        1000,
        {StreamKey("i", "f", "a", "b", 1): 7},
        (("w/1.wal", 9),),
        ("s/1.parquet",),
        1,
        {StreamKey("i", "f", "a", "b", 1): (PartialHighWater(RowRange(b"m", None), 9),)},
    ),
    b'{"bytes":10,"first_seq":1,"flush_id":2,"group":"default","last_seq":9,"max_row":"/w==","min_row":"AA==",'
    b'"records":9}': SegmentEntry("default", 9, 10, b"\x00", b"\xff", 1, 9, 2),
    b'{"offset":7}': Received(7),
    b'{"done":true,"offset":7}': Received(7, done=True),
    b'{"args":{"file":"f","targets":[1,null]},"created_ms":5,"type":"replicate_file"}': FateOp(
        "replicate_file", {"file": "f", "targets": [1, None]}, 5
    ),
    b'{"code":"corruption","end_position":64,"error":"e","first":5,"last":9,"since_ms":7,"start_position":8,'
    b'"tried":true}': Quarantined(BlockRange(5, 9, 8, 64), "corruption", "e", 7, tried=True),
    '{"state":{"über":1.5},"step":"ship"}'.encode(): FateStep("ship", {"über": 1.5}),
}


@given(ANY)
def test_values_round_trip(value: Value) -> None:
    assert type(value).decode(value.encode()) == value


@given(ANY)
def test_equal_values_have_equal_bytes(value: Value) -> None:
    assert type(value).decode(value.encode()).encode() == value.encode()


@pytest.mark.parametrize("raw", GOLDEN)
def test_recorded_bytes_keep_their_meaning(raw: bytes) -> None:
    value = GOLDEN[raw]
    assert type(value).decode(raw) == value
    assert value.encode() == raw


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.binary(max_size=20) | JSON.map(lambda value: repr(value).encode("utf-8", "replace")))
def test_garbage_is_corrupt(kind: type[Value], raw: bytes) -> None:
    try:
        value = kind.decode(raw)
    except CorruptionError:
        return
    assert kind.decode(value.encode()) == value


@pytest.mark.parametrize("raw", GOLDEN)
@given(data=st.data())
def test_a_field_less_or_more_or_of_another_type_is_corrupt(raw: bytes, data: st.DataObject) -> None:
    kind = type(GOLDEN[raw])
    fields = strict_json.read_object(raw, "a value")
    name = data.draw(st.sampled_from(sorted(fields)))
    less = {key: value for key, value in fields.items() if key != name}
    wrong: object = 1.5 if not isinstance(fields[name], float) else "x"
    for broken in ({**fields, "more": 1}, {**fields, name: wrong}, less):
        if broken is less and name in OPTIONAL:
            continue
        with pytest.raises(CorruptionError):
            kind.decode(_dump(broken))


def _dump(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Received, b'{"offset":-1}'),
        (Received, b'{"offset":true}'),
        (Received, b'{"offset":7,"done":false}'),
        (Received, b'{"offset":9223372036854775808}'),
        (Received, b'{"offset":1,"offset":2}'),
        (Received, b'{"offset":NaN}'),
        (Received, b'{"offset":' + b"9" * 5000 + b"}"),
        (Received, b'{"offset":1} '[:-1] + b"x"),
        (Received, b"[" * 100_000),
        (ReplicaCell, b'{"incarnation":"9f3a","placement":"p1","role":"leader"}'),
        (ReplicaCell, b'{"in_place_of":"","incarnation":"9f3a","placement":"p1","role":"voter"}'),
        (ReplicaCell, b'{"in_place_of":7,"incarnation":"9f3a","placement":"p1","role":"voter"}'),
        (ReplicaCell, b'{"in_place_of":"p1","incarnation":"9f3a","placement":"p1"}'),
        (FateStep, b'{"step":"\\ud800","state":{}}'),
        (FateStep, b'{"step":"a","state":{"x":"\\ud800"}}'),
        (FateStep, b'{"step":"a","state":{"x":1e999}}'),
        (FateStep, b'{"step":"a","state":{"x":Infinity}}'),
        (FateStep, b'{"step":"a","state":[]}'),
        (SegmentEntry, next(raw for raw in GOLDEN if b"AA==" in raw).replace(b"AA==", b"AB==")),
        (SegmentEntry, next(raw for raw in GOLDEN if b"AA==" in raw).replace(b"AA==", b"A!A==")),
        (FlushState, next(raw for raw in GOLDEN if b"last_wals" in raw).replace(b'"flush_id":2', b'"flush_id":0')),
        (FlushState, next(raw for raw in GOLDEN if b"last_wals" in raw).replace(b",9]", b"]")),
        (FlushState, next(raw for raw in GOLDEN if b"last_wals" in raw).replace(b"i|f|a|b|1|", b"i|f|a|b|01|")),
        (FlushState, next(raw for raw in GOLDEN if b"last_wals" in raw).replace(b"i|f|a|b|1|", b"i|f|a")),
    ],
)
def test_a_value_of_another_form_is_corrupt(kind: type[Value], raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        kind.decode(raw)


@pytest.mark.parametrize(
    "value",
    [
        Received(-1),
        Received(2**63),
        Location("\ud800", "a"),
        FateStep("a", {"x": float("nan")}),
        FateOp("a", {"x": {1, 2}}, 5),  # type: ignore[dict-item]  # a set is not JSON
        FlushState(0, {}, 0, 0, {}, ()),
    ],
)
def test_an_unreadable_value_is_not_written(value: Value) -> None:
    with pytest.raises(InvalidInputError):
        value.encode()


@given(statuses())
def test_statuses_round_trip_with_unknown_fields(status: ReplicationStatus) -> None:
    assert values.decode_status(values.encode_status(status)) == status


@pytest.mark.parametrize("raw", [b"\x08", b"\x07", b"\x2a\x05\x12\x01\xff\x12", b"{}"])
def test_a_broken_status_is_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        values.decode_status(raw)


@given(st.none() | st.binary())
def test_previous_rows_round_trip(row: bytes | None) -> None:
    assert values.decode_prev_row(values.encode_prev_row(row)) == row


@pytest.mark.parametrize("raw", [b"", b"\x00a", b"\x02a"])
def test_a_broken_previous_row_is_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        values.decode_prev_row(raw)


@given(TEXT)
def test_directories_round_trip(directory: str) -> None:
    assert values.decode_dir(values.encode_dir(directory)) == directory


def test_directories_are_text() -> None:
    with pytest.raises(CorruptionError):
        values.decode_dir(b"\xff")
    with pytest.raises(InvalidInputError):
        values.encode_dir("\ud800")
