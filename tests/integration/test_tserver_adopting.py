"""A tserver takes the segments of an import: at once, once, and not when the import is over (R18, R20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.bulk.file_holds import end_holds, put_holds
from bookkeeper.errors import InvalidInputError, NotServingError, RefusedError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.model import Extent, Target
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedSegment
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb
from combiners import CLOSED
from tests.support.compactions import (
    QUIET,
    CrashError,
    DyingMetadata,
    files_of,
    marks_in,
    move,
    named_in,
    parts_of,
    quiet_tablet,
)
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.prepared_imports import HOLD, prepared_import
from tests.support.session_holds import held_files, holders_of
from tests.support.tservers import (
    Ground,
    LocalNode,
    flush_of,
    ground,
    own_blocks,
    records,
    status_of,
    wait_until,
)

pytestmark = pytest.mark.integration

IMPORTED = {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}
BATCH = records([(b"a", b"1"), (b"b", b"2")], timestamp=5)


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def _end(west: Ground, request: AdoptRequest) -> None:
    """The import holds its files no more."""
    end_holds(west.metadata, HOLD, [segment.name for segment in request.segments])


def test_imported_records_show_and_survive_the_server(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    west.write(node, extent, records([(b"a", b"before"), (b"b", b"before")], timestamp=5))
    request = prepared_import(west, extent, BATCH)
    west.tserver(node).adopt_segments(request)
    _end(west, request)
    assert west.scan(node, extent) == IMPORTED, "of equal timestamps the later wins"
    west.write(node, extent, records([(b"b", b"after")], timestamp=5))
    expected = {**IMPORTED, (b"b", b"f", b"q"): b"after"}
    assert west.scan(node, extent) == expected
    west.write(node, extent, records([(b"c", b"3")]))
    expected[b"c", b"f", b"q"] = b"3"
    other = move(west, node, extent)
    assert west.scan(other, extent) == expected
    assert len(flush_of(west, extent).segments) == 2
    compactor, tablet = parts_of(other, extent)
    compactor.compact(tablet)
    assert west.scan(other, extent) == expected
    other.stop()


def test_r18_an_import_is_applied_once_even_when_its_segments_have_changed(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    west.tserver(node).adopt_segments(request)
    west.write(node, extent, records([(b"a", b"")], timestamp=6, delete=True))
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    left = {(b"b", b"f", b"q"): b"2"}
    assert west.scan(node, extent) == left, "put and delete are both forgotten"
    west.tserver(node).adopt_segments(request)
    assert west.scan(node, extent) == left, "R18: an import is taken twice"
    other = move(west, node, extent)
    west.tserver(other).adopt_segments(request)
    assert west.scan(other, extent) == left
    other.stop()


def _dies(west: Ground, *, behind: bool) -> None:
    """A server dies at the put of an import, before it or behind it; the next one gets the order again."""
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    metadata = DyingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    request = prepared_import(west, extent, BATCH)
    metadata.die_at(0, behind, b"segment:")
    with pytest.raises(CrashError):
        node.process.parts.bulk.loader.adopt(request)
    metadata.die_at(10**6, False)
    other = move(west, node, extent)
    assert west.scan(other, extent) == (IMPORTED if behind else {})
    west.tserver(other).adopt_segments(request)
    assert west.scan(other, extent) == IMPORTED
    assert len(flush_of(west, extent).segments) == 1, "R18: an import is taken twice"
    other.stop()


def test_a_server_may_die_before_an_import_is_in_the_books(west: Ground) -> None:
    _dies(west, behind=False)


def test_r18_a_server_may_die_when_an_import_is_in_the_books_and_nobody_knows(west: Ground) -> None:
    _dies(west, behind=True)


def test_r20_an_order_that_comes_when_its_import_is_over_is_refused(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    west.tserver(node).adopt_segments(request)
    west.metadata.purge([keys.recv_cell(request.stream)])
    west.tserver(node).forget_streams([request.stream])
    with must_raise(RefusedError, "R20: an import that is over is taken", match="is over"):
        west.tserver(node).adopt_segments(request)
    assert len(named_in(west, extent)) == 1
    west.tserver(node).flush_tablet(extent)
    assert not flush_of(west, extent).high_water


def _replicated(west: Ground) -> tuple[LocalNode, Extent, Target]:
    (extent,) = west.create_table("1")
    target = west.enable("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
    return node, extent, target


def test_what_is_imported_into_a_replicated_table_is_in_the_books_when_it_shows(west: Ground) -> None:
    node, extent, target = _replicated(west)
    request = prepared_import(west, extent, BATCH, target)
    log = request.log
    assert log is not None
    assert status_of(west, extent, log.name) is None
    west.tserver(node).adopt_segments(request)
    assert west.scan(node, extent) == IMPORTED
    status = status_of(west, extent, log.name)
    assert status is not None, "R12: an import shows before it is in the books"
    assert (status.state, status.replication_needed_offset, status.created_time) == (CLOSED, 2, 9)
    (block,) = west.blocks_of(log.name)
    assert block.batch().equals(BATCH)
    assert [block_target_from_pb(block_target).target for block_target in block.header.block_targets] == [target.key]
    west.tserver(node).adopt_segments(request)
    assert status_of(west, extent, log.name) == status


def test_r24_an_import_has_its_place_between_what_was_written_before_and_later(west: Ground) -> None:
    node, extent, target = _replicated(west)
    west.write(node, extent, records([(b"a", b"before")]))
    (before,) = own_blocks(west, node)
    request = prepared_import(west, extent, BATCH, target)
    log = request.log
    assert log is not None
    west.tserver(node).adopt_segments(request)
    status = status_of(west, extent, log.name)
    assert status is not None
    (wal,) = west.logs_of(node)
    assert [(b.offset, b.file, b.until_offset) for b in status.barriers] == [(1, wal, before.last_offset)], (
        "R24: an import does not wait for what was written before it"
    )
    west.write(node, extent, records([(b"a", b"after")]))
    after = own_blocks(west, node)[-1]
    assert [(place.file, place.offset) for place in after.header.after] == [(log.name, 2)]
    found = status_of(west, extent, wal)
    assert found is not None
    assert [(b.offset, b.file) for b in found.barriers] == [(after.first_offset, log.name)]
    assert after.header.first_seq == before.header.first_seq + 1 + 2, "numbers are in the same order"


def test_r24_the_place_of_an_import_is_known_to_the_next_holder(west: Ground) -> None:
    node, extent, target = _replicated(west)
    west.write(node, extent, records([(b"a", b"before")]))
    request = prepared_import(west, extent, BATCH, target)
    west.tserver(node).adopt_segments(request)
    other = move(west, node, extent)
    west.write(other, extent, records([(b"a", b"after")]))
    (block,) = own_blocks(west, other)
    assert request.log is not None
    assert [(place.file, place.offset) for place in block.header.after] == [(request.log.name, 2)]
    assert block.header.first_seq == 4
    other.stop()


def _missing(west: Ground, request: AdoptRequest) -> ImportedSegment:
    """A file that is held and not there."""
    put_holds(west.metadata, HOLD, ["not/there.parquet"])
    return ImportedSegment("not/there.parquet", request.segments[0].entry)


def test_writes_go_on_when_an_import_was_taken_or_could_not_be(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    missing = _missing(west, request)
    with pytest.raises(InvalidInputError):
        west.tserver(node).adopt_segments(AdoptRequest(extent, request.stream, (missing,)))
    assert west.write(node, extent, records([(b"c", b"1")])) == ()
    west.tserver(node).adopt_segments(request)
    assert west.write(node, extent, records([(b"d", b"1")])) == ()
    assert west.scan(node, extent) == {**IMPORTED, (b"c", b"f", b"q"): b"1", (b"d", b"f", b"q"): b"1"}


def test_what_can_t_be_taken_changes_nothing(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    missing = _missing(west, request)
    with pytest.raises(InvalidInputError, match="is not there"):
        west.tserver(node).adopt_segments(AdoptRequest(extent, request.stream, (*request.segments, missing)))
    low = Extent("1", b"a", None)
    with pytest.raises(InvalidInputError, match="crosses the border"):
        west.tserver(node).adopt_segments(AdoptRequest(low, request.stream, request.segments))
    (elsewhere,) = west.create_table("2")
    with pytest.raises(NotServingError):
        west.tserver(node).adopt_segments(AdoptRequest(elsewhere, request.stream, request.segments))
    assert west.scan(node, extent) == {}
    assert files_of(west, extent) == {segment.name for segment in request.segments}
    west.tserver(node).adopt_segments(request)
    assert west.scan(node, extent) == IMPORTED


def test_a_tablet_names_files_where_they_were_made_and_the_collector_alone_deletes_them(west: Ground) -> None:
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    west.tserver(node).adopt_segments(request)
    _end(west, request)
    given = {segment.name for segment in request.segments}
    assert named_in(west, extent) == given
    assert not held_files(west.metadata), "a file is held when its tablet names it"
    compactor, tablet = parts_of(node, extent)
    compactor.compact(tablet)
    wait_until(lambda: compactor.clear(tablet), "no dead cells")
    assert given <= files_of(west, extent)
    assert given <= marks_in(west)


# ---- holds


def ordered_when_the_import_is_over(west: Ground) -> None:
    """The import ends, and with it its holds, before a slow tserver takes its files; another one is as slow."""
    node, extent = quiet_tablet(west)
    request = prepared_import(west, extent, BATCH)
    _end(west, request)
    put_holds(west.metadata, keys.taking_column("other", "order"), [segment.name for segment in request.segments])
    with must_raise(UnavailableError, "R17: a tablet takes a file that nothing held", match="nothing holds"):
        west.tserver(node).adopt_segments(request)
    assert named_in(west, extent) == set()
    for segment in request.segments:
        assert holders_of(west.metadata, segment.name) == {"location"}, "a refused order leaves a hold"


def test_r17_a_file_whose_holders_are_gone_is_not_taken(west: Ground) -> None:
    ordered_when_the_import_is_over(west)


@pytest.mark.parametrize("switch", ["files-need-no-holder", "takers-vouch-for-each-other"])
def test_r17_red_a_tablet_takes_a_file_that_the_collector_may_delete(west: Ground, switch: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match="R17: a tablet takes a file that nothing held"):
        ordered_when_the_import_is_over(west)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("write", ["hold", "put", "end of the hold"])
def test_r4_a_server_that_dies_keeps_its_hold_while_its_put_may_be_in_flight(
    west: Ground, write: str, behind: bool
) -> None:
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    metadata = DyingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    request = prepared_import(west, extent, BATCH)
    metadata.die_at(["hold", "put", "end of the hold"].index(write), behind)
    with pytest.raises(CrashError):
        node.process.parts.bulk.loader.adopt(request)
    metadata.die_at(10**6, False)
    (name,) = (segment.name for segment in request.segments)
    is_named = name in named_in(west, extent)
    assert is_named is (write != "hold" and (behind or write != "put"))
    holds = (write != "hold" or behind) and (write != "end of the hold" or not behind)
    assert holders_of(west.metadata, name) == ({"fate", "location"} if holds else {"fate"})
