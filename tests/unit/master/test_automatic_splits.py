"""The master splits large tablets by itself: what it reads, whom it asks, which operation it begins, when it waits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.config_changes import set_table_properties
from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.master import automatic_splits
from bookkeeper.master.automatic_splits import RETRY_BASE_MS, WHOLE_REST_MS, AutomaticSplits
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.operations.bulk_import import import_args
from bookkeeper.master.operations.split_merge import MERGE_KIND, SPLIT_KIND, merge_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, RowRange
from bookkeeper.rpc.contract.messages import ImportRequest, SplitPoint
from tests.support.border_world import ends_of, held_row, hold
from tests.support.faults import fault
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import ScriptedTServer, scripted

GIB = 1 << 30
WAL = ("file:///wal/gone-1/000001.wal", 1)
WHOLE = Extent("2", None, None)


@pytest.fixture
def tserver(world: World) -> Iterator[ScriptedTServer]:
    """The only tserver."""
    with scripted(world) as found:
        yield found


@pytest.fixture
def master(world: World) -> Master:
    """The leader."""
    return world.master()


@dataclass(frozen=True, slots=True)
class RecordingTable:
    """The books; notes the rows that are read one by one."""

    table: MetadataTable
    read: list[bytes]

    def get(self, row: bytes, families: Sequence[str]) -> Row | None:
        self.read.append(row)
        return self.table.get(row, families)


def splits_of(master: Master) -> AutomaticSplits:
    world = master.world
    return AutomaticSplits(master.books.stores, master.tservers, master.fate, world.clock, random.Random(1))


def hold_bytes(world: World, row: bytes, sizes: list[int], serial: int = 1) -> None:
    """The tablet has segments of these sizes."""
    segments = {
        f"file:///s/{serial}/{number}": SegmentEntry("default", 9, size, b"b", b"y", 1, 9, keys.first_flush_id(serial))
        for number, size in enumerate(sizes)
    }
    hold(world.table, held_row(row, segments, 1, WAL, serial), serial)


def large_table(world: World, tserver: ScriptedTServer, size: int = 2 * GIB, middle: bytes | None = b"m") -> None:
    """Table 2 has one tablet with one segment."""
    (row,) = world.create_table("2")
    world.locate(row, tserver.session)
    hold_bytes(world, row, [size])
    tserver.points[WHOLE] = SplitPoint(size, 0, middle, "" if middle else "row b'giant' has 99 of its 100 bytes")


def tablets(world: World) -> list[TabletView]:
    rows = world.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("tablet", "location"))
    return [tablet_view(row) for row in rows if keys.is_tablet(row)]


def look(splits: AutomaticSplits, master: Master) -> list[str]:
    """A look; returns the operations that run afterwards."""
    splits.run_once(tablets(master.world))
    return [running.op.type for running in master.fate.pending() if not running.ended]


def ends(world: World) -> list[bytes | None]:
    return ends_of(list(world.table.scan(*keys.table_section("2"), ("tablet",))))


def finish(master: Master, tserver: ScriptedTServer) -> None:
    """Run all operations; the tserver loads the tablets that they made."""
    while any(not running.ended for running in master.fate.pending()):
        for view in tablets(master.world):
            if view.session is None:
                master.world.locate(view.row, tserver.session, master.reign.next_rank())
        if not master.fate.step_once():
            master.world.clock.jump(1_000)


def test_a_tablet_beyond_the_limit_is_split_at_the_row_that_its_tserver_names(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver)
    splits = splits_of(master)
    assert look(splits, master) == [SPLIT_KIND]
    (running,) = master.fate.pending()
    assert running.op.args == {"name": "table-2", "splits": ["bQ=="]}
    assert look(splits, master) == [SPLIT_KIND], "one split of a table at a time"
    finish(master, tserver)
    assert ends(world) == [b"m", None]
    assert splits.begun == 1
    assert tserver.orders.count("measure None") == 1


def test_a_tablet_with_several_replicas_is_split_too(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver)
    set_table_properties(world.coordination, "2", {"table.replicas": "3"})
    assert look(splits_of(master), master) == [SPLIT_KIND]


@pytest.mark.parametrize("size", [0, GIB - 1, GIB])
def test_a_tablet_within_the_limit_is_not_even_measured(
    world: World, master: Master, tserver: ScriptedTServer, size: int
) -> None:
    large_table(world, tserver, size)
    assert look(splits_of(master), master) == []
    assert tserver.orders == []


@pytest.mark.parametrize(("limit", "begun"), [("0", []), (f"{4 * GIB}", []), (f"{GIB}", [SPLIT_KIND])])
def test_the_limit_is_a_property_of_the_table(
    world: World, master: Master, tserver: ScriptedTServer, limit: str, begun: list[str]
) -> None:
    large_table(world, tserver)
    set_table_properties(world.coordination, "2", {"table.split.bytes": limit})
    assert look(splits_of(master), master) == begun


def an_import_holds_the_table(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver)
    splits = splits_of(master)
    master.fate.submit("import_directory", import_args(ImportRequest("0" * 32, "table-2", "/nowhere", None)))
    assert look(splits, master) == ["import_directory"], "a split begins while an import has the table"


def test_no_split_begins_while_an_import_has_the_table(world: World, master: Master, tserver: ScriptedTServer) -> None:
    an_import_holds_the_table(world, master, tserver)


def test_without_the_rule_a_split_begins_during_an_import(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    red = pytest.raises(AssertionError, match="a split begins while an import has the table")
    with fault("operations-hold-no-table"), red:
        an_import_holds_the_table(world, master, tserver)


@pytest.mark.parametrize("kind", ["delete_table", "merge_tablets", SPLIT_KIND])
def test_no_split_begins_while_another_operation_changes_the_table(
    world: World, master: Master, tserver: ScriptedTServer, kind: str
) -> None:
    large_table(world, tserver)
    args: Args = {"name": "table-2", "splits": [], "prev_row": None, "end_row": None}
    master.fate.submit(kind, args)
    assert look(splits_of(master), master) == [kind]


def test_a_tablet_of_one_row_is_asked_once_until_its_segments_change(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver, middle=None)
    splits, (row,) = splits_of(master), [view.row for view in tablets(world) if view.extent == WHOLE]
    for _ in range(5):
        assert look(splits, master) == []
        world.clock.jump(2 * WHOLE_REST_MS)
    assert tserver.orders == ["measure None"], "a tablet that can't be split is asked again and again"
    assert "row b'giant' has 99 of its 100 bytes" in splits.problems[row]
    assert f"set table.split.bytes above {2 * GIB}" in splits.problems[row]
    hold_bytes(world, row, [3 * GIB], serial=2)
    tserver.points[WHOLE] = SplitPoint(3 * GIB, 0, b"p", "")
    assert look(splits, master) == [SPLIT_KIND]


def test_a_tablet_with_other_borders_does_not_rest_for_the_one_that_had_its_row(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver, middle=None)
    splits = splits_of(master)
    assert look(splits, master) == []
    world.clock.jump(2 * WHOLE_REST_MS)
    part = Extent("2", None, b"c")
    (row,) = [view for view in tablets(world) if view.extent == WHOLE]
    tserver.points[part] = SplitPoint(2 * GIB, 0, b"m", "")
    splits.run_once([replace(row, extent=part)])
    assert [running.op.type for running in master.fate.pending()] == [SPLIT_KIND], "it rests for another tablet"


def test_a_merged_tablet_beyond_the_limit_is_split_again(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver)
    splits = splits_of(master)
    assert look(splits, master) == [SPLIT_KIND]
    finish(master, tserver)
    tserver.points[Extent("2", None, b"m")] = SplitPoint(GIB + 1, GIB + 1, None, "row b'giant' has 9 of its 9 bytes")
    tserver.points[Extent("2", b"m", None)] = tserver.points[Extent("2", None, b"m")]
    assert look(splits, master) == []
    master.fate.submit(MERGE_KIND, merge_args("table-2", RowRange(None, None)))
    finish(master, tserver)
    assert ends(world) == [None]
    tserver.orders.clear()
    assert look(splits, master) == [SPLIT_KIND], "the merged tablet rests for its last part"
    finish(master, tserver)
    assert ends(world) == [b"m", None]


def test_a_higher_limit_ends_the_problem(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver, middle=None)
    splits = splits_of(master)
    look(splits, master)
    assert splits.problems
    set_table_properties(world.coordination, "2", {"table.split.bytes": f"{4 * GIB}"})
    look(splits, master)
    assert not splits.problems


@pytest.mark.parametrize(
    "trouble",
    [UnavailableError("the disk does not answer"), CorruptionError("segment s is corrupt; restore it")],
    ids=["transient", "permanent"],
)
def test_a_failure_is_shown_and_tried_again_later(
    world: World, master: Master, tserver: ScriptedTServer, trouble: UnavailableError | CorruptionError
) -> None:
    large_table(world, tserver)
    splits, asked = splits_of(master), list[str]()
    tserver.look, tserver.trouble["split_point"] = asked.append, trouble
    for _ in range(3):
        assert look(splits, master) == []
    assert asked.count("split_point") == 1
    (problem,) = splits.problems.values()
    assert trouble.message in problem
    del tserver.trouble["split_point"]
    world.clock.jump(RETRY_BASE_MS)
    assert look(splits, master) == [SPLIT_KIND]
    finish(master, tserver)
    look(splits, master)
    assert not splits.problems


def test_an_operation_that_fails_makes_the_tablet_rest(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver, middle=b"m")
    splits = splits_of(master)
    tserver.points[WHOLE] = SplitPoint(2 * GIB, 0, b"m", "")
    assert look(splits, master) == [SPLIT_KIND]
    tserver.trouble["unload_tablet"] = CorruptionError("its log is damaged")
    finish(master, tserver)
    assert look(splits, master) == []
    (problem,) = splits.problems.values()
    assert "its log is damaged" in problem
    assert "the next try follows" in problem


def test_a_tablet_that_moves_is_asked_at_its_next_place(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver)
    splits, point = splits_of(master), tserver.points.pop(WHOLE)
    assert look(splits, master) == []
    assert not splits.problems
    tserver.points[WHOLE] = point
    assert look(splits, master) == [SPLIT_KIND]


def test_a_tablet_without_a_live_tserver_waits(world: World, master: Master, tserver: ScriptedTServer) -> None:
    large_table(world, tserver)
    view = replace(next(view for view in tablets(world) if view.extent == WHOLE), session="gone")
    splits_of(master).run_once([view])
    assert not master.fate.pending()


def test_rows_are_read_again_only_when_their_segments_change(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver, GIB)
    splits, read = splits_of(master), list[bytes]()
    splits.stores = replace(splits.stores, table=cast("MetadataTable", RecordingTable(world.table, read)))
    look(splits, master)
    assert sorted(read) == [b"1<", b"2<"]
    look(splits, master)
    assert len(read) == 2, "a row without a change is read again"
    hold_bytes(world, b"2<", [GIB, 1], serial=2)
    look(splits, master)
    assert read[2:] == [b"2<"]


def test_a_damaged_row_is_shown_and_stops_no_other_tablet(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver)
    state = held_row(b"1<", {"file:///s/lost": SegmentEntry("default", 9, 9, b"b", b"y", 1, 9, 1)}, 1, WAL)
    hold(world.table, replace(state, values={keys.FLUSH: state.values[keys.FLUSH]}))
    splits = splits_of(master)
    assert look(splits, master) == [SPLIT_KIND]
    assert "file:///s/lost" in splits.problems[b"1<"]
    hold_bytes(world, b"1<", [9], serial=2)
    look(splits, master)
    assert b"1<" not in splits.problems


def test_a_look_reads_few_rows_and_the_next_one_the_others(
    world: World, master: Master, tserver: ScriptedTServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_splits, "READS_MAX", 1)
    large_table(world, tserver)
    splits = splits_of(master)
    assert look(splits, master) == [], "the first row is that of table 1"
    assert look(splits, master) == [SPLIT_KIND]


def test_large_tablets_of_several_tables_are_split_beside_each_other(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver)
    world.locate(b"1<", tserver.session)
    hold_bytes(world, b"1<", [3 * GIB], serial=3)
    tserver.points[Extent("1", None, None)] = SplitPoint(3 * GIB, 0, b"k", "")
    assert look(splits_of(master), master) == [SPLIT_KIND, SPLIT_KIND]
    assert tserver.orders == ["measure None", "measure None"]


def test_a_measured_part_counts_until_the_tablet_shares_other_files(
    world: World, master: Master, tserver: ScriptedTServer
) -> None:
    large_table(world, tserver)
    shared = SegmentEntry("default", 9, 3 * GIB, b"b", b"y", 1, 9, 1, (RowRange(None, b"c"),))
    hold(world.table, held_row(b"2<", {"file:///s/shared": shared}, 1, WAL, 2), 2)
    tserver.points[WHOLE] = SplitPoint(GIB // 2, GIB // 2, b"m", "")
    splits = splits_of(master)
    for serial in (3, 4):
        assert look(splits, master) == []
        new = SegmentEntry("default", 9, GIB // 4, b"b", b"y", 1, 9, 1)
        hold(world.table, held_row(b"2<", {"file:///s/shared": shared, "file:///s/new": new}, 1, WAL, serial), serial)
    assert tserver.orders == ["measure None"], "a part is measured again though its shared files are the same"
