"""Imported segments: sorted, each in one tablet and one locality group, and below all that was written."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.bulk.adoption import check_files
from bookkeeper.bulk.booked_segment import segment_entry, segment_ref
from bookkeeper.bulk.segment_conversion import SegmentDirectory
from bookkeeper.bulk.segment_conversion import convert as run_convert
from bookkeeper.errors import CorruptionError, InvalidInputError, NotFoundError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.scans.cell_versions import VersionFilter
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.tablet_model import Record, to_batch
from tests.support.volumes import MACHINE, name_at, path_of

EXTENTS = [Extent("1", b"h", None), Extent("1", b"p", b"h"), Extent("1", None, b"p")]
GROUPS = GroupMap({"geo": [b"g"]})


def _convert(place: Path, batches: list[pa.RecordBatch]) -> list[SegmentRef]:
    place.mkdir(exist_ok=True)
    where = SegmentDirectory(MACHINE, name_at(place), TabletSettings())
    return run_convert(batches, EXTENTS, GROUPS, where, lambda: None)


def _put(row: bytes, value: bytes, family: bytes = b"f", timestamp: int = 5) -> Record:
    return Record(row, family, b"q", b"", timestamp, False, value)


def _shown(extent: Extent, refs: list[SegmentRef], written: list[Record] | None = None) -> list[tuple[bytes, bytes]]:
    data = TabletData(extent, GROUPS, MACHINE, name_at(Path("/nowhere")), refs)
    if written:
        data.apply(to_batch(written), 1)
    page = data.scan_page(None, None, (), (), None, 1 << 20, VersionFilter())
    assert page.next is None
    columns = [page.records.column(name).to_pylist() for name in ("row", "value")]
    return list(zip(*columns, strict=True))


def test_each_segment_lies_in_one_tablet_and_one_group(tmp_path: Path) -> None:
    batch = to_batch(
        [_put(b"z", b"1"), _put(b"h", b"2"), _put(b"a", b"3", b"g"), _put(b"h\x00", b"4"), _put(b"a", b"5")]
    )
    refs = _convert(tmp_path / "i", [batch])
    assert [(ref.group, ref.min_row, ref.max_row, ref.records) for ref in refs] == [
        ("default", b"a", b"h", 2),
        ("geo", b"a", b"a", 1),
        ("default", b"h\x00", b"h\x00", 1),
        ("default", b"z", b"z", 1),
    ]
    assert _shown(EXTENTS[0], refs[:2]) == [(b"a", b"5"), (b"a", b"3"), (b"h", b"2")]
    assert {path_of(ref.name).stat().st_size for ref in refs} == {ref.bytes for ref in refs}


@pytest.mark.parametrize("chunk_records", [1, 2, 100])
def test_of_equal_timestamps_the_later_record_wins(tmp_path: Path, chunk_records: int) -> None:
    with patch("bookkeeper.bulk.segment_conversion.CHUNK_RECORDS", chunk_records):
        refs = _convert(tmp_path / "1", [to_batch([_put(b"a", b"1")]), to_batch([_put(b"a", b"2"), _put(b"b", b"1")])])
    assert _shown(EXTENTS[0], refs) == [(b"a", b"2"), (b"b", b"1")]
    assert _shown(EXTENTS[0], refs[::-1]) == [(b"a", b"2"), (b"b", b"1")]


@pytest.mark.parametrize(("shift", "wins"), [(0, b"written"), (7, b"imported")], ids=["before", "behind"])
def test_a_shift_gives_an_import_its_place_among_what_was_written(tmp_path: Path, shift: int, wins: bytes) -> None:
    (ref,) = _convert(tmp_path / "i", [to_batch([_put(b"a", b"imported"), _put(b"b", b"newer", timestamp=6)])])
    shifted = replace(ref, shift=shift)
    written = [_put(b"c", b"1"), _put(b"a", b"written"), _put(b"b", b"written")]
    assert _shown(EXTENTS[0], [shifted], written) == [(b"a", wins), (b"b", b"newer"), (b"c", b"1")]
    assert segment_ref(ref.name, SegmentEntry.decode(segment_entry(shifted).encode())) == shifted


def test_an_import_of_too_many_segments_is_refused(tmp_path: Path) -> None:
    batch = to_batch([_put(b"a", b"1"), _put(b"z", b"1")])
    with (
        patch("bookkeeper.bulk.segment_conversion.SEGMENTS_MAX", 1),
        pytest.raises(InvalidInputError, match="in parts"),
    ):
        _convert(tmp_path / "i", [batch])


def test_a_file_that_is_not_what_its_reference_says_is_found_before_a_tablet_names_it(tmp_path: Path) -> None:
    refs = _convert(tmp_path / "i", [to_batch([_put(b"a", b"1"), _put(b"z", b"1")])])
    check_files(MACHINE, refs)
    path_of(refs[1].name).write_bytes(b"damaged")
    with pytest.raises(CorruptionError):
        check_files(MACHINE, refs)
    path_of(refs[1].name).unlink()
    with pytest.raises(NotFoundError):
        check_files(MACHINE, refs)


def test_files_are_held_before_they_exist(tmp_path: Path) -> None:
    held: list[str] = []

    def hold(files: Collection[str]) -> None:
        assert not [name for name in files if path_of(name).exists()]
        held.extend(files)

    where = SegmentDirectory(MACHINE, name_at(tmp_path), TabletSettings(), hold)
    batch = to_batch([_put(b"a", b"1"), _put(b"z", b"1")])
    refs = run_convert([batch], EXTENTS, GROUPS, where, lambda: None)
    assert held == [ref.name for ref in refs]
