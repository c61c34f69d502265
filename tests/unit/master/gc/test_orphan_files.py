"""Segment files of flushes that were cut go, and no other: R1, R4 and L2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bookkeeper.bulk.adoption import INCOMING, import_directory
from bookkeeper.bulk.file_holds import end_holds, put_holds
from bookkeeper.master.gc.orphan_files import (
    SCAN_INTERVAL_MS,
    Holding,
    OrphanFiles,
    is_orphan_segment,
    is_passed_flush,
)
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Column, Row, RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.storage.tablet.segments.segment_format import parse_name
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.volume_protocol import Volume
from tests.support.faults import fault
from tests.support.master_world import LATE_MS, Master, World
from tests.support.volumes import name_at

FLIGHT_MS = 100_000
ROW = b"1<"
SERIAL = 3
FIRST = keys.first_flush_id(SERIAL)
LAST = FIRST + 4


@pytest.fixture
def master(world: World) -> Master:
    """A leader over a tablet whose third holder has flushed five times."""
    state = FlushState(LAST, {}, 1, 1, {}, ())
    world.table.put([RowPut(ROW, {keys.SERIAL: keys.SERIAL_VALUE})], SERIAL)
    world.table.put([RowPut(ROW, {keys.FLUSH: state.encode()})], LAST)
    return world.master()


@pytest.fixture
def orphans(world: World, master: Master) -> OrphanFiles:
    return made(world, master, world.volume)


def made(world: World, master: Master, volume: Volume) -> OrphanFiles:
    rounds = world.rounds(master.reign)
    return OrphanFiles(master.books.stores, rounds, world.clock, volume, master.tservers.live, FLIGHT_MS)


def segment(world: World, flush_id: int, ending: str = ".parquet") -> str:
    """A file as a flush of the tablet writes it."""
    row = world.table.get(ROW)
    assert row is not None
    directory = world.settings.tables_dir / "1" / values.decode_dir(row.cells[keys.DIR].value)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{flush_id:010d}-{flush_id:x}{ending}"
    path.write_bytes(b"segment")
    return name_at(path, world.settings.directory)


def name_it(world: World, name: str, flush_id: int) -> None:
    entry = SegmentEntry("default", 1, 7, b"a", b"a", 1, 1, flush_id).encode()
    world.table.put([RowPut(ROW, {keys.segment_column(name): entry})], flush_id)


def look_later(world: World, orphans: OrphanFiles) -> list[str]:
    world.clock.jump(FLIGHT_MS + SCAN_INTERVAL_MS)
    return orphans.run_once()


def test_files_of_cut_flushes_are_marked_and_deleted_when_no_write_can_be_in_flight(
    world: World, master: Master, orphans: OrphanFiles
) -> None:
    left = [segment(world, keys.first_flush_id(SERIAL - 1)), segment(world, FIRST, ".parquet.tmp")]
    assert orphans.run_once() == []
    world.clock.jump(SCAN_INTERVAL_MS)
    assert orphans.run_once() == []
    assert sorted(look_later(world, orphans)) == sorted(left)
    assert sorted(master.collect()) == sorted(left)
    assert not [path for path in world.settings.tables_dir.rglob("*") if path.is_file()]


def test_a_segment_that_a_tablet_names_stays(world: World, master: Master, orphans: OrphanFiles) -> None:
    named = segment(world, LAST)
    name_it(world, named, LAST)
    orphans.run_once()
    assert look_later(world, orphans) == []
    assert master.collect() == []


def test_files_that_the_present_holder_may_write_stay(world: World, orphans: OrphanFiles) -> None:
    segment(world, LAST + 1, ".parquet.tmp")
    orphans.run_once()
    assert look_later(world, orphans) == []


def test_r4_a_late_flush_of_an_earlier_holder_keeps_its_files(
    world: World, master: Master, orphans: OrphanFiles
) -> None:
    late = segment(world, keys.first_flush_id(SERIAL - 1))
    orphans.run_once()
    name_it(world, late, keys.first_flush_id(SERIAL - 1))
    assert look_later(world, orphans) == []
    assert master.collect() == []


def test_a_mark_does_not_delete_a_file_that_a_row_names_meanwhile(
    world: World, master: Master, orphans: OrphanFiles
) -> None:
    name = segment(world, FIRST)
    orphans.run_once()
    assert look_later(world, orphans) == [name]
    name_it(world, name, FIRST)
    assert master.collect() == []


def test_files_of_removed_tablets_are_orphans_and_foreign_files_are_not(world: World, orphans: OrphanFiles) -> None:
    gone = world.settings.tables_dir / "9" / "t-00000"
    gone.mkdir(parents=True)
    stray, foreign = gone / f"{FIRST:010d}-a.parquet", gone / "notes.parquet"
    for path in (stray, foreign):
        path.write_bytes(b"")
    orphans.run_once()
    assert look_later(world, orphans) == [name_at(stray, world.settings.directory)]


def test_searches_are_rare(world: World, orphans: OrphanFiles) -> None:
    orphans.run_once()
    segment(world, FIRST)
    orphans.run_once()
    assert orphans.known == {}


@pytest.mark.parametrize(
    ("flush_id", "holding", "stray"),
    [
        (FIRST - 1, Holding(FIRST, LAST), True),
        (FIRST, Holding(FIRST, LAST), True),
        (LAST, Holding(FIRST, LAST), True),
        (LAST + 1, Holding(FIRST, LAST), False),
        (FIRST, Holding(FIRST, FIRST - 9), False),
        (keys.first_flush_id(SERIAL + 1), Holding(FIRST, LAST), False),
        (1, None, True),
    ],
)
def test_a_file_is_a_stray_only_when_its_holder_has_passed_it(
    flush_id: int, holding: Holding | None, stray: bool
) -> None:
    assert is_passed_flush(flush_id, holding) is stray


@pytest.mark.parametrize(
    ("name", "left"),
    [
        (f"c{keys.first_flush_id(SERIAL - 1):010d}-x.parquet", True),
        (f"c{FIRST:010d}-x.parquet", False),
        (f"c{FIRST:010d}-x.parquet.tmp", False),
        (f"c{keys.first_flush_id(SERIAL + 1):010d}-x.parquet", False),
        (f"{FIRST:010d}-x.parquet", True),
        ("c-x.parquet", False),
        ("cities.parquet", False),
    ],
)
def test_a_compactions_file_is_an_orphan_after_its_holder(name: str, left: bool) -> None:
    assert is_orphan_segment(name, Holding(FIRST, LAST)) is left
    assert is_orphan_segment(name, None) is (parse_name(name) is not None)


def test_no_directory_of_tables_is_no_error(world: World, master: Master) -> None:
    assert made(world, master, LocalVolume(Path("/nowhere"))).run_once() == []


# ---- files that tablets take as they are


@pytest.fixture(params=["incoming", "import"])
def adoptable(world: World, request: pytest.FixtureRequest) -> str:
    """A file of another cluster or of an import; its maker is gone."""
    directory = f"{INCOMING}/dead" if request.param == "incoming" else f"{import_directory('1', 'a' * 32)}/attempt"
    name = f"{directory}/000000.parquet"
    world.path(name).parent.mkdir(parents=True)
    world.path(name).write_bytes(b"segment")
    return name


def hold_it(world: World, file: str, column: Column) -> None:
    put_holds(world.table, column, [file])


def test_a_file_that_nothing_needs_goes_when_no_write_can_be_in_flight(
    world: World, master: Master, orphans: OrphanFiles, adoptable: str
) -> None:
    scratch = f"{adoptable}.tmp"
    world.path(scratch).write_bytes(b"")
    assert orphans.run_once() == []
    assert look_later(world, orphans) == [adoptable, scratch]
    assert master.collect() == []
    world.clock.jump(LATE_MS)
    assert master.collect() == [adoptable, scratch]
    look_later(world, orphans)
    look_later(world, orphans)
    assert not world.path(adoptable).parent.exists(), "an empty directory stays"


def named_file(world: World, orphans: OrphanFiles, file: str) -> None:
    name_it(world, file, FIRST)
    orphans.run_once()
    assert look_later(world, orphans) == [], "R17: a file that a tablet names is an orphan"


def test_r17_a_file_of_a_dead_session_or_an_ended_import_stays_while_a_tablet_names_it(
    world: World, orphans: OrphanFiles, adoptable: str
) -> None:
    named_file(world, orphans, adoptable)


def test_r17_red_the_end_of_its_maker_takes_a_file_from_a_tablet(
    world: World, orphans: OrphanFiles, adoptable: str
) -> None:
    with fault("files-go-with-their-maker"), pytest.raises(AssertionError, match="that a tablet names is an orphan"):
        named_file(world, orphans, adoptable)


@pytest.mark.parametrize(
    "column",
    [
        keys.hold_column("0c"),
        keys.log_hold_column("wal/import/a.wal"),
        keys.arrival_column("s"),
        keys.taking_column("s", "o"),
    ],
    ids=["operation", "log", "arrival", "taking"],
)
def test_r17_a_file_that_is_held_is_no_orphan(
    world: World, orphans: OrphanFiles, adoptable: str, column: Column
) -> None:
    hold_it(world, adoptable, column)
    world.path(f"{adoptable}.tmp").write_bytes(b"")
    orphans.run_once()
    assert look_later(world, orphans) == []


def handed_to_a_tablet(world: World, orphans: OrphanFiles, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tablet names a file, and its hold ends, while the search reads the books."""
    hold_it(world, file, keys.hold_column("0c"))
    scan, handed = world.table.scan, list[bool]()

    def scan_and_hand_over(start: bytes, stop: bytes | None, families: Sequence[str]) -> list[Row]:
        rows = list(scan(start, stop, families))
        if start == keys.TABLETS_START and not handed:
            handed.append(True)
            name_it(world, file, FIRST)
            end_holds(world.table, keys.hold_column("0c"), [file])
        return rows

    monkeypatch.setattr(world.table, "scan", scan_and_hand_over)
    orphans.run_once()
    assert orphans.known == {}, "R17: a file is an orphan between its hold and its name"


def test_r17_holds_are_read_before_the_tablets_too(
    world: World, orphans: OrphanFiles, adoptable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_to_a_tablet(world, orphans, adoptable, monkeypatch)


def test_empty_directories_of_live_tservers_stay(world: World, orphans: OrphanFiles) -> None:
    living = world.tserver()
    world.path(f"{INCOMING}/{living}").mkdir(parents=True)
    world.path(f"{INCOMING}/dead").mkdir()
    for _ in range(3):
        look_later(world, orphans)
    assert [path.name for path in world.path(INCOMING).iterdir()] == [living]


def test_the_manifest_beside_a_deleted_log_is_deleted_and_others_stay(world: World, orphans: OrphanFiles) -> None:
    directory = world.settings.wal_dir / "import"
    directory.mkdir(parents=True)
    for name in ("a.wal", "a.wal.segments", "b.wal.segments"):
        (directory / name).write_bytes(b"")
    orphans.run_once()
    assert sorted(path.name for path in directory.iterdir()) == ["a.wal", "a.wal.segments"]
