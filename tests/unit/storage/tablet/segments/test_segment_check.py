"""Footers of foreign segments are compared with their rows: only our own segments pass (R18, L7)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, IncompatibleError
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_check import Bounds, check_segment
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import BatchLimits, TabletSettings
from tests.support.damage import damaged
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.strange_segments import Entry, Line, craft, entry, lay
from tests.support.tablet_model import Record, to_batch
from tests.support.volumes import MACHINE, name_at, path_of
from tests.unit.storage.tablet.segments.test_segment_fuzz import joined, parts_of

LIMITS = BatchLimits(row_bytes_max=100, column_bytes_max=100, value_bytes_max=50_000)
SMALL = TabletSettings(row_group_records=4, row_group_bytes=2_000)
BOUNDS = Bounds(LIMITS, 1 << 20, settings=SMALL)
TWO = [[entry(b"a", 3), entry(b"b", 1)], [entry(b"c", 2)]]


def check(ref: SegmentRef, bounds: Bounds = BOUNDS) -> None:
    check_segment(MACHINE, ref, bounds)


def refused(ref: SegmentRef, reason: str, bounds: Bounds = BOUNDS) -> None:
    with must_raise(CorruptionError, f"a file is taken in spite of its {reason}", match=reason):
        check(ref, bounds)


# ---- what is ours


cells = st.binary(max_size=3)
some_records = st.lists(
    st.builds(
        Record,
        row=st.binary(min_size=1, max_size=3),
        family=st.sampled_from([b"f", b"g"]),
        qualifier=cells,
        visibility=st.just(b""),
        timestamp=st.integers(-3, 3),
        delete=st.booleans(),
        value=st.sampled_from([b"", b"v", b"w" * 900, b"x" * 3_000]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(records=some_records)
def test_what_a_flush_writes_passes(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> None:
    groups = GroupMap({"geo": [b"g"]})
    wide = replace(SMALL, row_group_records=16)
    limits = BatchLimits(row_bytes_max=3, column_bytes_max=3, value_bytes_max=3_000)
    tablet = TabletData(
        Extent("t", None, None), groups, MACHINE, name_at(tmp_path_factory.mktemp("s")), [], TabletResources(wide)
    )
    tablet.apply(to_batch(records), 7)
    frozen = tablet.begin_flush()
    assert frozen is not None
    for ref in tablet.write_segments(frozen, 1):
        check(ref, Bounds(limits, 1 << 20, groups, 3, wide))
        check(replace(ref, shift=5), Bounds(limits, 1 << 20, settings=wide))


def test_what_is_crafted_as_a_writer_would_passes(tmp_path: Path) -> None:
    check(craft(tmp_path / "s.parquet", TWO))


# ---- numbers that came with a file


SAID: list[tuple[str, dict[str, Any], str]] = [
    ("a last number near 2^63", {"last_seq": 2**63 - 1}, "sequence numbers"),
    ("a last number below", {"last_seq": 2}, "sequence numbers"),
    ("a first number", {"first_seq": 0}, "sequence numbers"),
    ("records", {"records": 2}, "records"),
    ("a first row", {"min_row": b"A"}, "first and last row"),
    ("a last row", {"max_row": b"d"}, "first and last row"),
    ("another group", {"group": "geo"}, "group"),
    ("a size", {"bytes": 7}, "bytes"),
]


@pytest.mark.parametrize(("what", "said", "reason"), SAID, ids=[what for what, *_ in SAID])
def test_numbers_that_are_not_those_of_the_records(
    what: str, said: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert what
    refused(replace(craft(tmp_path / "s.parquet", TWO), **said), reason)


# ---- what a file holds


def changed(name: str, value: object) -> Callable[[int, Line], None]:
    return lambda number, line: line.update({name: value}) if number == 0 else None


HELD: list[tuple[str, list[list[Entry]], dict[str, Any], str]] = [
    ("rows fall", [[entry(b"a", 1), entry(b"c", 2), entry(b"b", 3), entry(b"d", 4)]], {}, "not in order"),
    ("row groups fall", [[entry(b"b")], [entry(b"a", 2)]], {}, "first and last row|not in order"),
    ("row groups meet", [[entry(b"a", 1)], [entry(b"a", 1)]], {}, "not in order"),
    ("versions rise", [[entry(b"a", 1), entry(b"a", 2)]], {}, "not in order"),
    ("an entry comes twice", [[entry(b"a", 1), entry(b"a", 1, b"w")]], {}, "not in order"),
    ("no timestamp", [[entry(b"a", 1), entry(b"b", 2, timestamp=None), entry(b"c", 3)]], {}, "nulls"),
    ("an empty row", [[entry(b"", 1)]], {}, "empty row"),
    ("a long row", [[entry(b"r" * 101, 1)]], {}, "a row of 101 bytes"),
    ("a long value", [[entry(b"a", 1, b"v" * 50_001)]], {}, "a value of 50001 bytes"),
    ("many records", [[entry(b"%d" % n, n) for n in range(1, 6)]], {}, "5 records"),
    ("many bytes", [[entry(b"%d" % n, n, b"v" * 40_000) for n in range(1, 4)]], {}, "12.... bytes"),
    ("row groups of nothing", [[entry(b"%d" % n, n)] for n in range(1, 10)], {}, "would have joined"),
    ("a family is not listed", [[entry(b"a", 1), entry(b"b", 2, family=b"g")]], {}, "list of families"),
    ("a family is not there", TWO, {"families": (b"f", b"g")}, "list of families"),
    ("the filter hides a row", TWO, {"filtered": [b"a", b"b"]}, "filter hides"),
    ("the index begins elsewhere", TWO, {"change_line": changed("last_row", b"a")}, "another key than in its index"),
    ("the index has other numbers", TWO, {"change_line": changed("records", 1)}, "records"),
    ("the index leads elsewhere", TWO, {"change_line": changed("start", 5)}, "checksum|overlap"),
    ("values have a dictionary", TWO, {"options": {"use_dictionary": True}}, "not where a writer puts it"),
    (
        "values share their beginnings",
        TWO,
        {"options": {"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY"}}},
        "encoding 7",
    ),
    ("pages of version 2", TWO, {"options": {"data_page_version": "2.0"}}, "a page of type 3"),
    (
        "values may be missing",
        TWO,
        {"schema": ENTRY_SCHEMA.set(6, pa.field("value", pa.binary()))},
        "column value is of type BYTE_ARRAY with levels",
    ),
    (
        "numbers are small",
        TWO,
        {"schema": ENTRY_SCHEMA.set(7, pa.field("seq", pa.int32(), nullable=False))},
        "column seq is of type INT32",
    ),
]


@pytest.mark.parametrize(("what", "groups", "how", "reason"), HELD, ids=[what for what, *_ in HELD])
def test_what_no_writer_writes(
    what: str, groups: list[list[Entry]], how: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert what
    refused(craft(tmp_path / "s.parquet", groups, **how), reason)


def test_a_family_of_another_group(tmp_path: Path) -> None:
    ref = craft(tmp_path / "s.parquet", [[entry(b"a", 1), entry(b"b", 2, family=b"g")]], families=(b"f", b"g"))
    check(ref)
    refused(ref, "family b'g', which is not of group default", replace(BOUNDS, groups=GroupMap({"geo": [b"g"]})))


def test_a_timestamp_of_the_future(tmp_path: Path) -> None:
    ref = craft(tmp_path / "s.parquet", [[entry(b"a", 1), entry(b"b", 2, timestamp=1000)]])
    check(ref, replace(BOUNDS, timestamp_max=1000))
    refused(ref, "timestamp 1000: at most 999", replace(BOUNDS, timestamp_max=999))


def test_a_long_tail(tmp_path: Path) -> None:
    ref = craft(tmp_path / "s.parquet", TWO)
    refused(ref, "behind its row groups: at most 300", replace(BOUNDS, tail_bytes_max=300))


# ---- memory


def _bomb(path: Path) -> SegmentRef:
    """A dictionary of one long qualifier that 200,000 entries have: a few kilobytes that become a gigabyte."""
    group = [(b"r%06d" % n, b"f", b"q" * 5_000, b"", 5, False, b"", n) for n in range(1, 200_001)]
    return craft(path, [group], options={"write_statistics": False})


@pytest.mark.long
def test_a_file_of_some_kilobytes_takes_no_gigabyte(tmp_path: Path) -> None:
    """In a process of its own, so that its greatest size is that of the check."""
    ref = _bomb(tmp_path / "s.parquet")
    assert path_of(ref.name).stat().st_size < 4 << 20
    code = (
        "from bookkeeper.errors import CorruptionError\n"
        "from bookkeeper.storage.tablet import *; from bookkeeper.storage.tablet.segments.segment_check import *\n"
        "from pathlib import Path; from bookkeeper.storage.volume.local_volume import LocalVolume\n"
        "def peak_kib():\n"
        "    with open('/proc/self/status') as facts:\n"
        "        return next(int(line.split()[1]) for line in facts if line.startswith('VmHWM'))\n"
        "before = peak_kib()\n"
        "settings = TabletSettings(row_group_records=1 << 20)\n"
        f"try:\n    check_segment(LocalVolume(Path('/')), {ref!r}, Bounds(BatchLimits(), 1 << 20, settings=settings))\n"
        "except CorruptionError as error:\n    print(error.message)\n"
        "print((peak_kib() - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reason, grown_mib = done.stdout.splitlines()
    assert "are kept" in reason
    assert int(grown_mib) < 128


def test_a_page_that_announces_gigabytes_is_not_decoded(tmp_path: Path) -> None:
    """The header of the first page says 2 GiB - 1 in place of its size."""
    ref = craft(tmp_path / "s.parquet", [[entry(b"a", 1, b"v" * 30)]])
    body, filter_bytes, index, footer = parts_of(path_of(ref.name).read_bytes())
    assert body[4:6] == b"\x15\x00", "the type of the first page, and then its size"
    at = body.index(b"\x15", 6)
    lay(path_of(ref.name), body[: at + 1] + b"\xfe\xff\xff\xff\x0f" + body[at + 2 :], filter_bytes, index, footer)
    with pytest.raises(CorruptionError):
        check(replace(ref, bytes=path_of(ref.name).stat().st_size))


# ---- anything


@settings(max_examples=150, deadline=None)
@given(data=st.data(), part=st.integers(0, 3))
def test_whatever_is_under_right_checksums_is_as_said_or_refused(
    data: st.DataObject, part: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("s") / "s.parquet"
    ref = craft(place, TWO)
    parts = list(parts_of(place.read_bytes()))
    parts[part] = data.draw(damaged(parts[part], parts[part]))
    content = joined(*parts)
    place.write_bytes(content)
    try:
        check(replace(ref, bytes=len(content)))
    except (CorruptionError, IncompatibleError):
        return
    found = TabletData(
        Extent("t", None, None), GroupMap({}), MACHINE, name_at(place.parent), [replace(ref, bytes=len(content))]
    )
    assert found.scan_page(None, None, (), (), None, 1 << 20).records.num_rows == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("numbers-of-files-are-believed", {"last_seq": 2**63 - 1}),
        ("numbers-of-files-are-believed", {"first_seq": 0}),
    ],
)
def test_without_its_rule_a_number_is_believed(name: str, said: dict[str, Any], tmp_path: Path) -> None:
    ref = replace(craft(tmp_path / "s.parquet", TWO), **said)
    with fault(name), pytest.raises(AssertionError, match="a file is taken in spite of its sequence numbers"):
        refused(ref, "sequence numbers")


def test_without_its_rule_a_bomb_is_decoded(tmp_path: Path) -> None:
    ref = craft(tmp_path / "s.parquet", [[entry(b"%d" % n, n, b"v" * 40_000) for n in range(1, 4)]])
    with fault("any-size-is-decoded"), pytest.raises(AssertionError, match="a file is taken in spite of its bytes"):
        refused(ref, "bytes")
