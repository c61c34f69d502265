"""A tserver whose metadata table fails: nothing is acknowledged too early, no rank gets two values."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.errors import (
    BookkeeperError,
    NoSpaceError,
    TransientError,
)
from bookkeeper.metadata import keys
from bookkeeper.storage.wal.reading.wal_recovery import recover
from combiners import CLOSED
from tests.support.failing_metadata import FailingMetadata, touching
from tests.support.faults import fault
from tests.support.tservers import (
    Ground,
    flush_of,
    ground,
    logs_in_row,
    needed_of,
    own_blocks,
    records,
    state_of,
    wait_until,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


def check_refused_by_full_books(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    metadata = FailingMetadata(west.metadata)
    metadata.error = NoSpaceError
    node = west.local(metadata)
    west.assign(node, extent)
    with metadata.failing(touching(b"log:")), pytest.raises(NoSpaceError):
        west.write(node, extent, records([(b"0", b"")]))
    assert own_blocks(west, node) == []
    assert west.write(node, extent, records([(b"1", b"")])) == ()
    assert len(west.scan(node, extent)) == 1
    (wal,) = west.logs_of(node)
    assert logs_in_row(west, extent) == {wal}, "R12: a log that is used has no cell in the books"
    wait_until(lambda: needed_of(west, extent, wal) == 1, "needed at the record")
    node.stop()


def test_a_group_is_refused_when_the_disk_of_the_books_is_full(west: Ground) -> None:
    check_refused_by_full_books(west)


def test_r12_a_refused_first_use_that_stayed_marked_would_never_be_written(west: Ground) -> None:
    with (
        fault("refused-uses-stay-marked"),
        pytest.raises(AssertionError, match="a log that is used has no cell in the books"),
    ):
        check_refused_by_full_books(west)


def test_r12_nothing_is_acknowledged_while_the_first_use_is_not_in_the_books(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    with ThreadPoolExecutor(4) as pool:
        with metadata.failing(touching(b"log:")):
            writes = [pool.submit(west.write, node, extent, records([(b"%d" % n, b"")])) for n in range(4)]
            wait_until(lambda: metadata.failures >= 3, "a few failures")
            assert not any(write.done() for write in writes)
            assert west.scan(node, extent) == {}
            assert own_blocks(west, node) == []
        assert [write.result() for write in writes] == [()] * 4
    (wal,) = west.logs_of(node)
    assert logs_in_row(west, extent) == {wal}
    wait_until(lambda: needed_of(west, extent, wal) == 4, "needed at the last record")
    assert len(west.scan(node, extent)) == 4
    node.stop()


def test_needed_offsets_and_closed_survive_lost_answers(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"")]))
    (wal,) = west.logs_of(node)
    wait_until(lambda: needed_of(west, extent, wal) == 1, "the first update")
    with metadata.failing(touching(b"repl:"), applied=True):
        west.write(node, extent, records([(b"b", b"")]))
        wait_until(lambda: metadata.failures >= 2, "a few lost answers")
        node.process.parts.writing.committer.roll()
    wait_until(lambda: state_of(west, extent, wal) == CLOSED, "CLOSED")
    assert needed_of(west, extent, wal) == 2
    node.stop()


def test_a_flush_whose_answers_are_lost_is_completed_under_its_own_rank(west: Ground) -> None:
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    with metadata.failing(touching(b"tablet:flush"), applied=True), pytest.raises(TransientError):
        west.tserver(node).flush_tablet(extent)
    flush_id = flush_of(west, extent).flush_id
    west.write(node, extent, records([(b"b", b"2")]))
    with metadata.failing(touching(b"log:", "delete")), pytest.raises(TransientError):
        west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).flush_id == flush_id
    west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).flush_id == flush_id + 1
    row = west.metadata.get(keys.tablet_row("1", None), ("segment", "log"))
    assert row is not None
    assert len(row.family("segment")) == 2
    assert row.family("log") == {}
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}
    node.stop()


def test_r1_a_flush_that_arrives_after_the_next_holder_flushed_changes_nothing(west: Ground) -> None:
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    old = west.local(metadata)
    west.assign(old, extent)
    west.write(old, extent, records([(b"a", b"1")]))
    with ThreadPoolExecutor(1) as pool, metadata.holding(touching(b"tablet:flush")) as reached:
        late = pool.submit(west.tserver(old).flush_tablet, extent)
        assert reached.wait(30)
        old.lose_session()
        for name in west.logs_of(old):
            recover(west.volume, name)
        new = west.local()
        west.assign(new, extent)
        west.write(new, extent, records([(b"b", b"2")]))
        west.tserver(new).flush_tablet(extent)
        state = flush_of(west, extent)
    with pytest.raises(BookkeeperError):
        late.result()
    assert flush_of(west, extent) == state, "R1: a late flush changes what the next holder wrote"
    new.stop()
    last = west.local()
    west.assign(last, extent)
    assert west.scan(last, extent) == {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}
    assert len(last.process.parts.tablets.registry.serving(extent).data.segments) == 1
    last.stop()
