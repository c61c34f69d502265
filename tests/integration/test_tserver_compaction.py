"""Compactions of a running tserver: beside writes and scans, when due and when asked for (R16, R17, R18)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.clock import SystemClock
from bookkeeper.errors import NotServingError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import StreamKey
from bookkeeper.runtime.threads import BackgroundThread
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.sorting.entries import SortedBlock
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.tserver.maintenance import flush_schedule
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.tablets.tablet import ServedTablet
from tests.support.compactions import QUIET, files_of, fill, marks_in, move, named_in, parts_of, quiet_tablet
from tests.support.faults import fault
from tests.support.tservers import (
    LIMIT_S,
    Ground,
    flush_of,
    ground,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


def test_a_compaction_leaves_one_segment_and_what_is_shown(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    before = flush_of(west, extent)
    compactor.compact(tablet)
    state = flush_of(west, extent)
    assert state.flush_id > before.flush_id
    assert [(ref.records, ref.flush_id) for ref in tablet.data.segments] == [(3, state.flush_id)]
    assert state.segments == tuple(ref.name for ref in tablet.data.segments)
    assert west.scan(node, extent) == expected
    assert compactor.clear(tablet)
    assert named_in(west, extent) == set(state.segments)
    assert marks_in(west) == files_of(west, extent) - set(state.segments)
    node.stop()


def test_what_is_dead_when_a_tablet_comes_to_rest_elsewhere_goes_too(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    expected = fill(west, node, extent)
    west.tserver(node).flush_tablet(extent)
    compactor, tablet = parts_of(node, extent)
    assert compactor.clear(tablet)
    dead = replace(tablet.data.segments[0], name="dead.parquet")
    put = RowPut(tablet.row, {keys.segment_column(dead.name): segment_entry(dead).encode()})
    west.metadata.put([put], dead.flush_id)
    other = move(west, node, extent)
    wait_until(lambda: dead.name not in named_in(west, extent), "no dead cells")
    assert marks_in(west) == {dead.name}
    assert west.scan(other, extent) == expected
    other.stop()


# ---- beside others


def test_a_tablet_whose_memory_was_full_a_moment_ago_is_taken_to_fill_up(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", {**QUIET, "table.flush.memtable_bytes": "2000"})
    node = west.local()
    west.assign(node, extent)
    tablet, flusher = node.process.parts.tablets.registry.serving(extent), node.process.parts.tablets.flusher
    west.write(node, extent, records([(b"a", b"1")]))
    west.tserver(node).flush_tablet(extent)
    assert not flusher.fills(tablet)
    west.write(node, extent, records([(b"b", b"1" * 2_000)]))
    wait_until(lambda: len(tablet.data.segments) == 2, "a flush because of much in memory")
    with patch.object(flush_schedule, "FILLING_MS", 3_600_000):
        wait_until(lambda: flusher.fills(tablet), "the tablet is taken to fill up")
    with patch.object(flush_schedule, "FILLING_MS", 0):
        assert not flusher.fills(tablet)
    node.stop()


def test_writes_and_flushes_do_not_wait_for_a_merge(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    begun, check_continue = threading.Event(), threading.Event()
    check = Compactor._check

    def slow(self: Compactor, checked: ServedTablet) -> None:
        begun.set()
        assert check_continue.wait(LIMIT_S)
        check(self, checked)

    with patch.object(Compactor, "_check", slow), ThreadPoolExecutor(1) as pool:
        merge = pool.submit(compactor.compact, tablet)
        assert begun.wait(LIMIT_S)
        west.write(node, extent, records([(b"x", b"1")]))
        west.tserver(node).flush_tablet(extent)
        west.write(node, extent, records([(b"y", b"1")]))
        check_continue.set()
        merge.result()
    assert len(tablet.data.segments) == 2
    shown = {**expected, (b"x", b"f", b"q"): b"1", (b"y", b"f", b"q"): b"1"}
    assert west.scan(node, extent) == shown
    other = move(west, node, extent)
    assert west.scan(other, extent) == shown
    other.stop()


def test_a_page_that_is_being_filled_keeps_its_files(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    expected = fill(west, node, extent)
    west.tserver(node).flush_tablet(extent)
    compactor, tablet = parts_of(node, extent)
    begun, check_continue = threading.Event(), threading.Event()
    read = Segment._read_block
    main = threading.get_ident()

    def slow(segment: Segment, number: int) -> SortedBlock:
        if threading.get_ident() != main:
            begun.set()
            assert check_continue.wait(LIMIT_S)
        return read(segment, number)

    with patch.object(Segment, "_read_block", slow), ThreadPoolExecutor(1) as pool:
        scan = pool.submit(west.scan, node, extent)
        assert begun.wait(LIMIT_S)
        compactor.compact(tablet)
        try:
            assert not compactor.clear(tablet), "the files go while a page is filled from them"
            assert marks_in(west) == set()
        finally:
            check_continue.set()
        assert scan.result() == expected
    assert compactor.clear(tablet)
    assert len(marks_in(west)) == 3
    node.stop()


def test_a_tablet_that_leaves_takes_its_compaction_along(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node, other = west.local(), west.local()
    west.assign(node, extent)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    west.tserver(node).flush_tablet(extent)
    names = [ref.name for ref in tablet.data.segments]
    written = tablet.data.write_merged(names, 1, 0, drop_deletes=False, check_continue=lambda: None)
    west.tserver(node).unload_tablet(extent, 1, False)
    state = flush_of(west, extent)
    with pytest.raises(NotServingError):
        compactor._install(tablet, set(names), written, 0)
    with pytest.raises(NotServingError):
        compactor.compact(tablet)
    assert flush_of(west, extent) == state
    assert files_of(west, extent) == set(names)
    west.assign(other, extent)
    assert west.scan(other, extent) == expected
    node.stop()
    other.stop()


def test_who_holds_a_tablet_no_more_calls_nothing_corrupt(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    fill(west, node, extent)
    west.tserver(node).flush_tablet(extent)
    for name in files_of(west, extent):
        west.path(name).unlink()
    node.lose_session()
    with pytest.raises(TransientError):
        west.scan(node, extent)


# ---- orders


def test_what_is_due_and_what_is_asked_for_is_compacted_by_itself(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    for number in range(4):
        west.write(node, extent, records([(b"%d" % number, b"v" * 100)]))
        west.tserver(node).flush_tablet(extent)
    _, tablet = parts_of(node, extent)
    wait_until(lambda: len(tablet.data.segments) <= 2, "the due compactions")
    west.write(node, extent, records([(b"0", b"")], delete=True))
    ticket = west.tserver(node).compact_tablet(extent, 0)
    assert ticket > 0
    wait_until(lambda: west.tserver(node).compact_tablet(extent, ticket) == 0, "the requested compaction")
    assert [ref.records for ref in tablet.data.segments] == [3]
    wait_until(lambda: named_in(west, extent) == {ref.name for ref in tablet.data.segments}, "no dead cells")
    other = move(west, node, extent)
    assert west.tserver(other).compact_tablet(extent, ticket) == 0, (
        "a finished request is finished for every holder of the tablet"
    )
    assert west.tserver(other).compact_tablet(extent, 0) > ticket
    other.stop()


class MovedClock(SystemClock):
    """The machine's clocks; ``ahead_ms``: the wall clock was set ahead, ``later_ms``: so much time has passed."""

    ahead_ms = 0
    later_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms + self.later_ms

    def boot_ns(self) -> int:
        return super().boot_ns() + self.later_ms * 1_000_000


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Ground]:
    """Leases outlive what a test's clock does."""
    with ground(tmp_path / "patient", {"coordination.session_lease_ms": 3_600_000}) as made:
        yield made


