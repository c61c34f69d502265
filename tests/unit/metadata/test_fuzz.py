"""Any bytes in a cell or in the configuration decode to a value or CorruptionError, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import combiners
from bookkeeper.coordination.config_tree import parse_config
from bookkeeper.coordination.coordination_protocol import Versioned
from bookkeeper.errors import CorruptionError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.tserver.tablets.load_plan import parse_tablet
from tests.support.damage import damaged
from tests.support.faults import fault
from tests.unit.metadata.test_values import GOLDEN

TREE = {
    "/instance": {"id": "i", "name": "west"},
    "/read_only": {"read_only": False},
    "/clusters/east": {"quorum": "h:1", "instance_id": "e", "name": "east"},
    "/users/ann": {"authorizations": ["a"]},
    "/tables/1": {
        "id": "1",
        "name": "t",
        "state": "online",
        "groups": [{"name": "geo", "families": ["bGF0"]}],
        "properties": {"table.versions.max": "2"},
        "targets": [
            {
                "cluster": "east",
                "remote_table_id": "2",
                "remote_table": "t",
                "incarnation": 1,
                "groups": ["geo"],
                "peer_instance_id": "e",
            }
        ],
    },
}
SURROGATE = b'{"id":"i","name":"\\ud800"}'
DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'{"offset":' + b"9" * 10_000 + b"}", b'"\\ud800"', b"NaN"]
STATUS = combiners.ReplicationStatus(
    state=combiners.CLOSED,
    replication_needed_offset=300,
    replication_finished_offset=100,
    created_time=7,
    barriers=[combiners.Barrier(offset=3, file="w/1.wal", until_offset=9)],
    needed_bytes=2**40,
).SerializeToString()
NESTED = b"\xab\x06" * 200 + b"\xac\x06" * 200


def declared(decode: Callable[[], object]) -> object | None:
    """The decoded value, or None for a declared error; any other error fails the test."""
    try:
        return decode()
    except CorruptionError:
        return None


@pytest.mark.parametrize("raw", GOLDEN)
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_value_is_corrupt_or_another_value_and_nothing_of_it_is_dropped(
    raw: bytes, data: st.DataObject
) -> None:
    kind = type(GOLDEN[raw])
    found = data.draw(damaged(raw, data.draw(st.sampled_from(sorted(GOLDEN)))))
    value = declared(lambda: kind.decode(found))
    if isinstance(value, kind):
        assert json.loads(value.encode()) == json.loads(found), "a value that is rewritten loses nothing"


@pytest.mark.parametrize("raw", DEEP, ids=lambda raw: raw[:12].decode())
def test_deep_and_long_json_is_corrupt(raw: bytes) -> None:
    for kind in {type(value) for value in GOLDEN.values()}:
        with pytest.raises(CorruptionError) as caught:
            kind.decode(raw)
        assert len(caught.value.message) < 2_000, "an error does not repeat what it was given"
    for path in TREE:
        with pytest.raises(CorruptionError, match=path):
            parse_config(1, {path: Versioned(raw, 1)})


def test_text_that_could_not_be_written_again_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="/instance"):
        parse_config(1, {"/instance": Versioned(SURROGATE, 1)})


@settings(max_examples=80)
@given(data=st.data())
def test_a_damaged_record_of_the_configuration_is_corrupt_or_another_record(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(TREE)))
    raw, other = (json.dumps(TREE[name]).encode() for name in (path, data.draw(st.sampled_from(sorted(TREE)))))
    declared(lambda: parse_config(1, {path: Versioned(data.draw(damaged(raw, other)), 1)}))


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_status_is_corrupt_or_a_member_of_the_lattice(data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=60) | damaged(STATUS, NESTED))
    check_status(raw)


@pytest.mark.parametrize("raw", [NESTED, b"\xab\x06" * 10_000, STATUS + NESTED[:120] + NESTED[-120:]])
def test_nested_groups_do_not_exhaust_the_stack(raw: bytes) -> None:
    check_status(raw)


def check_status(raw: bytes) -> None:
    status = declared(lambda: values.decode_status(raw))
    if not isinstance(status, combiners.ReplicationStatus):
        return
    folded = combiners.combine([status, status, combiners.ReplicationStatus()])
    assert combiners.combine([folded, status]) == folded
    assert combiners.ReplicationStatus.FromString(values.encode_status(folded)) == folded
    assert len(values.encode_status(folded)) <= len(raw) + 200, "a folded value is no larger than its source"
    assert isinstance(combiners.is_fully_replicated(folded), bool)
    combiners.range_needing_replication(folded)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_row_of_a_tablet_is_corrupt_or_another_tablet(data: st.DataObject) -> None:
    location, flush, entry = (
        next(raw for raw in GOLDEN if type(GOLDEN[raw]) is kind)
        for kind in (values.Location, values.FlushState, values.SegmentEntry)
    )
    cells: dict[Column, bytes] = {
        keys.PREV_ROW: values.encode_prev_row(b"a"),
        keys.DIR: b"d",
        keys.PARTS: values.encode_parts(["d"]),
        keys.LOCATION: location,
        keys.FLUSH: flush,
        keys.segment_column("s/1.parquet"): entry,
        keys.log_column("w/1.wal"): values.LOG,
    }
    hit = data.draw(st.sampled_from(sorted(cells, key=str)))
    cells[hit] = data.draw(damaged(cells[hit], entry))
    column = Column(hit.family, data.draw(damaged(hit.qualifier, b"x")))
    changed = {column if data.draw(st.booleans()) and c == hit else c: value for c, value in cells.items()}
    key = data.draw(st.just(keys.tablet_row("1", b"m")) | st.binary(max_size=8))
    declared(lambda: parse_tablet(Row(key, {c: Cell(1, value) for c, value in changed.items()})))


def test_without_strictness_a_rewritten_value_loses_fields() -> None:
    newer = b'{"address":"127.0.0.1:9","rack":"r1","session":"s-1"}'
    assert declared(lambda: values.Location.decode(newer)) is None
    with fault("unknown-fields-are-passed-over"):
        assert b"rack" not in values.Location.decode(newer).encode()


def parsers() -> Iterable[Callable[[bytes], object]]:
    """Every parser of a key or a qualifier."""
    return (
        keys.parse_tablet_row,
        keys.parse_repl_row,
        keys.parse_target,
        keys.parse_file,
        keys.parse_replica,
        keys.parse_fate_row,
        keys.parse_del_row,
        keys.parse_quar_row,
        keys.parse_quar_column,
        keys.parse_hold_row,
        keys.parse_hold_column,
        keys.parse_home_row,
        lambda raw: keys.parse_lost(Column("tablet", raw)),
        keys.parse_log_hold,
        keys.parse_arrival,
        keys.parse_taking,
        lambda raw: keys.parse_recv_cell(raw, raw),
        values.decode_prev_row,
        values.decode_dir,
    )


@given(st.binary(max_size=40))
def test_no_key_breaks_its_parser(raw: bytes) -> None:
    for parse in parsers():
        declared(lambda: parse(raw))  # noqa: B023
