"""The segment reader under anything: the entries that were written, or a declared error; never other entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, IncompatibleError
from bookkeeper.storage.tablet.segments import segment_format as form
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import FOOTER_END, TRAILER, SegmentRef, crc32c
from bookkeeper.storage.tablet.segments.segment_index import decode_index, encode_index
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from tests.support.damage import damaged
from tests.support.faults import fault
from tests.support.volumes import MACHINE, path_of
from tests.unit.storage.tablet.segments.test_segment_file import RECORDS, read, write

OTHERS = [record._replace(row=b"other" + record.row, value=b"another value") for record in RECORDS]
DECLARED = (CorruptionError, IncompatibleError)


class Bench:
    """A whole segment, and another one of the same shape."""

    def __init__(self, home: Path) -> None:
        for name in ("one", "two"):
            (home / name).mkdir()
        self.ref = write(home / "one", RECORDS)
        self.path = path_of(self.ref.name)
        self.whole = self.path.read_bytes()
        self.expected = read(self.ref)
        self.foreign = path_of(write(home / "two", OTHERS).name).read_bytes()

    def lay(self, content: bytes) -> SegmentRef:
        """Also the size is what the books say, so that it is not the size alone which tells."""
        self.path.write_bytes(content)
        return replace(self.ref, bytes=len(content))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("segments"))


def entries_of(ref: SegmentRef) -> list[tuple[object, ...]] | None:
    """All entries, or None for a declared error; anything else fails the test."""
    try:
        segment = Segment(MACHINE, ref, BlockCache(0, readers=0))
        segment.may_hold({b"f1"}, b"", None, 7)
        return read(ref)
    except DECLARED:
        return None


def check_no_other_entries(bench: Bench, content: bytes) -> None:
    assert entries_of(bench.lay(content)) in (None, bench.expected), "a damaged segment shows other entries"


@settings(max_examples=80)
@given(st.data())
def test_whatever_becomes_of_a_segment_a_reader_gets_what_was_written_or_an_error(
    bench: Bench, data: st.DataObject
) -> None:
    check_no_other_entries(bench, data.draw(damaged(bench.whole, bench.foreign)))


def test_another_segment_in_its_place_is_noticed_by_its_rows(bench: Bench) -> None:
    assert entries_of(bench.lay(bench.foreign)) is None


def parts_of(content: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Row groups, filter, index, Parquet footer."""
    length, _ = FOOTER_END.unpack(content[-FOOTER_END.size :])
    footer_start = len(content) - FOOTER_END.size - length
    trailer_start = footer_start - TRAILER.size
    _, filter_length, index_length, _, _ = TRAILER.unpack(content[trailer_start:footer_start])
    index_start = trailer_start - index_length
    filter_start = index_start - filter_length
    return (
        content[:filter_start],
        content[filter_start:index_start],
        content[index_start:trailer_start],
        content[footer_start : -FOOTER_END.size],
    )


def joined(groups: bytes, filter_bytes: bytes, index: bytes, footer: bytes) -> bytes:
    """A file with right checksums and any content, as other software might write it."""
    sizes = len(filter_bytes), len(index)
    trailer = TRAILER.pack(form.TRAILER_MAGIC, *sizes, crc32c(filter_bytes + index), crc32c(footer))
    return groups + filter_bytes + index + trailer + footer + FOOTER_END.pack(len(footer), form.PARQUET_MAGIC)


def test_the_parts_of_a_segment_are_all_of_it(bench: Bench) -> None:
    assert joined(*parts_of(bench.whole)) == bench.whole


@pytest.mark.parametrize("name", [b"qualifies", b"qualif\xffer"])
def test_a_footer_with_other_columns_is_a_declared_error(bench: Bench, name: bytes) -> None:
    groups, filter_bytes, index, footer = parts_of(bench.whole)
    assert entries_of(bench.lay(joined(groups, filter_bytes, index, footer.replace(b"qualifier", name, 1)))) is None


@settings(max_examples=80)
@given(data=st.data(), part=st.integers(1, 3))
def test_garbage_under_right_checksums_is_a_declared_error(bench: Bench, data: st.DataObject, part: int) -> None:
    parts, others = list(parts_of(bench.whole)), parts_of(bench.foreign)
    parts[part] = data.draw(damaged(parts[part], others[part]))
    entries_of(bench.lay(joined(*parts)))


def index_with(bench: Bench, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bytes:
    """The segment with another index, which parses."""
    groups, filter_bytes, index, footer = parts_of(bench.whole)
    return joined(groups, filter_bytes, encode_index(change(decode_index(index))), footer)


def with_column(batch: pa.RecordBatch, name: str, values: list[int]) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(name), pa.array(values, batch.schema.field(name).type))


def check_no_memory_is_asked_for(bench: Bench, name: str, value: int) -> None:
    content = index_with(bench, lambda batch: with_column(batch, name, [value] * batch.num_rows))
    try:
        found = entries_of(bench.lay(content))
    except MemoryError as error:
        raise AssertionError("an index asks for memory that no segment needs") from error
    assert found is None


@pytest.mark.parametrize(
    ("name", "value"), [("start", -1), ("start", 2**62), ("bytes", -5), ("bytes", 2**62), ("records", 2**62)]
)
def test_an_index_that_points_nowhere_asks_for_no_memory(bench: Bench, name: str, value: int) -> None:
    check_no_memory_is_asked_for(bench, name, value)


def test_an_index_without_a_line_is_no_index(bench: Bench) -> None:
    assert entries_of(bench.lay(index_with(bench, lambda batch: batch.slice(0, 0)))) is None


@pytest.mark.parametrize("families", [b"", b"[", b"{}", b'["*"]', b"[1]", b"[" * 100_000])
def test_a_list_of_families_that_is_none_is_a_declared_error(bench: Bench, families: bytes) -> None:
    groups, filter_bytes, index, _ = parts_of(bench.whole)
    bench.lay(bench.whole)
    old = pq.read_metadata(bench.path)
    metadata = {**(old.metadata or {}), form.FAMILIES_KEY: families}
    sink = pa.BufferOutputStream()
    schema = old.schema.to_arrow_schema().with_metadata(metadata)
    pq.write_metadata(schema, sink)
    footer_bytes = sink.getvalue().to_pybytes()[4 : -FOOTER_END.size]
    assert entries_of(bench.lay(joined(groups, filter_bytes, index, footer_bytes))) is None


def test_without_checksums_other_entries_pass(bench: Bench) -> None:
    def flip_everything() -> None:
        for place in range(4, len(bench.whole) // 2):
            flipped = bytes([bench.whole[place] ^ 1])
            check_no_other_entries(bench, bench.whole[:place] + flipped + bench.whole[place + 1 :])

    with fault("checksums-not-compared"), pytest.raises(AssertionError, match="a damaged segment shows other entries"):
        flip_everything()


def test_without_a_look_at_its_places_an_index_asks_for_any_memory(bench: Bench) -> None:
    with (
        fault("an-index-may-lead-anywhere"),
        pytest.raises(AssertionError, match="an index asks for memory that no segment needs"),
    ):
        check_no_memory_is_asked_for(bench, "bytes", 2**62)
