"""The segments of an import's log: the manifest beside it, and its deletion with the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.bulk.booked_segment import part_of_segment, segment_entry
from bookkeeper.bulk.log_segments import MANIFEST_SUFFIX, Lengths, name_log_segments, read_segmented_log, sha256_of
from bookkeeper.bulk.segment_conversion import SegmentDirectory, convert
from bookkeeper.errors import CorruptionError
from bookkeeper.model import Extent, LocalityGroup, RowRange
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.file_ops import beside
from bookkeeper.storage.wal.reading.wal_recovery import delete_log
from tests.support.tablet_model import Record, to_batch
from tests.support.volumes import MACHINE, name_at, path_of

GROUPS = GroupMap({"geo": [b"g"]})
RECORDS = [Record(b"a", b"f", b"q", b"", 5, False, b"1"), Record(b"zz", b"g", b"qualifier", b"", 5, False, b"22")]


def _kept(place: Path) -> tuple[str, list[SegmentRef], Lengths]:
    """A log, which may be anything here, and the names of its segments beside it."""
    (place / "made").mkdir()
    where = SegmentDirectory(MACHINE, name_at(place / "made"), TabletSettings())
    refs = convert([to_batch(RECORDS)], [Extent("1", None, None)], GROUPS, where, lambda: None)
    log = place / "name.wal"
    log.write_bytes(b"records")
    lengths = Lengths().with_batch(to_batch(RECORDS))
    held: dict[str, list[str]] = {}
    name_log_segments(
        MACHINE, lambda log, files: held.update({log: list(files)}), name_at(log), 2, refs, GROUPS, lengths
    )
    assert held == {name_at(log): [ref.name for ref in refs]}
    return name_at(log), refs, lengths


def test_the_segments_of_a_log_are_what_the_import_made(tmp_path: Path) -> None:
    log, refs, lengths = _kept(tmp_path)
    whole = read_segmented_log(MACHINE, log)
    assert whole is not None
    assert (whole.records, whole.groups) == (2, (LocalityGroup("geo", (b"g",)),))
    assert whole.lengths == lengths == Lengths(2, 9, 2)
    assert [segment.name for segment in whole.segments] == [ref.name for ref in refs]
    assert [segment.entry for segment in whole.segments] == [segment_entry(ref) for ref in refs]
    assert [segment.sha256 for segment in whole.segments] == [sha256_of(MACHINE, ref.name) for ref in refs]
    assert whole.size_bytes == sum(path_of(segment.name).stat().st_size for segment in whole.segments)


def test_their_names_go_with_their_log(tmp_path: Path) -> None:
    log, refs, _ = _kept(tmp_path)
    delete_log(MACHINE, log)
    assert {path.name for path in tmp_path.iterdir()} == {"made"}
    assert all(path_of(ref.name).exists() for ref in refs)
    assert read_segmented_log(MACHINE, log) is None


def test_a_log_without_them_has_none_and_a_damaged_manifest_is_said(tmp_path: Path) -> None:
    assert read_segmented_log(MACHINE, name_at(tmp_path / "other.wal")) is None
    log, _, _ = _kept(tmp_path)
    manifest = beside(path_of(log), MANIFEST_SUFFIX)
    elsewhere = manifest.read_bytes().replace(log.rpartition("/")[0].encode(), b"..")
    for damaged in (b"{}", elsewhere):
        manifest.write_bytes(damaged)
        with pytest.raises(CorruptionError):
            read_segmented_log(MACHINE, log)


def test_a_tablet_refers_to_its_rows_of_a_file_and_to_no_file_without_any(tmp_path: Path) -> None:
    ref = convert(
        [to_batch([RECORDS[0], Record(b"m", b"f", b"q", b"", 5, False, b"3")])],
        [Extent("1", None, None)],
        GROUPS,
        SegmentDirectory(MACHINE, name_at(tmp_path), TabletSettings()),
        lambda: None,
    )[0]
    entry = segment_entry(ref)
    assert part_of_segment(entry, RowRange(None, b"m")) == entry
    assert part_of_segment(entry, RowRange(b"m", None)) is None
    clipped = part_of_segment(entry, RowRange(b"a", None))
    assert clipped is not None
    assert clipped.ranges == (RowRange(b"a", None),)
