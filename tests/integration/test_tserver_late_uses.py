"""A first use of a log that reaches the books late, from a tserver that died in the middle of its put. No record of
the log that is in segments is replayed, after any moves, splits and merges of the tablet (R4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.master.splits import split_rules
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Extent
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import Seal, read_seal
from bookkeeper.tserver.maintenance import late_uses
from combiners import ReplicationStatus
from tests.support.faults import fault
from tests.support.local_pair import Books
from tests.support.tservers import Ground, ground, logs_in_row, records

pytestmark = pytest.mark.integration

WHOLE = Extent("1", None, None)
LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")
ROW = b"a"


@pytest.fixture
def west(tmp_path: Path, books: Books) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}, books("west")) as made:
        yield made


def write_and_let_go(west: Ground, extent: Extent, value: bytes, row: bytes = ROW) -> str:
    """A tserver takes a tablet, writes a record that only its sequence number tells from others, and dies when it has
    let the tablet go. Returns its log.
    """
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(row, value)], timestamp=5))
    west.tserver(node).unload_tablet(extent, 1, False)
    assert logs_in_row(west, extent) == set()
    node.lose_session()
    (log,) = west.recover_logs(node)
    return log


def announce(west: Ground, extent: Extent, log: str, offset: int) -> None:
    """The first use of a log for a record that was never appended."""
    row = keys.tablet_row(extent.table_id, extent.end_row)
    west.metadata.put([RowPut(row, {keys.log_column(log): values.LOG})], keys.first_use_rank(offset))
    assert log in logs_in_row(west, extent)


def passed_on(west: Ground) -> None:
    """The tablet has had another holder since."""
    log = write_and_let_go(west, WHOLE, b"old")
    write_and_let_go(west, WHOLE, b"new")
    announce(west, WHOLE, log, 2)


def split_and_merged(west: Ground) -> None:
    """The tablet was split, and its parts were merged."""
    log = write_and_let_go(west, WHOLE, b"old")
    row = west.metadata.get(keys.tablet_row("1", None))
    assert row is not None
    _change(west, split_rules.split_change(split_rules.facts_of(row), [b"m"], split_rules.next_serial([row]), "s"))
    write_and_let_go(west, LEFT, b"new")
    write_and_let_go(west, RIGHT, b"new", b"z")
    parts = [row for row in west.metadata.scan(*keys.table_section("1")) if keys.is_tablet(row)]
    _change(
        west, split_rules.merge_change([split_rules.facts_of(row) for row in parts], split_rules.next_serial(parts))
    )
    announce(west, WHOLE, log, 2)


def come_back(west: Ground) -> None:
    """The tablet was merged into a later one, and is there again since another split."""
    log = write_and_let_go(west, LEFT, b"old")
    parts = [row for row in west.metadata.scan(*keys.table_section("1")) if keys.is_tablet(row)]
    _change(
        west, split_rules.merge_change([split_rules.facts_of(row) for row in parts], split_rules.next_serial(parts))
    )
    write_and_let_go(west, WHOLE, b"new")
    row = west.metadata.get(keys.tablet_row("1", None))
    assert row is not None
    _change(west, split_rules.split_change(split_rules.facts_of(row), [b"m"], split_rules.next_serial([row]), "s"))
    announce(west, LEFT, log, 2)


def _change(west: Ground, made: split_rules.Change) -> None:
    for write in split_rules.in_order(made):
        if write.puts:
            west.metadata.put(write.puts, write.rank)
        if write.deletes:
            west.metadata.delete(write.deletes, write.rank)


WAYS: dict[Callable[[Ground], None], Extent] = {passed_on: WHOLE, split_and_merged: WHOLE, come_back: LEFT}


@pytest.mark.parametrize("way", WAYS)
def test_a_late_use_of_a_log_brings_nothing_back(west: Ground, way: Callable[[Ground], None]) -> None:
    extent = WAYS[way]
    west.create_table("1", [b"m"] if way is come_back else [])
    way(west)
    node = west.local()
    west.assign(node, extent)
    assert west.scan(node, extent)[ROW, b"f", b"q"] == b"new", "a late use of a log brings an old value back"
    assert logs_in_row(west, extent) == set(), "it held nothing that the tablet lacks"


@pytest.mark.parametrize("way", WAYS)
def test_without_the_rule_an_old_value_comes_back(west: Ground, way: Callable[[Ground], None]) -> None:
    with (
        fault("late-uses-are-not-expected"),
        pytest.raises(AssertionError, match="a late use of a log brings an old value back"),
    ):
        test_a_late_use_of_a_log_brings_nothing_back(west, way)


# ---- between the load and the mark


def announce_for_peers(west: Ground, extent: Extent, log: str, offset: int) -> None:
    """The first use of a log, in a table with a target."""
    row = keys.tablet_row(extent.table_id, extent.end_row)
    status = values.encode_status(ReplicationStatus(created_time=1))
    cells = {keys.log_column(log): values.LOG, keys.repl_column(log): status}
    west.metadata.put([RowPut(row, cells)], keys.first_use_rank(offset))


def test_a_use_that_comes_while_another_one_serves_the_tablet_ends_by_itself(west: Ground) -> None:
    west.create_table("1")
    west.enable("1")
    log = write_and_let_go(west, WHOLE, b"old")
    node = west.local()
    west.assign(node, WHOLE)
    west.write(node, WHOLE, records([(ROW, b"new")], timestamp=5))
    (own,) = logs_in_row(west, WHOLE)
    announce_for_peers(west, WHOLE, log, 2)
    assert logs_in_row(west, WHOLE) == {own, log}
    node.process.parts.tablets.late_uses.run_once()
    assert logs_in_row(west, WHOLE) == {own}, "a late use of a log stays until its tablet is loaded again"
    assert west.scan(node, WHOLE)[ROW, b"f", b"q"] == b"new"


def _needed_logs_stay(west: Ground) -> None:
    """A holder has replayed a log into memory alone."""
    west.create_table("1")
    first = west.local()
    west.assign(first, WHOLE)
    west.write(first, WHOLE, records([(ROW, b"old")], timestamp=5))
    first.lose_session()
    (log,) = west.recover_logs(first)
    node = west.local()
    west.assign(node, WHOLE)
    node.process.parts.tablets.late_uses.run_once()
    assert logs_in_row(west, WHOLE) == {log}, "R4: a log that only memory has goes"
    west.tserver(node).flush_tablet(WHOLE)
    assert logs_in_row(west, WHOLE) == set()


def test_r4_a_log_that_a_holder_needs_is_no_late_use(west: Ground) -> None:
    _needed_logs_stay(west)


def test_r4_without_the_needed_logs_a_log_that_only_memory_has_goes(west: Ground) -> None:
    with (
        fault("every-use-of-another-session-is-late"),
        pytest.raises(AssertionError, match="R4: a log that only memory has goes"),
    ):
        _needed_logs_stay(west)


def _sealed_meanwhile(west: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A use of the holder's own log arrives late, and the tablet uses that log again. While the holder looks, a record
    is applied, and the log ends.
    """
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    west.write(node, WHOLE, records([(ROW, b"old")], timestamp=5))
    (log,) = logs_in_row(west, WHOLE)
    west.tserver(node).flush_tablet(WHOLE)
    announce(west, WHOLE, log, 2)

    def ends_meanwhile(volume: Volume, name: str) -> Seal | None:
        west.write(node, WHOLE, records([(ROW, b"new")], timestamp=6))
        node.process.parts.writing.committer.roll()
        return read_seal(volume, name)

    with monkeypatch.context() as patch:
        patch.setattr(late_uses, "read_seal", ends_meanwhile)
        node.process.parts.tablets.late_uses.run_once()
    assert log in logs_in_row(west, WHOLE), "R4: a log that only memory has goes"
    west.tserver(node).flush_tablet(WHOLE)
    assert log not in logs_in_row(west, WHOLE)


def test_r4_a_log_that_ends_while_it_is_looked_at_is_no_late_use(west: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    _sealed_meanwhile(west, monkeypatch)


def test_r4_without_the_order_of_looks_a_log_that_only_memory_has_goes(
    west: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        fault("logs-in-use-may-be-late"),
        pytest.raises(AssertionError, match="R4: a log that only memory has goes"),
    ):
        _sealed_meanwhile(west, monkeypatch)


def test_a_use_of_its_own_sealed_log_that_was_repeated_ends_by_itself(west: Ground) -> None:
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    west.write(node, WHOLE, records([(ROW, b"new")], timestamp=5))
    (log,) = logs_in_row(west, WHOLE)
    west.tserver(node).flush_tablet(WHOLE)
    node.process.parts.writing.committer.roll()
    announce(west, WHOLE, log, 2)
    node.process.parts.tablets.late_uses.run_once()
    assert logs_in_row(west, WHOLE) == set(), "a late use of a log stays until its tablet is loaded again"
    assert west.scan(node, WHOLE)[ROW, b"f", b"q"] == b"new"
