"""The records that a tablet admits, and the targets that get them."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError, NotServingError
from bookkeeper.model import DEFAULT_GROUP, MUTATION_SCHEMA, Extent
from bookkeeper.storage.tablet.batch_routing import split_by_tablets, validate_batch
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from tests.support.tablet_model import Record, batches, families, rows, to_batch, to_records

LIMITS = BatchLimits(row_bytes_max=30, column_bytes_max=20, value_bytes_max=40, batch_records_max=50)
PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")


def tablets(splits: list[bytes]) -> list[Extent]:
    ends: list[bytes | None] = [*sorted(set(splits)), None]
    return [Extent("t", end, prev) for prev, end in zip([None, *ends], ends, strict=False)]


@settings(max_examples=150, deadline=None)
@given(records=batches, splits=st.lists(rows, max_size=6), random=st.randoms(use_true_random=False))
def test_each_tablet_gets_its_records_in_their_order(
    records: list[Record],
    splits: list[bytes],
    random: object,
) -> None:
    extents = tablets(splits)
    shuffled = extents[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = split_by_tablets(to_batch(records), shuffled)
    expected = [(extent, [r for r in records if extent.contains(r.row)]) for extent in extents]
    assert [(extent, to_records(part)) for extent, part in parts] == [(e, some) for e, some in expected if some]


def test_a_batch_of_one_tablet_is_passed_on_as_it_is() -> None:
    batch = to_batch([PLAIN, PLAIN._replace(row=b"s")])
    assert split_by_tablets(batch, tablets([b"a", b"z"]))[0][1] is batch


def test_neighbours_are_not_copied() -> None:
    batch = to_batch([PLAIN._replace(row=row) for row in (b"a", b"b", b"c", b"d")])
    parts = split_by_tablets(batch, tablets([b"b"]))
    shared = batch.column("value").buffers()[2].address
    assert [part.column("value").buffers()[2].address for _, part in parts] == [shared, shared]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_row_of_no_tablet_is_not_served(missing: int) -> None:
    extents = tablets([b"b", b"d"])
    del extents[missing]
    batch = to_batch([PLAIN._replace(row=row) for row in (b"e", b"a", b"c")])
    with pytest.raises(NotServingError, match=[r"b'a'", r"b'c'", r"b'e'"][missing]):
        split_by_tablets(batch, extents)


def test_an_empty_batch_goes_nowhere() -> None:
    assert split_by_tablets(to_batch([]), tablets([])) == []


@settings(deadline=None)
@given(records=batches, wanted=st.frozensets(families))
def test_groups_hold_the_families_that_are_present(records: list[Record], wanted: frozenset[bytes]) -> None:
    groups = GroupMap({"one": frozenset({b"f", b"\xff"}), "two": frozenset({b"g"})})
    batch = to_batch(records)
    present = groups.groups_present(batch)
    assert list(present) == sorted(present)
    assert {family: groups.group_of(family) for r in records for family in [r.family]} == {
        family: name for name, some in present.items() for family in some
    }
    assert all(some == sorted(some) for some in present.values())
    assert mask_for_groups(batch, wanted).to_pylist() == [r.family in wanted for r in records]
    assert groups.group_of(b"nowhere") == DEFAULT_GROUP


def test_a_family_has_one_group() -> None:
    with pytest.raises(InvalidInputError, match=r"b'f' is in two"):
        GroupMap({"one": frozenset({b"f"}), "two": frozenset({b"f"})})


@settings(max_examples=50, deadline=None)
@given(records=batches)
def test_a_well_formed_batch_is_let_in(records: list[Record]) -> None:
    validate_batch(to_batch(records).slice(1), LIMITS)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (PLAIN._replace(row=b""), "empty row"),
        (PLAIN._replace(row=b"r" * 31), "a row of 31 bytes"),
        (PLAIN._replace(family=b"f" * 21), "a family of 21 bytes"),
        (PLAIN._replace(qualifier=b"f" * 21), "a qualifier of 21 bytes"),
        (PLAIN._replace(visibility=b"f" * 21), "a visibility of 21 bytes"),
        (PLAIN._replace(value=b"f" * 41), "a value of 41 bytes"),
    ],
)
def test_a_record_beyond_the_limits_is_refused(bad: Record, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        validate_batch(to_batch([PLAIN, bad, PLAIN]), LIMITS)


def test_too_many_records_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="51 records"):
        validate_batch(to_batch([PLAIN] * 51), LIMITS)


@pytest.mark.parametrize("name", [field.name for field in MUTATION_SCHEMA if not field.nullable])
def test_a_null_is_refused_wherever_it_matters(name: str) -> None:
    row = {**PLAIN._asdict(), name: None}
    loose = pa.schema([field.with_nullable(True) for field in MUTATION_SCHEMA])
    batch = pa.RecordBatch.from_pylist([row], schema=loose)
    with pytest.raises(InvalidInputError, match="schema"):
        validate_batch(batch, LIMITS)
    with pytest.raises(InvalidInputError, match=name):
        validate_batch(pa.RecordBatch.from_arrays(batch.columns, schema=MUTATION_SCHEMA), LIMITS)


def test_a_missing_timestamp_is_let_in() -> None:
    validate_batch(pa.RecordBatch.from_pylist([{**PLAIN._asdict(), "timestamp": None}], schema=MUTATION_SCHEMA), LIMITS)


@pytest.mark.parametrize("offsets", [[0, 1, 200], [0, 2, 1], [-5, 1, 2]])
def test_offsets_that_leave_the_buffer_are_refused(offsets: list[int]) -> None:
    """Such a batch can't be built here, but it can come from the network."""
    whole = to_batch([PLAIN, PLAIN]).serialize().to_pybytes()
    right, wrong = (struct.pack("<3i", *numbers) for numbers in ([0, 1, 2], offsets))
    wild = pa.ipc.read_record_batch(pa.py_buffer(whole.replace(right, wrong, 1)), MUTATION_SCHEMA)
    with pytest.raises(InvalidInputError, match="malformed"):
        validate_batch(wild, LIMITS)
