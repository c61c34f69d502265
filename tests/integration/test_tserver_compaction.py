"""Compactions of a running tserver: cut anywhere, beside writes and scans, across holders (R1, R16, R17, R18)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import BookkeeperError, CorruptionError, NotServingError, TransientError
from bookkeeper.master.strays import Holding, is_left
from bookkeeper.metadata import keys
from bookkeeper.model import Extent, StreamKey
from bookkeeper.storage.tablet import TabletData
from bookkeeper.storage.tablet.entries import SortedBlock
from bookkeeper.storage.tablet.segment_reader import Segment
from bookkeeper.storage.wal import path_of, recover, uri_of
from bookkeeper.tserver.compactor import Compactor
from bookkeeper.tserver.tablet import ServedTablet
from tests.support.failing_metadata import FailingMetadata, touching
from tests.support.tservers import (
    LIMIT_S,
    Cells,
    Ground,
    LocalNode,
    flush_of,
    ground,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "file:///their/1.wal", "7", "1", 1)
QUIET = {"table.compaction.segments_max": "1000", "table.compaction.ratio": "1000"}
"""Nothing is compacted that nobody asked for."""


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


class CrashError(BaseException):
    """The process ends here."""


class DyingMetadata(FailingMetadata):
    """Lets one thread die at one of its writes, before it or behind it."""

    def die_at(self, write: int, behind: bool) -> None:
        """The calling thread, counting from now."""
        self._thread, self._left, self._behind = threading.get_ident(), write, behind

    def _around(self, name: str, columns: Sequence[bytes], act: Callable[[], None]) -> None:
        if getattr(self, "_thread", None) != threading.get_ident():
            super()._around(name, columns, act)
            return
        self._left -= 1
        if self._left < 0 and not self._behind:
            raise CrashError
        act()
        if self._left < 0:
            raise CrashError


def parts_of(node: LocalNode, extent: Extent) -> tuple[Compactor, ServedTablet]:
    return node.process.parts.compactor, node.process.parts.registry.serving(extent)


def fill(west: Ground, node: LocalNode, extent: Extent) -> Cells:
    """Three segments with a put that is deleted, one that is replaced, one that stays; returns what is shown."""
    west.write(node, extent, records([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]))
    west.tserver(node).flush_tablet(extent)
    west.write(node, extent, records([(b"a", b"")], delete=True))
    west.write(node, extent, records([(b"b", b"2")]))
    west.tserver(node).flush_tablet(extent)
    west.write(node, extent, records([(b"d", b"1")]))
    return {(row, b"f", b"q"): value for row, value in ((b"b", b"2"), (b"c", b"1"), (b"d", b"1"))}


def named_in(west: Ground, extent: Extent) -> set[str]:
    """Segments that the tablet's row has a cell of."""
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("segment",))
    return set() if row is None else {keys.parse_file(uri) for uri in row.family("segment")}


def marks_in(west: Ground) -> set[str]:
    start, stop = keys.section(keys.DEL_PREFIX)
    return {keys.parse_del_row(row.key) for row in west.metadata.scan(start, stop, ("del",))}


def files_of(west: Ground, extent: Extent) -> set[str]:
    return {uri_of(path) for path in (west.settings.tables_dir / extent.table_id).rglob("*") if path.is_file()}


def move(west: Ground, old: LocalNode, extent: Extent) -> LocalNode:
    """Another node has the tablet, after the end of the old one's session."""
    old.lose_session()
    for uri in west.logs_of(old):
        recover(uri)
    new = west.local()
    west.assign(new, extent)
    return new


# ---- steps and cuts


