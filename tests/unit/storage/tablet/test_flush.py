"""A flush may be cut anywhere: readers see everything all the time, and left-over files do no harm."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_writer import leftovers
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.file_ops import FileOps
from tests.support.faults import fault
from tests.support.tablet_model import Record, scan_all, to_batch
from tests.support.volumes import MACHINE, name_at, rooted

GROUPS = GroupMap({"one": frozenset({b"f"}), "two": frozenset({b"g"})})
EXTENT = Extent("t", None, None)
SETTINGS = TabletSettings(row_group_records=8)


class Cut(BaseException):
    """The process is gone."""


class CountedOps(FileOps):
    """Notes each call; fails the one of number ``cut`` with ``failure``."""

    def __init__(self, cut: int | None = None, failure: type[BaseException] = OSError) -> None:
        self.calls: list[str] = []
        self._cut = cut
        self._failure = failure

    def note(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) - 1 == self._cut:
            raise self._failure(call)

    def open(self, path: Path, flags: int) -> int:
        self.note(f"open {'directory' if flags & os.O_DIRECTORY else path.suffix}")
        return super().open(path, flags)

    def writev(self, fd: int, buffers: object) -> int:
        self.note("writev")
        return super().writev(fd, buffers)  # type: ignore[arg-type]

    def fsync(self, fd: int) -> None:
        self.note(f"fsync {'directory' if os.path.isdir(f'/proc/self/fd/{fd}') else 'file'}")  # noqa: PTH112
        super().fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self.note(f"rename {source.suffix} to {target.suffix}")
        super().rename(source, target)


def records(count: int = 60) -> list[Record]:
    families = [b"f", b"g", b"h"]
    return [Record(b"row%03d" % i, families[i % 3], b"q", b"", i, False, b"v") for i in range(count)]


def filled(directory: Path, ops: CountedOps | None = None) -> TabletData:
    tablet = TabletData(EXTENT, GROUPS, rooted(ops or FileOps()), name_at(directory), [], TabletResources(SETTINGS))
    tablet.apply(to_batch(records()), 1)
    return tablet


def test_each_group_with_data_gets_one_segment(tmp_path: Path) -> None:
    tablet = filled(tmp_path)
    frozen = tablet.begin_flush()
    assert frozen is not None
    written = tablet.write_segments(frozen, 3)
    assert [(s.group, s.records, s.flush_id) for s in written] == [("default", 20, 3), ("one", 20, 3), ("two", 20, 3)]
    assert (min(s.first_seq for s in written), max(s.last_seq for s in written)) == (1, 60)
    tablet.finish_flush(frozen, written)
    assert (tablet.memory_records, tablet.memory_bytes, tablet.segments) == (0, 0, tuple(written))
    assert scan_all(TabletData(EXTENT, GROUPS, MACHINE, name_at(tmp_path), written)) == records()


def test_there_is_nothing_to_flush_in_an_empty_memtable(tmp_path: Path) -> None:
    assert TabletData(EXTENT, GROUPS, MACHINE, name_at(tmp_path), []).begin_flush() is None


def test_a_file_has_its_name_only_when_it_is_durable(tmp_path: Path) -> None:
    ops = CountedOps()
    tablet = filled(tmp_path / "a" / "b", ops)
    frozen = tablet.begin_flush()
    assert frozen is not None
    tablet.write_segments(frozen, 1)
    calls = [call for call in ops.calls if not call.startswith(("open", "writev"))]
    assert calls == ["fsync directory"] * 2 + ["fsync file"] * 3 + ["rename .tmp to .parquet"] * 3 + ["fsync directory"]


def test_names_are_never_used_again(tmp_path: Path) -> None:
    tablet = filled(tmp_path)
    frozen = tablet.begin_flush()
    assert frozen is not None
    names = [segment.name for _ in range(3) for segment in tablet.write_segments(frozen, 1)]
    assert len(set(names)) == 9


def calls_of_a_flush(directory: Path) -> int:
    ops = CountedOps()
    tablet = filled(directory, ops)
    frozen = tablet.begin_flush()
    assert frozen is not None
    tablet.write_segments(frozen, 1)
    return len(ops.calls)


def test_a_flush_that_fails_at_any_call_leaves_no_file_and_can_be_tried_again(tmp_path: Path) -> None:
    for cut in range(calls_of_a_flush(tmp_path / "counted")):
        directory = tmp_path / str(cut)
        ops = CountedOps(cut)
        tablet = filled(directory, ops)
        frozen = tablet.begin_flush()
        assert frozen is not None
        with pytest.raises(OSError, match=r"open|writev|fsync|rename"):
            tablet.write_segments(frozen, 1)
        assert leftovers(MACHINE.entries(name_at(directory)), ()) == []
        tablet.apply(to_batch([Record(b"z", b"f", b"", b"", 0, False, b"")]), 61)
        assert len(scan_all(tablet)) == 61
        assert tablet.begin_flush() is frozen
        tablet.finish_flush(frozen, tablet.write_segments(frozen, 2))
        assert len(scan_all(tablet)) == 61
        assert (tablet.memory_records, len(tablet.segments)) == (1, 3)


@pytest.mark.parametrize("cut", [0, 1, 6])
def test_a_flush_that_fails_in_any_row_group_leaves_no_file_and_can_be_tried_again(tmp_path: Path, cut: int) -> None:
    """Row groups are encoded beside the flush that prepares the next one."""
    tablet = filled(tmp_path)
    frozen = tablet.begin_flush()
    assert frozen is not None
    write, encoded = pq.ParquetWriter.write_batch, itertools.count()

    def failing(writer: pq.ParquetWriter, *arguments: Any, **options: Any) -> None:
        if next(encoded) == cut:
            raise OSError("row group")
        write(writer, *arguments, **options)

    with patch.object(pq.ParquetWriter, "write_batch", failing), pytest.raises(OSError, match="row group"):
        tablet.write_segments(frozen, 1)
    assert leftovers(MACHINE.entries(name_at(tmp_path)), ()) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("segment")]
    tablet.finish_flush(frozen, tablet.write_segments(frozen, 2))
    assert len(scan_all(tablet)) == 60


def test_a_process_killed_at_any_call_loses_nothing_that_the_books_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cut in range(calls_of_a_flush(tmp_path)):
        directory = tmp_path / str(cut)
        before = filled(directory)
        frozen = before.begin_flush()
        assert frozen is not None
        named = before.write_segments(frozen, 1)
        killed = TabletData(
            EXTENT, GROUPS, rooted(CountedOps(cut, Cut)), name_at(directory), named, TabletResources(SETTINGS)
        )
        killed.apply(to_batch([record._replace(value=b"new") for record in records()]), 61)
        frozen = killed.begin_flush()
        assert frozen is not None
        with monkeypatch.context() as dead:
            dead.setattr("bookkeeper.storage.tablet.segments.segment_writer.SegmentWriter.discard", lambda _: None)
            with pytest.raises(Cut):
                killed.write_segments(frozen, 2)
        restarted = TabletData(EXTENT, GROUPS, MACHINE, name_at(directory), named, TabletResources(SETTINGS))
        assert scan_all(restarted) == records()
        found = leftovers(MACHINE.entries(name_at(directory)), {segment.name for segment in named})
        assert not {segment.name for segment in named} & set(found)
        MACHINE.delete(found)
        assert (
            scan_all(TabletData(EXTENT, GROUPS, MACHINE, name_at(directory), named, TabletResources(SETTINGS)))
            == records()
        )
        assert len(list(directory.iterdir())) == 3


def test_what_is_being_flushed_stays_readable_and_writable_beside(tmp_path: Path) -> None:
    tablet = filled(tmp_path)
    frozen = tablet.begin_flush()
    assert frozen is not None
    assert tablet.begin_flush() is frozen
    assert (tablet.active_bytes, tablet.frozen_bytes) == (0, frozen.bytes)
    assert scan_all(tablet) == records()
    written = tablet.write_segments(frozen, 1)
    deleted = records()[0]._replace(delete=True, timestamp=100)
    tablet.apply(to_batch([deleted]), 61)
    assert scan_all(tablet) == records()[1:]
    tablet.finish_flush(frozen, written)
    assert scan_all(tablet) == records()[1:]


@pytest.mark.parametrize("name", ["freezing-hides-memory", "flushed-before-segments"])
def test_readers_miss_data_when_the_swap_is_broken(tmp_path: Path, name: str) -> None:
    with fault(name):
        tablet = filled(tmp_path)
        frozen = tablet.begin_flush()
        if frozen is not None:
            tablet.finish_flush(frozen, tablet.write_segments(frozen, 1))
        assert scan_all(tablet) != records()


def test_finishing_again_is_harmless_and_other_flushes_are_refused(tmp_path: Path) -> None:
    tablet, other = filled(tmp_path / "a"), filled(tmp_path / "b")
    frozen, foreign = tablet.begin_flush(), other.begin_flush()
    assert frozen is not None
    assert foreign is not None
    written = tablet.write_segments(frozen, 1)
    with pytest.raises(InvalidInputError, match="another memtable"):
        tablet.finish_flush(frozen, written[1:2])
    with pytest.raises(InvalidInputError, match="not being flushed"):
        tablet.finish_flush(foreign, other.write_segments(foreign, 1))
    tablet.finish_flush(frozen, written)
    tablet.finish_flush(frozen, written)
    assert len(tablet.segments) == 3


def test_records_that_recovery_applies_twice_count_once(tmp_path: Path) -> None:
    tablet = filled(tmp_path)
    tablet.apply(to_batch(records()), 1)
    assert scan_all(tablet) == records()
    frozen = tablet.begin_flush()
    assert frozen is not None
    tablet.finish_flush(frozen, tablet.write_segments(frozen, 1))
    assert scan_all(tablet) == records()


def test_leftovers_of_a_directory_that_is_not_there_are_none(tmp_path: Path) -> None:
    assert leftovers(MACHINE.entries(name_at(tmp_path / "no")), ()) == []
