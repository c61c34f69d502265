"""Which offers of whole files are taken: decisions, files on their way, and the gate for changes of configuration."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.bulk.log_segments import sha256_of
from bookkeeper.errors import (
    CorruptionError,
    DeclinedError,
    InvalidInputError,
    NoSpaceError,
    NotServingError,
    OverloadedError,
    RefusedError,
    StreamExpiredError,
    UnavailableError,
)
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import BlockTarget, Extent, LocalityGroup, RowRange, StreamKey, TargetKey
from bookkeeper.origins import Root, root_of
from bookkeeper.rpc.contract.messages import OfferedSegment, SegmentPart, SegmentsOffer
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.tserver.bulk import segment_offers
from bookkeeper.tserver.bulk.segment_offers import (
    OfferedFile,
    Standing,
    files_of,
    first_root,
    reason_of_tablets,
    reason_to_decline,
    relay_facts_of,
    segments_by_tablet,
)
from bookkeeper.tserver.bulk.segment_receiver import declined_or_raise
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.write.config_barrier import ConfigBarrier
from tests.support.books import sqlite_books
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.must_raise import must_raise
from tests.support.session_holds import held_files, session_holds
from tests.support.volumes import MACHINE, name_at, path_of, rooted

STREAM = StreamKey("east", "import/1.wal", "7", "1", 1)
CONTENT = b"0123456789"
VIEW = TableView("1", "cities", True, GroupMap({"geo": [b"g"]}), ())


def _entry(records: int = 2, low: bytes = b"a", high: bytes = b"z") -> SegmentEntry:
    return SegmentEntry("default", records, len(CONTENT), low, high, 1, 2, 0)


def _offer(*entries: SegmentEntry, to: int = 2) -> SegmentsOffer:
    segments = tuple(OfferedSegment(entry.encode(), "0" * 64) for entry in entries)
    return SegmentsOffer("t", STREAM, ("east",), to, (LocalityGroup("geo", (b"g",)),), 10, 20, 30, segments)


def _reason(offer: SegmentsOffer, view: TableView = VIEW, limits: BatchLimits | None = None) -> str:
    return reason_to_decline(offer, files_of(offer), view, limits or BatchLimits()) or ""


def test_a_tablet_has_all_of_a_stream_or_nothing_or_takes_no_file() -> None:
    assert segment_offers.standing_of(0, False, 9) is Standing.NOTHING
    assert segment_offers.standing_of(9, False, 9) is Standing.ALL
    assert segment_offers.standing_of(8, False, 9) is Standing.SOME, (
        "a tablet that has some of the records counts as empty"
    )
    assert segment_offers.standing_of(0, True, 9) is Standing.SOME


def test_files_that_are_not_all_of_the_stream_are_refused() -> None:
    assert len(files_of(_offer(_entry(1), _entry(1)))) == 2
    assert len(files_of(_offer(_entry(1)))) == 1, "a target may get some groups only"
    for offer in (_offer(_entry(3)), _offer(), _offer(replace(_entry(), ranges=(RowRange(None, b"b"),)))):
        with pytest.raises(InvalidInputError):
            files_of(offer)


def test_what_a_table_does_not_take_as_files_is_said() -> None:
    offer = _offer(_entry())
    assert _reason(offer) == ""
    block_target = block_target_to_pb(BlockTarget(TargetKey("south", "r", "1", 1), None))
    replicated = replace(VIEW, block_targets=(block_target,))
    assert _reason(offer, replicated) == ""
    assert "replicated further" in _reason(_offer(_entry(1)), replicated), "files of some groups have no log"
    assert "2 of its tablets" in (reason_of_tablets(replicated, 2) or "")
    assert reason_of_tablets(replicated, 1) is reason_of_tablets(VIEW, 2) is None
    assert "locality groups" in _reason(offer, replace(VIEW, groups=GroupMap({})))
    assert "a row of 10" in _reason(offer, limits=replace(BatchLimits(), row_bytes_max=9))
    assert "a column of 20" in _reason(offer, limits=replace(BatchLimits(), column_bytes_max=19))
    assert "a value of 30" in _reason(offer, limits=replace(BatchLimits(), value_bytes_max=29))
    with patch("bookkeeper.tserver.bulk.segment_offers.OFFER_BYTES_MAX", 9):
        assert "too many" in _reason(offer)


def test_r22_an_offer_says_where_its_records_were_first_written() -> None:
    root = Root("north", "import/7.wal", "3")
    handed_on = replace(_offer(_entry()), root=root.encode())
    assert first_root(STREAM, relay_facts_of(handed_on)) == root
    assert first_root(STREAM, relay_facts_of(_offer(_entry()))) == first_root(STREAM, None) == root_of(STREAM)
    with pytest.raises(CorruptionError):
        relay_facts_of(replace(handed_on, root="north|x"))


def test_each_tablet_refers_to_the_files_that_reach_it() -> None:
    files = [OfferedFile(_entry(1, b"a", b"c"), ""), OfferedFile(_entry(1, b"b", b"z"), "")]
    first, second, third = Extent("1", b"b", None), Extent("1", b"m", b"b"), Extent("1", b"n", b"m")
    last = Extent("1", None, b"z")
    found = segments_by_tablet(files, [first, second, third, last])
    assert {extent: sorted(parts) for extent, parts in found.items()} == {first: [0, 1], second: [0, 1], third: [1]}
    assert found[second][0].ranges == (RowRange(b"b", b"m"),)


def test_the_worst_of_the_tablets_answers_decides() -> None:
    assert declined_or_raise([DeclinedError("why")]).reason == "why"
    with pytest.raises(NotServingError):
        declined_or_raise([DeclinedError(""), NotServingError("")])
    with pytest.raises(RefusedError):
        declined_or_raise([NotServingError(""), RefusedError("over")])


# ---- files on their way


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[MetadataTable]:
    made = sqlite_books(tmp_path / "books.db")
    yield made
    made.close()


@pytest.fixture
def incoming(tmp_path: Path, clock: TestClock, books: MetadataTable) -> SegmentUploads:
    return uploads(tmp_path, clock, books)


def uploads(tmp_path: Path, clock: TestClock, books: MetadataTable, volume: Volume = MACHINE) -> SegmentUploads:
    """Of a session; its directory is ``incoming``."""
    holds = session_holds(books, clock)
    return SegmentUploads(volume, holds, name_at(tmp_path / "incoming"), clock, 600_000, pytest.fail)


def _file(tmp_path: Path) -> OfferedFile:
    (tmp_path / "f").write_bytes(CONTENT)
    return OfferedFile(_entry(), sha256_of(MACHINE, name_at(tmp_path / "f")))


def unchecked(name: str, offered: OfferedFile) -> None:
    """Accept any whole file."""


def _part(start: int, content: bytes, number: int = 0) -> SegmentPart:
    return SegmentPart("t", STREAM, number, start, content)


def test_parts_that_come_again_are_passed_over(tmp_path: Path, incoming: SegmentUploads) -> None:
    file = _file(tmp_path)
    assert incoming.begin(STREAM, 2, [file], unchecked) == (0,)
    incoming.put(_part(0, CONTENT[:4]))
    incoming.put(_part(0, CONTENT[:4]))
    assert incoming.begin(STREAM, 2, [file], unchecked) == (4,)
    with pytest.raises(InvalidInputError), incoming.complete(STREAM):
        pass
    incoming.put(_part(2, CONTENT[2:]))
    with incoming.complete(STREAM) as upload:
        (name,) = upload.names
        assert path_of(name).read_bytes() == CONTENT
    with pytest.raises(StreamExpiredError):
        incoming.put(_part(0, CONTENT))


@pytest.mark.parametrize("part", [_part(1, b"x"), _part(0, CONTENT + b"x"), _part(0, b"x", 1), _part(0, b"x", -1)])
def test_parts_that_do_not_belong_are_refused(tmp_path: Path, incoming: SegmentUploads, part: SegmentPart) -> None:
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    with pytest.raises(InvalidInputError):
        incoming.put(part)


def test_files_that_did_not_get_to_tablets_stay_for_the_next_try(tmp_path: Path, incoming: SegmentUploads) -> None:
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    incoming.put(_part(0, CONTENT))
    with pytest.raises(UnavailableError), incoming.complete(STREAM):
        raise UnavailableError("a tablet moves")
    assert incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked) == (len(CONTENT),)


def test_what_nobody_sends_any_more_goes_and_what_is_used_stays(
    tmp_path: Path, incoming: SegmentUploads, clock: TestClock
) -> None:
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    incoming.put(_part(0, CONTENT))
    with incoming.complete(STREAM) as upload:
        clock.jump(700_000)
        incoming.expire()
        assert not upload.is_over
    taken = set((tmp_path / "incoming").iterdir())
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    incoming.put(_part(0, CONTENT[:4]))
    clock.jump(300_000)
    incoming.expire()
    incoming.put(_part(4, b""))
    clock.jump(700_000)
    incoming.expire()
    assert set((tmp_path / "incoming").iterdir()) == taken
    with pytest.raises(StreamExpiredError):
        incoming.put(_part(4, CONTENT[4:]))


def test_disk_for_files_on_their_way_is_bounded(tmp_path: Path, incoming: SegmentUploads) -> None:
    file = _file(tmp_path)
    with patch("bookkeeper.tserver.bulk.segment_uploads.TOTAL_BYTES_MAX", 15):
        incoming.begin(STREAM, 2, [file], unchecked)
        with pytest.raises(OverloadedError):
            incoming.begin(replace(STREAM, file="2.wal"), 2, [file], unchecked)


class _FullDisk(FileOps):
    """Of each write a byte has room, then nothing."""

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        if os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, "no space left")
        return os.write(fd, memoryview(buffers[0])[:1])


def test_a_full_disk_is_said_and_nothing_stays(tmp_path: Path, clock: TestClock, books: MetadataTable) -> None:
    incoming = uploads(tmp_path, clock, books, rooted(_FullDisk()))
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    with pytest.raises(NoSpaceError, match="no space"):
        incoming.put(_part(0, CONTENT))
    assert list((tmp_path / "incoming").iterdir()) == []
    assert not held_files(books)
    assert incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked) == (0,)


def told_of_a_file(tmp_path: Path, incoming: SegmentUploads, clock: TestClock, books: MetadataTable) -> None:
    """A tablet was told of a file, and its answer was lost; then nobody sends the file again."""
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    incoming.put(_part(0, CONTENT[:4]))
    assert held_files(books), "R17: a file that arrives is not held"
    incoming.put(_part(4, CONTENT[4:]))
    with pytest.raises(UnavailableError), incoming.complete(STREAM) as upload:
        raise UnavailableError("the answer of a tablet is lost")
    (name,) = upload.names
    assert held_files(books) == {name}
    clock.jump(700_000)
    incoming.expire()
    incoming.close()
    assert path_of(name).exists(), "R17: the uploader deletes a file that a tablet may name"
    assert not held_files(books)


def test_r17_a_file_that_a_tablet_was_told_of_is_the_collectors(
    tmp_path: Path, incoming: SegmentUploads, clock: TestClock, books: MetadataTable
) -> None:
    told_of_a_file(tmp_path, incoming, clock, books)


def test_r17_red_the_end_of_an_upload_takes_a_file_from_a_tablet(
    tmp_path: Path, incoming: SegmentUploads, clock: TestClock, books: MetadataTable
) -> None:
    with (
        fault("uploads-own-their-files"),
        pytest.raises(AssertionError, match="R17: the uploader deletes a file that a tablet may name"),
    ):
        told_of_a_file(tmp_path, incoming, clock, books)


def test_the_end_of_a_session_removes_the_files_that_no_tablet_was_told_of(
    tmp_path: Path, incoming: SegmentUploads
) -> None:
    incoming.begin(STREAM, 2, [_file(tmp_path)], unchecked)
    incoming.put(_part(0, CONTENT[:4]))
    incoming.close()
    assert list((tmp_path / "incoming").iterdir()) == []


# ---- the gate


def test_r14_who_changes_the_configuration_waits_for_those_who_saw_the_old_one() -> None:
    gate, inside, leave = ConfigBarrier(), threading.Event(), threading.Event()

    def pass_through() -> None:
        with gate.passing():
            inside.set()
            assert leave.wait(60)

    with ThreadPoolExecutor(1) as pool:
        passing = pool.submit(pass_through)
        try:
            assert inside.wait(60)
            with must_raise(UnavailableError, "R14: a change does not wait for a write under way"):
                gate.settle(10)
        finally:
            leave.set()
        gate.settle(60_000)
        passing.result(60)
    gate.settle(0)
