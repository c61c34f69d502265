"""Pages, tokens, deletes, and the bounds of a scan's reads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.scans import scan
from bookkeeper.storage.tablet.scans.cell_versions import ALL_VERSIONS, VersionFilter
from bookkeeper.storage.tablet.scans.scan import ScanPage
from bookkeeper.storage.tablet.scans.scan_position import Resume, VersionPosition
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.sorting.entries import SortedBlock
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.faults import fault
from tests.support.tablet_model import Model, Record, age_off, scan_all, to_batch, to_records
from tests.support.volumes import MACHINE, name_at, path_of

EXTENT = Extent("t", None, None)
GROUPS = GroupMap({"one": frozenset({b"f"}), "two": frozenset({b"g"})})
PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")


def flush(tablet: TabletData, flush_id: int) -> None:
    frozen = tablet.begin_flush()
    assert frozen is not None
    tablet.finish_flush(frozen, tablet.write_segments(frozen, flush_id))


@pytest.fixture
def tablet(tmp_path: Path) -> TabletData:
    return TabletData(
        EXTENT, GROUPS, MACHINE, name_at(tmp_path), [], TabletResources(TabletSettings(row_group_records=8))
    )


def test_a_delete_hides_what_is_not_newer(tablet: TabletData) -> None:
    history = [
        PLAIN._replace(timestamp=5, value=b"old"),
        PLAIN._replace(timestamp=7, value=b"newer"),
        PLAIN._replace(timestamp=6, delete=True),
        PLAIN._replace(qualifier=b"tie", timestamp=6),
        PLAIN._replace(qualifier=b"tie", timestamp=6, delete=True),
        PLAIN._replace(qualifier=b"tie again", timestamp=6, delete=True),
        PLAIN._replace(qualifier=b"tie again", timestamp=6),
        PLAIN._replace(qualifier=b"shown to some", visibility=b"secret"),
        PLAIN._replace(qualifier=b"shown to some", timestamp=9, delete=True),
    ]
    model = Model()
    for record in history:
        tablet.apply(to_batch([record]), model.apply([record]))
        flush(tablet, len(model.records))
    assert scan_all(tablet) == [history[1], history[7], history[6]]
    assert scan_all(tablet) == model.visible()
    with fault("deletes-hide-nothing"):
        assert scan_all(tablet) != model.visible()


HISTORY = [PLAIN._replace(timestamp=time, value=b"%d" % time) for time in range(10)]


def keep_versions(tablet: TabletData, versions: int, age_off_ms: int = 0) -> None:
    given = {"table.versions.max": str(versions), "table.age_off_ms": str(age_off_ms)}
    tablet.configure(tablet.groups, parse_properties(given))


def timestamps(tablet: TabletData, version_filter: VersionFilter = ALL_VERSIONS, page_bytes: int = 1) -> list[int]:
    return [record.timestamp for record in scan_all(tablet, page_bytes, version_filter=version_filter)]


def test_versions_that_count_are_shown_newest_first_however_they_are_cut_into_pages(tablet: TabletData) -> None:
    for number in range(5):
        tablet.apply(to_batch(HISTORY[number::5]), number * 2 + 1)
        flush(tablet, number + 1)
    assert timestamps(tablet) == [9]
    keep_versions(tablet, 4)
    for page_bytes in (1, 100, 1 << 20):
        assert timestamps(tablet, page_bytes=page_bytes) == [9, 8, 7, 6]
        assert timestamps(tablet, VersionFilter(versions=2), page_bytes) == [9, 8]
        assert timestamps(tablet, VersionFilter(versions=1), page_bytes) == [9]
    with fault("a-page-forgets-its-cell"):
        assert timestamps(tablet) != [9, 8, 7, 6]


def test_a_time_range_is_of_the_versions_that_count(tablet: TabletData) -> None:
    tablet.apply(to_batch(HISTORY), 1)
    assert timestamps(tablet, VersionFilter(from_ms=9, to_ms=10)) == [9]
    assert timestamps(tablet, VersionFilter(to_ms=9)) == []
    keep_versions(tablet, 4)
    assert timestamps(tablet, VersionFilter(to_ms=9)) == [8, 7, 6]
    assert timestamps(tablet, VersionFilter(from_ms=7, to_ms=9)) == [8, 7]
    assert timestamps(tablet, VersionFilter(versions=1, to_ms=8)) == [7]
    assert timestamps(tablet, VersionFilter(from_ms=5, to_ms=5)) == []
    keep_versions(tablet, 4, age_off(8))
    assert timestamps(tablet) == [9, 8]
    assert timestamps(tablet, VersionFilter(to_ms=9)) == [8]


def test_a_delete_hides_what_is_not_newer_of_all_versions(tablet: TabletData) -> None:
    keep_versions(tablet, 8)
    tablet.apply(to_batch([*HISTORY, PLAIN._replace(timestamp=6, delete=True)]), 1)
    assert timestamps(tablet) == [9, 8, 7]
    assert timestamps(tablet, VersionFilter(to_ms=9)) == [8, 7]
    assert timestamps(tablet, VersionFilter(to_ms=7)) == []


def test_versions_that_do_not_count_are_skipped(tmp_path: Path) -> None:
    tablet = TabletData(
        EXTENT, GROUPS, MACHINE, name_at(tmp_path), [], TabletResources(TabletSettings(page_examined_records_max=200))
    )
    keep_versions(tablet, 3)
    every = [PLAIN._replace(row=row, timestamp=time) for time in range(1000) for row in (b"a", b"b")]
    tablet.apply(to_batch(every), 1)
    flush(tablet, 1)
    pages: list[ScanPage] = []
    found = scan_all(tablet, between_pages=pages.append)
    assert [(record.row, record.timestamp) for record in found] == [
        (row, time) for row in (b"a", b"b") for time in (999, 998, 997)
    ]
    assert len(pages) <= 2


def test_a_scan_of_no_versions_is_refused(tablet: TabletData) -> None:
    with pytest.raises(InvalidInputError, match="1 or more"):
        scan_all(tablet, version_filter=VersionFilter(versions=0))


def test_cells_are_shown_to_those_who_may_see_them(tablet: TabletData) -> None:
    labels = [b"", b"a", b"a&b", b"a|b", b"broken|"]
    every = [PLAIN._replace(qualifier=b"%d" % n, visibility=label) for n, label in enumerate(labels)]
    tablet.apply(to_batch(every), 1)

    def seen(*held: bytes) -> list[bytes]:
        return [record.visibility for record in scan_all(tablet, 1, authorizations=Authorizations(frozenset(held)))]

    assert seen() == [b""]
    assert seen(b"a") == [b"", b"a", b"a|b"]
    assert seen(b"a", b"b") == [b"", b"a", b"a&b", b"a|b"]
    assert len(scan_all(tablet)) == 5
    with fault("labels-are-for-show"):
        assert seen() != [b""]


def test_a_wide_row_may_end_a_page_anywhere(tablet: TabletData) -> None:
    wide = [PLAIN._replace(qualifier=b"%05d" % i) for i in range(500)]
    for start in range(5):
        tablet.apply(to_batch(wide[start::5]), 1 + start * 100)
        if start < 3:
            flush(tablet, start + 1)
    for page_bytes in (50, 1000, 10_000):
        assert scan_all(tablet, page_bytes) == wide
    with fault("page-begins-at-its-row"), pytest.raises(AssertionError, match="a page must go on"):
        scan_all(tablet, 100)


def test_a_page_holds_about_what_was_asked_for(tablet: TabletData) -> None:
    tablet.apply(to_batch([PLAIN._replace(row=b"%05d" % i, value=b"v" * 71) for i in range(1000)]), 1)
    sizes = []
    scan_all(tablet, 10_000, between_pages=lambda page: sizes.append(page.records.num_rows))
    assert set(sizes) == {94}  # of 5 + 1 + 1 + 71 + 29 = 107 bytes each
    first = tablet.scan_page(None, None, (), (), None, 1)
    assert first.records.num_rows == 1


def test_a_page_ends_after_many_hidden_cells(tmp_path: Path) -> None:
    tablet = TabletData(
        EXTENT, GROUPS, MACHINE, name_at(tmp_path), [], TabletResources(TabletSettings(page_examined_records_max=100))
    )
    gone = [PLAIN._replace(row=b"%05d" % i, delete=True) for i in range(1000)]
    tablet.apply(to_batch(gone), 1)
    tablet.apply(to_batch([PLAIN._replace(row=b"z")]), 1001)
    pages = []
    assert scan_all(tablet, 10_000, between_pages=lambda page: pages.append(page.records.num_rows)) == [
        PLAIN._replace(row=b"z")
    ]
    assert pages[0] == 0
    assert 5 <= len(pages) <= 11


def test_a_scan_stays_in_its_extent(tmp_path: Path) -> None:
    whole = TabletData(EXTENT, GROUPS, MACHINE, name_at(tmp_path), [])
    every = [PLAIN._replace(row=row) for row in (b"a", b"b", b"b\x00", b"c", b"c\x00", b"d")]
    whole.apply(to_batch(every), 1)
    flush(whole, 1)
    part = TabletData(Extent("t", b"c", b"b"), GROUPS, MACHINE, name_at(tmp_path), whole.segments)
    assert scan_all(part) == every[2:4]
    assert scan_all(part, start=b"a", stop=b"z") == every[2:4]
    assert scan_all(part, start=b"c") == every[3:4]
    assert scan_all(part, stop=b"b") == []


class NotedBlocks:
    """Notes which row groups are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[str, int]] = []
        original = Segment._read_block

        def noted(segment: Segment, number: int) -> SortedBlock:
            self.read.append((segment.ref.group, number))
            return original(segment, number)

        monkeypatch.setattr(Segment, "_read_block", noted)


