"""From mutations to Arrow, and from any Arrow to the schema; batches are cut between rows only."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.mutation import Mutation, conform, encode_mutations, slice_between_rows
from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA

cells = st.tuples(
    st.binary(max_size=4),
    st.binary(max_size=4),
    st.binary(max_size=8),
    st.sampled_from([b"", b"a&b"]),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


def test_a_mutation_without_a_change_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the mutation of row b'r' has no put and no delete"):
        encode_mutations([Mutation(b"r")])


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=3), st.lists(cells, min_size=1, max_size=3), st.booleans()), max_size=8
    )
)
def test_every_change_becomes_one_record_in_its_order(given: list[tuple[bytes, list[Any], bool]]) -> None:
    mutations, expected = [], []
    for row, changes, delete in given:
        mutation = Mutation(row)
        for family, qualifier, value, visibility, timestamp in changes:
            if delete:
                assert mutation.delete(family, qualifier, visibility, timestamp) is mutation
            else:
                assert mutation.put(family, qualifier, value, visibility, timestamp) is mutation
            value_here = b"" if delete else value
            expected.append((row, family, qualifier, visibility, timestamp, delete, value_here))
        mutations.append(mutation)
    batch = encode_mutations(mutations)
    assert batch.schema.equals(MUTATION_SCHEMA)
    batch.validate(full=True)
    assert [tuple(record.values()) for record in batch.to_pylist()] == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mutation(b""),
        lambda: Mutation("row"),  # type: ignore[arg-type]
        lambda: Mutation(b"r").put("f", b"q", b"v"),  # type: ignore[arg-type]
        lambda: Mutation(b"r").put(b"f", b"q", None),  # type: ignore[arg-type]
        lambda: Mutation(b"r").put(b"f", b"q", 7),  # type: ignore[arg-type]
        lambda: Mutation(b"r").put(b"f", b"q", b"v", "x"),  # type: ignore[arg-type]
        lambda: Mutation(b"r").put(b"f", b"q", b"v", b"A&B|C"),
        lambda: Mutation(b"r").delete(b"f", b"q", b"A|"),
        lambda: Mutation(b"r").put(b"f", b"q", b"v", timestamp=2**63),
        lambda: Mutation(b"r").put(b"f", b"q", b"v", timestamp=1.5),  # type: ignore[arg-type]
        lambda: Mutation(b"r").delete(b"f", "q"),  # type: ignore[arg-type]
        lambda: Mutation(b"r").delete(b"f", b"q", timestamp="1"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_mutation_is_refused_where_it_is_made(make: Any) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_a_mutations_size_counts_its_bytes() -> None:
    small, large = Mutation(b"r").put(b"f", b"q", b""), Mutation(b"r").put(b"f", b"q", bytes(10_000))
    assert 10_000 <= large.size_bytes - small.size_bytes < 10_100
    assert small.delete(b"f", b"q").size_bytes > Mutation(b"r").put(b"f", b"q", b"").size_bytes


def test_a_batch_that_conforms_is_not_copied() -> None:
    batch = encode_mutations([Mutation(b"r").put(b"f", b"q", b"v")])
    assert conform(batch) is batch


def test_absent_columns_get_their_defaults_and_others_are_cast() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["v", "w"]),
            "row": pa.array([b"r", b"s"], pa.large_binary()),
            "family": pa.array(["f", "f"]).dictionary_encode(),
            "qualifier": pa.array([b"q", b"q"]),
        }
    )
    made = conform(batch)
    assert made.schema.equals(MUTATION_SCHEMA)
    assert made.to_pylist()[1] == {
        "row": b"s",
        "family": b"f",
        "qualifier": b"q",
        "visibility": b"",
        "timestamp": None,
        "delete": False,
        "value": b"w",
    }


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"row": [b"r"], "family": [b"f"], "qualifier": [b"q"]}, "value is missing"),
        ({"row": [b"r"], "family": [b"f"], "qualifier": [b"q"], "value": [b"v"], "colour": [1]}, "unknown columns"),
        ({"row": [None], "family": [b"f"], "qualifier": [b"q"], "value": [b"v"]}, "row .* nulls"),
        ({"row": [1.5], "family": [b"f"], "qualifier": [b"q"], "value": [b"v"]}, "row can't be binary"),
        (
            {"row": [b"r"], "family": [b"f"], "qualifier": [b"q"], "value": [b"v"], "timestamp": ["x"]},
            "timestamp can't be int64",
        ),
    ],
)
def test_a_batch_that_can_not_conform_is_refused_by_name(columns: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        conform(pa.RecordBatch.from_pydict(columns))


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 400), st.integers(1, 12))
def test_slices_are_the_batch_cut_where_the_row_changes(numbers: list[int], bytes_max: int, records_max: int) -> None:
    batch = encode_mutations([Mutation(b"r%d" % n).put(b"f", b"%d" % i, b"v") for i, n in enumerate(numbers)])
    slices = slice_between_rows(batch, bytes_max, records_max)
    assert [r for s in slices for r in s.to_pylist()] == batch.to_pylist()
    for before, after in pairwise(slices):
        assert before.column("row")[-1] != after.column("row")[0]
    for part in slices:
        assert part.num_rows > 0
        assert part.num_rows <= records_max or len(set(part.column("row").to_pylist())) == 1


@pytest.mark.parametrize("first_large", [0, 500, 995])
def test_a_run_of_large_values_among_small_ones_is_several_slices(first_large: int) -> None:
    sizes = [1] * 1000
    sizes[first_large : first_large + 5] = [400_000] * 5
    batch = encode_mutations([Mutation(b"%06d" % n).put(b"f", b"q", bytes(size)) for n, size in enumerate(sizes)])
    slices = slice_between_rows(batch, 1_000_000, 100_000)
    assert sum(part.num_rows for part in slices) == 1000
    assert max(part.nbytes for part in slices) <= 1_000_000, "a call of a tserver is larger than its frames"


@pytest.mark.parametrize(("records", "records_max", "expected"), [(20_000, 14_339, [10_000] * 2), (7, 3, [3, 3, 1])])
def test_a_batch_is_cut_into_equal_parts(records: int, records_max: int, expected: list[int]) -> None:
    batch = encode_mutations([Mutation(b"%06d" % n).put(b"f", b"q", b"v") for n in range(records)])
    assert [part.num_rows for part in slice_between_rows(batch, 1 << 30, records_max)] == expected