def test_cells_that_are_too_old_are_not_shown_and_go(patient: Ground) -> None:
    west = patient
    (extent,) = west.create_table("1")
    west.set_properties("1", {**QUIET, "table.age_off_ms": "60000"})
    clock = MovedClock()
    node = west.local(clock=clock)
    west.assign(node, extent)
    expected = fill(west, node, extent)
    assert west.scan(node, extent) == expected
    clock.later_ms = 70_000
    west.write(node, extent, records([(b"c", b"young")]))
    assert west.scan(node, extent) == {(b"c", b"f", b"q"): b"young"}
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    assert [ref.records for ref in tablet.data.segments] == [1]
    west.set_properties("1", QUIET)
    west.tserver(node).confirm_config(west.coordination.generation())
    assert west.scan(node, extent) == {(b"c", b"f", b"q"): b"young"}, "deleted cells stay away"
    node.stop()


def check_clock_set_ahead_and_back(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", {**QUIET, "table.age_off_ms": "60000"})
    clock = MovedClock()
    node = west.local(clock=clock)
    west.assign(node, extent)
    expected = fill(west, node, extent)
    clock.ahead_ms = 3_600_000
    assert west.scan(node, extent) == {}
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    clock.ahead_ms = 0
    assert west.scan(node, extent) == expected, "a compaction believes a wall clock that is set ahead"
    node.stop()


def test_a_clock_that_is_set_ahead_and_back_ages_nothing_off_for_good(west: Ground) -> None:
    check_clock_set_ahead_and_back(west)


def test_a_compaction_that_believed_the_wall_clock_would(west: Ground) -> None:
    with (
        fault("the-wall-clock-is-believed"),
        pytest.raises(AssertionError, match="a compaction believes a wall clock that is set ahead"),
    ):
        check_clock_set_ahead_and_back(west)


def test_a_later_write_wins_though_the_clock_went_back_and_the_tablet_moved(west: Ground) -> None:
    (extent,) = west.create_table("1")
    early, late = MovedClock(), MovedClock()
    late.ahead_ms = -7_200_000
    node = west.local(clock=early)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"first")]))
    node.stop()
    node = west.local(clock=late)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"second")]))
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"second"}
    node.stop()


