"""Descriptors and results survive their Arrow form; other forms are refused."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import GapError, InvalidInputError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    RangeError,
    RangeResult,
    check_range,
    decode_table,
    encode_table,
    ranges_from_table,
    ranges_to_table,
    results_from_table,
    results_to_batch,
)
from tests.support.ranges import a_range

RESULT = RangeResult(7, 10, 999, None, 10, 1500, 3, 1, 2, 20, 3000, None, "host", 42, 0.5)


def test_ranges_come_back_as_they_were() -> None:
    ranges = [a_range("w", 1, 10), a_range("file:///ü;:|", 11, 12, finished=10, range_id=2, hint=77)]
    raw = encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)
    assert ranges_from_table(decode_table(raw, RANGE_SCHEMA)) == ranges


@pytest.mark.parametrize(
    "error", [None, RangeError.of(GapError("g", {"high_water": "5"})), RangeError("not_found", "gone", transient=False)]
)
def test_results_come_back_as_they_were(error: RangeError | None) -> None:
    result = replace(RESULT, error=error, high_water=5 if error else None)
    raw = encode_table([results_to_batch([result])], RESULT_SCHEMA)
    assert results_from_table(decode_table(raw, RESULT_SCHEMA)) == [result]


def test_an_error_keeps_its_code_and_whether_it_may_pass() -> None:
    assert RangeError.of(UnavailableError("away")) == RangeError("unavailable", "away", transient=True)


def test_the_stream_is_named_by_file_tables_incarnation_and_the_own_instance() -> None:
    r = a_range("w", 1, 10)
    assert r.stream == StreamKey(r.own_instance_id, "w", "t1", "r1", 1)


@given(st.binary(max_size=400))
def test_garbage_is_refused_and_nothing_else_happens(raw: bytes) -> None:
    with pytest.raises(InvalidInputError):
        decode_table(raw, RANGE_SCHEMA)


@given(st.data())
def test_a_damaged_table_is_refused_or_read(data: st.DataObject) -> None:
    raw = bytearray(encode_table(ranges_to_table([a_range("w", 1, 10)]).to_batches(), RANGE_SCHEMA))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(InvalidInputError):
        decode_table(bytes(raw), RANGE_SCHEMA)


def test_a_table_with_other_columns_is_refused() -> None:
    table = pa.table({"x": [1]})
    with pytest.raises(InvalidInputError, match="columns"):
        decode_table(encode_table(table.to_batches(), table.schema), RANGE_SCHEMA)


@pytest.mark.parametrize(
    ("first", "last", "finished", "hint", "message"),
    [(0, 5, 0, 0, "no range"), (5, 4, 4, 0, "no range"), (5, 9, 5, 0, "not below"), (1, 2, -1, 0, "not below")],
)
def test_a_range_that_can_not_be_is_named(first: int, last: int, finished: int, hint: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_range(a_range("w", first, last, finished=finished, hint=hint))
