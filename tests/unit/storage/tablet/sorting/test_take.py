"""Taking records in an order, for any lengths of their values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.columns import common_length
from bookkeeper.storage.tablet.sorting import take as module
from bookkeeper.storage.tablet.sorting.constant_columns import ConstantColumns, with_constants, without_constants
from bookkeeper.storage.tablet.sorting.take import take_records

lengths = st.sampled_from([(0, 0), (3, 3), (1, 7), (100, 100)])


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.integers(1, 40))
    columns = []
    for field in MUTATION_SCHEMA:
        if field.type == pa.binary():
            least, most = draw(lengths)
            columns.append(pa.array([draw(st.binary(min_size=least, max_size=most)) for _ in range(count)], field.type))
        elif field.name == "timestamp":
            columns.append(pa.array(draw(st.lists(st.none() | st.integers(0, 9), min_size=count, max_size=count))))
        else:
            columns.append(pa.array(draw(st.lists(st.booleans(), min_size=count, max_size=count))))
    batch = pa.RecordBatch.from_arrays(
        [c.cast(f.type) for c, f in zip(columns, MUTATION_SCHEMA, strict=True)], schema=MUTATION_SCHEMA
    )
    return batch.slice(draw(st.integers(0, count - 1)))


@given(st.data(), batches())
def test_what_is_gathered_is_what_take_gives(data: st.DataObject, batch: pa.RecordBatch) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, batch.num_rows - 1), max_size=60)), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 0)
        found = take_records(batch, places)
    found.validate(full=True)
    assert found.equals(batch.take(pa.array(places)))


def test_columns_of_one_length_are_known() -> None:
    constants, others = pa.array([b"ab", b"cd", b"ef"]), pa.array([b"a", b"bcd", b"ef"])
    assert common_length(constants) == 2
    assert common_length(constants.slice(1)) == 2
    assert common_length(others) is None, "though their lengths have the same mean"
    assert common_length(pa.array([b"", b""])) == 0
    assert common_length(pa.array([1, 2])) is None
    assert common_length(pa.array([], pa.binary())) is None
    assert common_length(pa.array([b"ab", None])) is None


@given(batches(), st.binary(max_size=5), st.booleans(), st.data())
def test_columns_of_one_value_need_not_be_gathered(
    batch: pa.RecordBatch, family: bytes, delete: bool, data: st.DataObject
) -> None:
    constants: ConstantColumns = {"family": family, "delete": delete}
    whole = with_constants(without_constants(batch, constants), constants, MUTATION_SCHEMA)
    whole.validate(full=True)
    assert whole.column("family").to_pylist() == [family] * batch.num_rows
    assert whole.column("delete").to_pylist() == [delete] * batch.num_rows
    assert without_constants(whole, constants).equals(without_constants(batch, constants))
    places = np.array(data.draw(st.permutations(range(batch.num_rows)))[: data.draw(st.integers(0, 40))], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 0)
        found = take_records(whole, places, constants)
    found.validate(full=True)
    assert found.equals(whole.take(pa.array(places)))
