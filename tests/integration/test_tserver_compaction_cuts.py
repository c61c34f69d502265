"""Compactions that are cut, and holders that are late (R1, R16, R17 and L8)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError, CorruptionError
from bookkeeper.master.gc.orphan_files import Holding, is_orphan_segment
from bookkeeper.metadata import keys
from tests.support.compactions import (
    QUIET,
    CrashError,
    DyingMetadata,
    files_of,
    fill,
    marks_in,
    move,
    named_in,
    parts_of,
)
from tests.support.failing_metadata import FailingMetadata, touching
from tests.support.tservers import LIMIT_S, Ground, flush_of, ground, records
from tests.support.volumes import path_of

pytestmark = pytest.mark.integration


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


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
        raise AssertionError(f"the tablet can't be served any more: {error}") from error
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
    assert all(is_orphan_segment(path_of(name).name, holding) for name in left), "a file that nobody will delete"
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