@pytest.mark.parametrize("asks_anew", [False, True])
def test_who_waits_for_a_compaction_asks_for_no_second_one(west: Ground, asks_anew: bool) -> None:
    node, extent = quiet_tablet(west)
    fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    compactor.close()
    ticket = compactor.request(tablet, 0)
    compactor._thread = BackgroundThread("compactor", SystemClock(), pytest.fail)  # not begun: the test takes its steps
    merge, answers = TabletData.write_merged, []

    def asked_meanwhile(*arguments: Any, **options: Any) -> Any:
        answers.append(compactor.request(tablet, 0 if asks_anew else ticket))
        return merge(*arguments, **options)

    with patch.object(TabletData, "write_merged", asked_meanwhile):
        compactor.run_once()
    assert (answers[0] > ticket) == asks_anew
    assert compactor.request(tablet, ticket) == 0
    assert bool(compactor.request(tablet, answers[0])) == asks_anew
    compactor.run_once()
    assert compactor.merges_done == (2 if asks_anew else 1)
    assert compactor.request(tablet, answers[0]) == 0


def test_there_is_nothing_to_do_for_an_empty_tablet(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    assert west.tserver(node).compact_tablet(extent, 0) == 0
    node.stop()


def test_a_corrupt_segment_is_left_as_it_is_and_the_server_goes_on(west: Ground) -> None:
    bad, good = west.create_table("1", [b"m"])
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, bad, good)
    for extent, row in ((bad, b"a"), (good, b"x")):
        west.write(node, extent, records([(row, b"1")]))
        west.tserver(node).flush_tablet(extent)
    compactor, tablet = parts_of(node, bad)
    tablet._data = TabletData(bad, tablet.data.groups, tablet.data._volume, tablet.data.directory, tablet.data.segments)
    west.path(tablet.data.segments[0].name).write_bytes(b"")
    for extent in (bad, good):
        compactor.request(node.process.parts.tablets.registry.serving(extent), 0)
    _, healthy = parts_of(node, good)
    wait_until(lambda: healthy.flushes.compacted > 0, "the other tablet's compaction")
    assert tablet.flushes.compacted == 0
    assert len(tablet.data.segments) == 1
    assert node.died == []


# ---- streams (R18)


def test_r18_what_is_known_of_a_stream_survives_a_compaction(west: Ground) -> None:
    """Schedule 23: a put is sent again after its delete and a compaction."""
    node, extent = quiet_tablet(west)
    put = source_block(1, records([(b"a", b"v")], timestamp=5))
    delete = source_block(2, records([(b"a", b"")], timestamp=6, delete=True))
    token = west.tserver(node).open_stream(STREAM)
    west.tserver(node).replicate(replicate_request(token, STREAM, 0, 0, 2, [put, delete]))
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    assert tablet.data.segments == (), "nothing is left, not even the delete"
    other = move(west, node, extent)
    token = west.tserver(other).open_stream(STREAM)
    again = west.tserver(other).replicate(replicate_request(token, STREAM, 0, 0, 1, [put]))
    assert (again.records_applied, again.records_dropped) == (0, 1), (
        "R18: a compaction forgets what is known of a stream"
    )
    assert west.scan(other, extent) == {}
    other.stop()
