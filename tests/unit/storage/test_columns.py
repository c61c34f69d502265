"""Binary columns by their bytes: words, least and greatest value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.storage.columns import (
    WordReader,
    content_bytes,
    distinct,
    extremes,
    indices_of,
    is_constant,
    min_max_row,
)
from tests.support.tablet_model import Record, batches, rows, to_batch


@given(value=st.binary(max_size=20), skip=st.integers(0, 24))
def test_words_are_the_bytes_as_a_number(value: bytes, skip: int) -> None:
    array = pa.array([b"before", value, b"behind"], pa.binary()).slice(1, 1)
    expected = int.from_bytes(value[skip : skip + 8].ljust(8, b"\x00"), "big")
    assert WordReader(array).words(skip).tolist() == [expected]


of_one_length = st.integers(0, 20).flatmap(
    lambda width: st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=20)
)
"""Values of one length, with a prefix that all have where the length allows."""


@given(values=of_one_length, prefix=st.binary(max_size=12), skip=st.integers(0, 40))
def test_words_of_values_of_one_length(values: list[bytes], prefix: bytes, skip: int) -> None:
    array = pa.array([b"before", *(prefix + value for value in values), b"behind"], pa.binary()).slice(1, len(values))
    expected = [int.from_bytes((prefix + v)[skip : skip + 8].ljust(8, b"\x00"), "big") for v in values]
    assert WordReader(array).words(skip).tolist() == expected
    assert extremes(array) == (prefix + min(values), prefix + max(values))


@given(values=st.lists(rows, min_size=1, max_size=40))
def test_extremes_of_any_rows(values: list[bytes]) -> None:
    assert extremes(pa.array(values, pa.binary())) == (min(values), max(values))


@given(values=of_one_length | st.lists(rows, max_size=20), wanted=st.sets(st.binary(max_size=3)), data=st.data())
def test_the_indices_of_values(values: list[bytes], wanted: set[bytes], data: st.DataObject) -> None:
    wanted |= set(data.draw(st.lists(st.sampled_from(values), max_size=3))) if values else set()
    array = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    assert indices_of(array, wanted).tolist() == [place for place, value in enumerate(values) if value in wanted]


@given(records=batches)
def test_min_max_row(records: list[Record]) -> None:
    assert min_max_row(to_batch(records)) == (min(r.row for r in records), max(r.row for r in records))


@given(
    values=st.lists(st.sampled_from([b"", b"a", b"ab", b"abab"]), min_size=1, max_size=6), around=st.binary(max_size=3)
)
def test_a_column_of_one_value_is_told_from_others(values: list[bytes], around: bytes) -> None:
    array = pa.array([around, *values, around], pa.binary()).slice(1, len(values))
    assert is_constant(array) == (len(set(values)) == 1)
    assert sorted(distinct(array)) == sorted(set(values))
    assert content_bytes(array) == sum(map(len, values))