def reopened(tablet: TabletData) -> TabletData:
    return TabletData(
        EXTENT,
        tablet.groups,
        MACHINE,
        tablet.directory,
        tablet.segments,
        TabletResources(cache=BlockCache(1 << 20, readers=0)),
    )


def test_a_scan_reads_the_row_groups_of_its_range_and_families(
    tablet: TabletData, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [PLAIN._replace(row=b"%03d" % i, family=family) for i in range(80) for family in (b"f", b"g", b"h")]
    tablet.apply(to_batch(every), 1)
    flush(tablet, 1)
    noted = NotedBlocks(monkeypatch)

    def read(start: bytes | None, stop: bytes | None, families: Collection[bytes]) -> list[tuple[str, int]]:
        noted.read.clear()
        scan_all(reopened(tablet), start=start, stop=stop, families=families)
        return sorted(noted.read)

    assert read(b"016", b"024", (b"f",)) == [("one", 2)]
    assert read(b"017", b"017\x00", ()) == [("default", 2), ("one", 2), ("two", 2)]
    assert read(b"017x", b"017x\x00", ()) == []
    assert read(b"020", b"028", (b"g",)) == [("two", 2), ("two", 3)]
    assert read(None, None, (b"nowhere",)) == []
    assert read(b"9", None, ()) == []


def test_segments_that_follow_each_other_are_read_one_after_the_other(
    tablet: TabletData, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        some = [PLAIN._replace(row=b"%d%03d" % (number, i)) for i in range(16)]
        tablet.apply(to_batch(some), number * 16 + 1)
        flush(tablet, number + 1)
    noted = NotedBlocks(monkeypatch)
    again = reopened(tablet)
    page = again.scan_page(b"2008", None, (), (), None, 200)
    assert to_records(page.records)[0].row == b"2008"
    assert len(noted.read) <= 3


def test_a_short_range_is_merged_in_one_round(tablet: TabletData, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        tablet.apply(to_batch([PLAIN._replace(row=b"%03d" % i) for i in range(number, 96, 3)]), number * 32 + 1)
        flush(tablet, number + 1)
    rounds: list[int] = []
    original = merge_round

    def noted(cursors: list[Cursor], records: int, bytes_max: int, *, newest_only: bool) -> Round | None:
        merged = original(cursors, records, bytes_max, newest_only=newest_only)
        rounds.append(merged.records if merged else 0)
        return merged

    monkeypatch.setattr(scan, "merge_round", noted)
    assert [record.row for record in scan_all(tablet, start=b"020", stop=b"031")] == [
        b"%03d" % i for i in range(20, 31)
    ]
    assert rounds == [11, 0]


def test_pages_of_one_scan_decode_each_row_group_once(tablet: TabletData, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        tablet.apply(to_batch([PLAIN._replace(row=b"%03d" % i) for i in range(number, 96, 3)]), number * 32 + 1)
        flush(tablet, number + 1)
    noted = NotedBlocks(monkeypatch)
    assert len(scan_all(reopened(tablet), 100)) == 96
    assert len(noted.read) == len(tablet.segments) * 4


def test_a_bad_segment_fails_the_scan_that_needs_it(tablet: TabletData) -> None:
    tablet.apply(to_batch([PLAIN]), 1)
    flush(tablet, 1)
    path_of(tablet.segments[0].name).write_bytes(b"")
    with pytest.raises(Exception, match="0 bytes, the books say"):
        scan_all(reopened(tablet))
    assert scan_all(reopened(tablet), start=b"s") == []


parts = st.binary(max_size=5)


longs = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31)


@given(st.tuples(parts, parts, parts, parts), st.none() | st.builds(VersionPosition, longs, longs, counts, counts))
def test_a_token_is_its_place(
    cell: tuple[bytes, bytes, bytes, bytes], version_position: VersionPosition | None
) -> None:
    token = Resume(cell, version_position).encode()
    assert Resume.decode(token) == Resume(cell, version_position)
    for damaged in (token[:-1], token[1:], token + b"\x00", b"", bytes([token[0] ^ 2]) + token[1:]):
        with pytest.raises(InvalidInputError, match="start the scan again"):
            Resume.decode(damaged)


@given(st.binary(max_size=60))
def test_no_other_bytes_are_a_token(raw: bytes) -> None:
    with pytest.raises(InvalidInputError):
        Resume.decode(raw)


@pytest.mark.parametrize("page_bytes", [0, -1])
def test_a_page_of_no_bytes_is_refused(tablet: TabletData, page_bytes: int) -> None:
    with pytest.raises(InvalidInputError, match="ask for more"):
        tablet.scan_page(None, None, (), (), None, page_bytes)


def test_records_without_a_timestamp_or_schema_are_refused(tablet: TabletData) -> None:
    batch = to_batch([PLAIN])
    with pytest.raises(InvalidInputError, match="schema"):
        tablet.apply(batch.select(["row"]), 1)
    missing = to_batch([PLAIN._replace(timestamp=None)])  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="timestamp"):
        tablet.apply(missing, 1)
    tablet.apply(batch.slice(0, 0), 1)
    assert tablet.memory_records == 0