def test_a_compaction_leaves_one_segment_and_what_is_shown(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    before = flush_of(west, extent)
    compactor.compact(tablet)
    state = flush_of(west, extent)
    assert state.flush_id > before.flush_id
    assert [(ref.records, ref.flush_id) for ref in tablet.data.segments] == [(3, state.flush_id)]
    assert state.segments == tuple(ref.uri for ref in tablet.data.segments)
    assert west.scan(node, extent) == expected
    assert compactor.clear(tablet)
    assert named_in(west, extent) == set(state.segments)
    assert marks_in(west) == files_of(west, extent) - set(state.segments)
    node.stop()


def test_a_compaction_may_be_cut_between_any_two_steps(west: Ground) -> None:
    for number in itertools.count():
        write, behind = number // 2, bool(number % 2)
        if not cut_compaction(west, f"t{number}", write, behind):
            assert write >= 5, "a flush, its log, the state, the marks, the cells"
            return


def cut_compaction(west: Ground, table_id: str, write: int, behind: bool) -> bool:
    """Tells whether it was cut."""
    (extent,) = west.create_table(table_id)
    west.set_properties(table_id, QUIET)
    metadata = DyingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    metadata.die_at(write, behind)
    try:
        compactor.compact(tablet)
        compactor.clear(tablet)
        is_cut = False
    except CrashError:
        is_cut = True
    try:
        other = move(west, node, extent)
    except CorruptionError as error:
        pytest.fail(f"the tablet can't be served any more: {error}")
    assert west.scan(other, extent) == expected
    west.write(other, extent, records([(b"e", b"1")]))
    west.tserver(other).flush_tablet(extent)
    compactor, tablet = parts_of(other, extent)
    assert compactor.clear(tablet)
    assert west.scan(other, extent) == {**expected, (b"e", b"f", b"q"): b"1"}
    state = flush_of(west, extent)
    assert named_in(west, extent) == set(state.segments) <= files_of(west, extent)
    holding = Holding(keys.first_flush_id(tablet.serial), state.flush_id)
    left = files_of(west, extent) - set(state.segments) - marks_in(west)
    assert all(is_left(path_of(uri).name, holding) for uri in left), "a file that nobody will delete"
    other.stop()
    return is_cut


def test_a_late_flush_of_an_earlier_holder_leaves_nothing(west: Ground) -> None:
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    old = west.local(metadata)
    west.assign(old, extent)
    west.write(old, extent, records([(b"a", b"1")]))
    with ThreadPoolExecutor(1) as pool, metadata.holding(touching(b"tablet:flush")) as reached:
        late = pool.submit(west.tserver(old).flush_tablet, extent)
        assert reached.wait(LIMIT_S)
        new = move(west, old, extent)
        west.tserver(new).flush_tablet(extent)
    with pytest.raises(BookkeeperError):
        late.result()
    state = flush_of(west, extent)
    assert len(state.segments) == 1
    assert len(named_in(west, extent)) == 2
    compactor, tablet = parts_of(new, extent)
    assert compactor.clear(tablet)
    assert named_in(west, extent) == set(state.segments)
    assert marks_in(west) == files_of(west, extent) - set(state.segments)
    assert west.scan(new, extent) == {(b"a", b"f", b"q"): b"1"}
    new.stop()


def test_a_compaction_that_arrives_after_the_next_holder_flushed_changes_nothing(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    metadata = FailingMetadata(west.metadata)
    old = west.local(metadata)
    west.assign(old, extent)
    expected = fill(west, old, extent)
    west.tserver(old).flush_tablet(extent)
    compactor, tablet = parts_of(old, extent)
    with ThreadPoolExecutor(1) as pool, metadata.holding(touching(b"tablet:flush")) as reached:
        late = pool.submit(compactor.compact, tablet)
        assert reached.wait(LIMIT_S)
        new = move(west, old, extent)
        west.write(new, extent, records([(b"c", b"")], delete=True))
        west.tserver(new).flush_tablet(extent)
        state = flush_of(west, extent)
    late.exception()
    assert flush_of(west, extent) == state
    compactor, tablet = parts_of(new, extent)
    compactor.compact(tablet)
    assert compactor.clear(tablet)
    del expected[b"c", b"f", b"q"]
    last = move(west, new, extent)
    assert west.scan(last, extent) == expected
    last.stop()


# ---- beside others


def test_writes_and_flushes_do_not_wait_for_a_merge(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    begun, go_on = threading.Event(), threading.Event()
    check = Compactor._check

    def slow(self: Compactor, checked: ServedTablet) -> None:
        begun.set()
        assert go_on.wait(LIMIT_S)
        check(self, checked)

    with patch.object(Compactor, "_check", slow), ThreadPoolExecutor(1) as pool:
        merge = pool.submit(compactor.compact, tablet)
        assert begun.wait(LIMIT_S)
        west.write(node, extent, records([(b"x", b"1")]))
        west.tserver(node).flush_tablet(extent)
        west.write(node, extent, records([(b"y", b"1")]))
        go_on.set()
        merge.result()
    assert len(tablet.data.segments) == 2
    shown = {**expected, (b"x", b"f", b"q"): b"1", (b"y", b"f", b"q"): b"1"}
    assert west.scan(node, extent) == shown
    other = move(west, node, extent)
    assert west.scan(other, extent) == shown
    other.stop()


def test_a_page_that_is_being_filled_keeps_its_files(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
    expected = fill(west, node, extent)
    west.tserver(node).flush_tablet(extent)
    compactor, tablet = parts_of(node, extent)
    begun, go_on = threading.Event(), threading.Event()
    read = Segment._read_block
    main = threading.get_ident()

    def slow(segment: Segment, number: int) -> SortedBlock:
        if threading.get_ident() != main:
            begun.set()
            assert go_on.wait(LIMIT_S)
        return read(segment, number)

    with patch.object(Segment, "_read_block", slow), ThreadPoolExecutor(1) as pool:
        scan = pool.submit(west.scan, node, extent)
        assert begun.wait(LIMIT_S)
        compactor.compact(tablet)
        try:
            assert not compactor.clear(tablet), "the files go while a page is filled from them"
            assert marks_in(west) == set()
        finally:
            go_on.set()
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
    uris = [ref.uri for ref in tablet.data.segments]
    written = tablet.data.write_merged(uris, 1, 0, forget=False, go_on=lambda: None)
    west.tserver(node).unload_tablet(extent, 1, False)
    state = flush_of(west, extent)
    with pytest.raises(NotServingError):
        compactor._install(tablet, set(uris), written, 0)
    with pytest.raises(NotServingError):
        compactor.compact(tablet)
    assert flush_of(west, extent) == state
    assert files_of(west, extent) == set(uris)
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
    for uri in files_of(west, extent):
        path_of(uri).unlink()
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
    wait_until(lambda: len(tablet.data.segments) <= 2, "what is due")
    west.write(node, extent, records([(b"0", b"")], delete=True))
    ticket = west.tserver(node).compact_tablet(extent, 0)
    assert ticket > 0
    wait_until(lambda: west.tserver(node).compact_tablet(extent, ticket) == 0, "what was asked for")
    assert [ref.records for ref in tablet.data.segments] == [3]
    wait_until(lambda: named_in(west, extent) == {ref.uri for ref in tablet.data.segments}, "no dead cells")
    other = move(west, node, extent)
    assert west.tserver(other).compact_tablet(extent, ticket) == 0, "done is done, whoever holds the tablet"
    assert west.tserver(other).compact_tablet(extent, 0) > ticket
    other.stop()


class MovedClock(SystemClock):
    """The machine's, but for the wall clock."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_cells_that_are_too_old_are_not_shown_and_go(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", {**QUIET, "table.age_off_ms": "60000"})
    clock = MovedClock()
    node = west.local(clock=clock)
    west.assign(node, extent)
    expected = fill(west, node, extent)
    assert west.scan(node, extent) == expected
    clock.ahead_ms = 70_000
    west.write(node, extent, records([(b"c", b"young")]))
    assert west.scan(node, extent) == {(b"c", b"f", b"q"): b"young"}
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    assert [ref.records for ref in tablet.data.segments] == [1]
    west.set_properties("1", QUIET)
    west.tserver(node).confirm_config(west.coordination.generation())
    assert west.scan(node, extent) == {(b"c", b"f", b"q"): b"young"}, "what is gone stays away"
    node.stop()


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
    tablet.data = TabletData(bad, tablet.data.groups, tablet.data.directory, tablet.data.segments)
    path_of(tablet.data.segments[0].uri).write_bytes(b"")
    for extent in (bad, good):
        compactor.ask(node.process.parts.registry.serving(extent), 0)
    _, healthy = parts_of(node, good)
    wait_until(lambda: healthy.compacted > 0, "the other tablet's compaction")
    assert tablet.compacted == 0
    assert len(tablet.data.segments) == 1
    assert node.died == []


# ---- streams (R18)


def test_r18_what_is_known_of_a_stream_survives_a_compaction(west: Ground) -> None:
    """Schedule 23: a put is sent again after its delete and a compaction."""
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
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
    assert (again.records_applied, again.records_dropped) == (0, 1)
    assert west.scan(other, extent) == {}
    other.stop()
