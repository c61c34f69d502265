"""A segment is what was written, byte for byte, or a CorruptionError that names the file and the reason."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, IncompatibleError
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments import bloom
from bookkeeper.storage.tablet.segments import segment_format as form
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.segments.segment_writer import WRITEBACK_BYTES, SegmentWriter
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.file_ops import FileOps
from tests.support.faults import fault
from tests.support.tablet_model import Record, rows, to_batch
from tests.support.volumes import MACHINE, name_at, path_of, rooted

SETTINGS = TabletSettings(row_group_records=16, row_group_bytes=2000)
RECORDS = [Record(b"row%03d" % i, b"f%d" % (i % 3), b"q", b"", i, i % 7 == 0, b"v" * (i % 11)) for i in range(50)]


def write(directory: Path, records: list[Record], settings: TabletSettings = SETTINGS) -> SegmentRef:
    tablet = TabletData(
        Extent("t", None, None), GroupMap({}), MACHINE, name_at(directory), [], TabletResources(settings)
    )
    tablet.apply(to_batch(records), 1)
    frozen = tablet.begin_flush()
    assert frozen is not None
    [segment] = tablet.write_segments(frozen, 7)
    return segment


def read(ref: SegmentRef) -> list[tuple[object, ...]]:
    segment = Segment(MACHINE, ref, BlockCache(0, readers=0))
    found = []
    for index in range(segment.block_count):
        found += [tuple(entry.values()) for entry in segment.block(index).batch.to_pylist()]
    return found


EXPECTED = [(*record, seq) for seq, record in enumerate(RECORDS, 1)]


def test_a_segment_gives_back_what_was_written(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS)
    assert read(ref) == EXPECTED
    path = path_of(ref.name)
    assert ref == SegmentRef(name_at(path), "default", 50, path.stat().st_size, b"row000", b"row049", 1, 50, 7)


def entries(first: int, count: int, family: bytes, value: bytes = b"v") -> pa.RecordBatch:
    lines = [
        {
            "row": b"%05d" % number,
            "family": family,
            "qualifier": b"q",
            "visibility": b"",
            "timestamp": number,
            "delete": False,
            "value": value,
            "seq": number,
        }
        for number in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(lines, schema=ENTRY_SCHEMA)


def test_a_row_group_over_two_batches_has_the_values_of_both(tmp_path: Path) -> None:
    writer = SegmentWriter(MACHINE, name_at(tmp_path / "1.parquet"), "default", SETTINGS)
    parts = [entries(1, 20, b"a"), entries(21, 10, b"b"), entries(31, 18, b"b")]
    for part in parts:
        writer.add(part)
    writer.finish(1)
    MACHINE.publish([writer.name])
    assert pq.read_metadata(tmp_path / "1.parquet").row_group(1).num_rows == 16
    assert pq.read_table(tmp_path / "1.parquet").to_pylist() == [line for part in parts for line in part.to_pylist()]


MEBIBYTE = random.Random(1).randbytes(1 << 20)


def add_mebibytes(writer: SegmentWriter, count: int) -> None:
    """So many entries, each in a batch of its own."""
    for first in range(1, count + 1):
        writer.add(entries(first, 1, b"a", MEBIBYTE))


def test_a_row_group_ends_at_its_bytes_however_entries_come(tmp_path: Path) -> None:
    writer = SegmentWriter(MACHINE, name_at(tmp_path / "1.parquet"), "default", TabletSettings())
    add_mebibytes(writer, 10)
    writer.finish(1)
    metadata = pq.read_metadata(tmp_path / "1.parquet.tmp")
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [4, 4, 2]
    writer.discard()


class BegunOps(FileOps):
    """Notes where the disk was told to begin; fails when told so."""

    def __init__(self, error: OSError | None = None) -> None:
        self.begun: list[tuple[int, int]] = []
        self._error = error

    def begin_writing(self, fd: int, position: int, length: int) -> None:
        super().begin_writing(fd, position, length)
        self.begun.append((position, length))
        if self._error is not None:
            raise self._error


def test_the_disk_begins_with_a_segment_before_it_is_complete(tmp_path: Path) -> None:
    ops = BegunOps()
    writer = SegmentWriter(rooted(ops), name_at(tmp_path / "1.parquet"), "default", TabletSettings(compression="none"))
    add_mebibytes(writer, 30)
    size = writer.finish(1).bytes
    ends = [position + length for position, length in ops.begun]
    assert [position for position, _ in ops.begun] == [0, *ends[:-1]], "each byte once, in order"
    assert all(length >= WRITEBACK_BYTES for _, length in ops.begun)
    assert size - WRITEBACK_BYTES < ends[-1] <= size
    writer.discard()


def test_a_disk_that_fails_early_fails_the_segment(tmp_path: Path) -> None:
    writer = SegmentWriter(
        rooted(BegunOps(OSError("the disk is gone"))), name_at(tmp_path / "1.parquet"), "default", TabletSettings()
    )
    with pytest.raises(OSError, match="the disk is gone"):
        add_mebibytes(writer, 30)
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_any_parquet_reader_reads_a_segment(tmp_path: Path) -> None:
    path = path_of(write(tmp_path, RECORDS).name)
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.schema.remove_metadata().equals(ENTRY_SCHEMA)
    assert [tuple(row.values()) for row in table.to_pylist()] == EXPECTED
    metadata = pq.read_metadata(path)
    assert metadata.metadata[b"bookkeeper.format_version"] == b"2"
    assert metadata.metadata[b"bookkeeper.group"] == b"default"
    column = metadata.row_group(1).column(0)
    assert (column.compression, column.statistics.min) == ("LZ4", b"row016")


def test_columns_of_one_value_and_of_many_read_alike(tmp_path: Path) -> None:
    families = [b"a"] * 20 + [b"b"] * 12 + [b"c%d" % i for i in range(18)]
    mixed = [record._replace(family=family) for record, family in zip(RECORDS, families, strict=True)]
    ref = write(tmp_path, mixed)
    assert read(ref) == [(*record, seq) for seq, record in enumerate(mixed, 1)]
    assert pq.read_table(path_of(ref.name)).column("family").to_pylist() == families


def test_values_are_compressed_where_that_makes_them_smaller(tmp_path: Path) -> None:
    chance = random.Random(3)
    for value, codec in [(b"abcd" * 60, "LZ4"), (chance.randbytes(240), "UNCOMPRESSED"), (b"", "UNCOMPRESSED")]:
        ref = write(tmp_path, [record._replace(value=value) for record in RECORDS[:1]])
        columns = pq.read_metadata(path_of(ref.name)).row_group(0)
        assert [columns.column(index).compression for index in (0, 6)] == ["LZ4", codec]


def test_row_groups_end_at_records_and_at_bytes(tmp_path: Path) -> None:
    path = path_of(write(tmp_path, RECORDS).name)
    assert [pq.read_metadata(path).row_group(i).num_rows for i in range(4)] == [16, 16, 16, 2]
    large = [record._replace(value=b"v" * 900) for record in RECORDS]
    metadata = pq.read_metadata(path_of(write(tmp_path, large).name))
    assert {metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)} <= {1, 2, 3}
    huge = [record._replace(value=b"v" * 5000) for record in RECORDS[:3]]
    assert pq.read_metadata(path_of(write(tmp_path, huge).name)).num_row_groups == 3


def test_one_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS[:20])
    path = path_of(ref.name)
    content = path.read_bytes()
    chance = random.Random(5)
    for position in [*range(0, len(content), 7), *range(len(content) - 40, len(content)), *range(8)]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=path.name) as caught:
            read(ref)
        assert caught.value.details["name"] == ref.name
        assert caught.value.details["reason"]


def test_flipped_bits_pass_when_checksums_are_not_compared(tmp_path: Path) -> None:
    ref = write(tmp_path, [record._replace(value=b"needle") for record in RECORDS[:20]])
    path = path_of(ref.name)
    content = bytearray(path.read_bytes())
    content[content.index(b"needle")] ^= 1
    path.write_bytes(content)
    with fault("checksums-not-compared"):
        assert any(entry[6] == b"oeedle" for entry in read(ref))
    with pytest.raises(CorruptionError, match="checksum of row group 0"):
        read(ref)


def test_a_cut_or_grown_file_is_noticed(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS[:20])
    path = path_of(ref.name)
    content = path.read_bytes()
    for length in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptionError, match="bytes"):
            read(ref)
        with pytest.raises(CorruptionError):
            read(replace(ref, bytes=length))
    path.write_bytes(content + b"\x00")
    with pytest.raises(CorruptionError, match="the books say"):
        read(ref)


def test_a_file_that_shrinks_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS)
    segment = Segment(MACHINE, ref, BlockCache(0, readers=0))
    segment.check()
    path_of(ref.name).write_bytes(path_of(ref.name).read_bytes()[:600])
    with pytest.raises(CorruptionError, match="truncated"):
        segment.block(3)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 500, b"PAR1" * 40, b"PAR1" + b"\xff" * 300 + b"PAR1"])
def test_a_file_that_is_no_segment_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.parquet"
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"foreign\.parquet"):
        read(SegmentRef(name_at(path), "default", 1, len(content), b"a", b"b", 1, 1, 1))


def test_a_parquet_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(CorruptionError, match="foreign or damaged"):
        read(SegmentRef(name_at(path), "default", 1, path.stat().st_size, b"a", b"b", 1, 1, 1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS)
    path_of(ref.name).unlink()
    with pytest.raises(CorruptionError, match="missing"):
        read(ref)


def test_the_books_must_mean_this_file(tmp_path: Path) -> None:
    ref = write(tmp_path, RECORDS)
    with pytest.raises(CorruptionError, match="another locality group"):
        read(replace(ref, group="other"))
    with pytest.raises(CorruptionError, match="has 50 records, the books say 49"):
        read(replace(ref, records=49))
    with pytest.raises(CorruptionError, match="first and last row"):
        read(replace(ref, max_row=b"row048"))


def test_a_row_group_ends_at_its_bytes_where_few_entries_are_most_of_them(tmp_path: Path) -> None:
    records = [Record(b"%03d" % i, b"f", b"q", b"", 5, False, b"v" * (1_500 if i < 4 else 0)) for i in range(16)]
    ref = write(tmp_path, records)
    metadata = pq.read_metadata(path_of(ref.name))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1, 1, 1, 12, 1]
    assert [row for row, *_ in read(ref)] == [record.row for record in records]


def test_a_later_format_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "FORMAT_VERSION", 3)
    ref = write_unchecked(tmp_path, monkeypatch)
    monkeypatch.setattr(form, "FORMAT_VERSION", 2)
    with pytest.raises(IncompatibleError, match=r"format version b'3', this program reads 2: use the program"):
        read(ref)


def write_unchecked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentRef:
    with monkeypatch.context():
        return write(directory, RECORDS)


def test_families_decide_whether_a_segment_is_read(tmp_path: Path) -> None:
    segment = Segment(MACHINE, write(tmp_path, RECORDS), BlockCache(0))
    assert segment.may_hold(None, b"", None, None)
    assert segment.may_hold({b"f0", b"no"}, b"", None, None)
    assert not segment.may_hold({b"no"}, b"", None, None)
    assert not segment.may_hold(None, b"row050", None, None)
    assert not segment.may_hold(None, b"", b"row000", None)
    many = [record._replace(family=b"family%d" % i) for i, record in enumerate(RECORDS * 6)]
    assert Segment(MACHINE, write(tmp_path, many), BlockCache(0)).may_hold({b"no"}, b"", None, None)


@given(values=st.lists(st.one_of(rows, st.binary(min_size=1, max_size=90)), min_size=1, max_size=30), other=rows)
def test_the_filter_never_denies_a_row_it_holds(values: list[bytes], other: bytes) -> None:
    hashes = bloom.hash_rows(pa.array(values, pa.binary()))
    assert hashes.tolist() == [bloom.hash_row(value) for value in values]
    built = bloom.build([hashes[:3], hashes[3:]])
    assert all(bloom.may_hold(built, bloom.hash_row(value)) for value in values)
    assert other in values or isinstance(bloom.may_hold(built, bloom.hash_row(other)), bool)


def test_the_filter_denies_most_other_rows() -> None:
    built = bloom.build([bloom.hash_rows(pa.array([b"row%d" % i for i in range(20_000)], pa.binary()))])
    wrong = sum(bloom.may_hold(built, bloom.hash_row(b"other%d" % i)) for i in range(5000))
    assert wrong < 0.008 * 5000
