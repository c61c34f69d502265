"""Marks, files below them, locations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from bookkeeper.errors import NO_TSERVER, NotFoundError, TableGoneError, UnavailableError
from bookkeeper.master.index.snapshot import BrokenChainError
from bookkeeper.master.index.target_progress import NO_AMOUNT, NO_PROGRESS
from bookkeeper.master.queries import queries
from bookkeeper.master.queries.causes import Now
from bookkeeper.master.queries.queries import Queries, status_message
from bookkeeper.master.queries.target_states import target_state
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.model import Target, TargetKey
from bookkeeper.rpc.contract.messages import FileMark
from tests.support.master_values import EAST, by_name, entry, name, report, shipping, target
from tests.support.master_world import World
from tests.support.scripted_tserver import ScriptedTServer, scripted

LAST = b"1<"


@pytest.fixture
def tserver(world: World) -> Iterator[ScriptedTServer]:
    """A live tserver that answers."""
    with scripted(world) as found:
        yield found


@pytest.fixture
def reads(world: World, monkeypatch: pytest.MonkeyPatch) -> Queries:
    """The queries of one reign; marks do not wait."""
    monkeypatch.setattr(queries, "MARK_TIMEOUT_MS", 0)
    return Queries(world.table, world.tservers(), world.config, world.clock)


def _below(reads: Queries, marks: list[FileMark], cluster: str = "") -> list[tuple[str, TargetKey, int]]:
    return [(e.name(), t.key, progress.offset) for e, t, progress in reads.pending(marks, "table-1", cluster)]


# ---- marks


def test_a_mark_has_the_offsets_of_live_tservers_and_the_ends_of_sealed_files(
    world: World, tserver: ScriptedTServer, reads: Queries
) -> None:
    world.enable("1")
    dead = world.tserver()
    closed, sealed = world.name(dead, 1), world.log(dead, 4, 2, seal=True)
    world.closed(LAST, closed, 7)
    world.use(LAST, sealed, 2)
    world.kill(dead)
    tserver.marks = [FileMark(world.name(tserver.session), 9)]
    assert reads.mark("table-1") == sorted(
        [FileMark(closed, 7), FileMark(sealed, 4), FileMark(world.name(tserver.session), 9)], key=lambda mark: mark.file
    )


def test_a_mark_waits_for_a_tserver_that_does_not_answer_and_is_not_sealed(world: World, reads: Queries) -> None:
    session = world.tserver()
    with pytest.raises(UnavailableError, match="can't tell what table table-1 has written"):
        reads.mark("table-1")
    world.log(session, 3)
    world.use(LAST, world.name(session), 2)
    world.kill(session)
    with pytest.raises(UnavailableError, match="not sealed yet"):
        reads.mark("table-1")
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    assert reads.mark("table-1") == [FileMark(world.name(session), 3)]


def test_a_table_that_is_not_there_has_no_mark(reads: Queries) -> None:
    with pytest.raises(NotFoundError):
        reads.mark("nothing")


def test_a_cell_that_was_announced_and_never_followed_by_a_record_marks_nothing(
    world: World, tserver: ScriptedTServer, reads: Queries
) -> None:
    world.use(LAST, world.name(tserver.session), 0)
    assert reads.mark("table-1") == []


# ---- what is below them


def test_below_a_mark_is_each_target_that_has_not_finished_so_far(world: World, reads: Queries) -> None:
    world.define("north")
    east, north = world.enable("1"), world.enable("1", "north", "r2")
    file = world.name(world.tserver())
    world.use(LAST, file, 9)
    marks = [FileMark(file, 5)]
    assert _below(reads, marks) == [(file, east, 0), (file, north, 0)]
    world.ship(file, east, 5)
    world.ship(file, north, 4)
    assert _below(reads, marks) == [(file, north, 4)]
    assert _below(reads, marks, "east") == []
    world.ship(file, north, 6)
    assert _below(reads, marks) == []


def test_a_file_without_books_is_done(world: World, reads: Queries) -> None:
    world.enable("1")
    assert _below(reads, [FileMark(world.name("gone"), 5)]) == []


def test_a_file_whose_row_no_master_has_made_yet_is_below(world: World, reads: Queries) -> None:
    target = world.enable("1")
    file = world.name(world.tserver())
    world.use(LAST, file, 5)
    assert world.needed(file) == {}
    assert _below(reads, [FileMark(file, 5)]) == [(file, target, 0)]
    world.table.purge([CellKey(LAST, keys.repl_column(file))])
    assert _below(reads, [FileMark(file, 5)]) == []


def test_files_of_other_tables_do_not_count(world: World, reads: Queries) -> None:
    (other,) = world.create_table("2")
    world.enable("1")
    world.enable("2")
    file = world.name(world.tserver())
    world.use(other, file, 5)
    assert _below(reads, [FileMark(file, 5)]) == []


def test_a_cluster_without_a_target_of_the_table_is_refused(world: World, reads: Queries) -> None:
    world.enable("1")
    with pytest.raises(NotFoundError, match="enablereplication -t table-1 --all-loc-groups north"):
        reads.pending([], "table-1", "north")
    world.disable("1")
    with pytest.raises(NotFoundError, match="table-1 is not replicated to any cluster: enablereplication -t table-1"):
        reads.pending([FileMark("x", 1)], "table-1", "")


# ---- tablets


def test_locations_name_live_tservers_only(world: World, tserver: ScriptedTServer, reads: Queries) -> None:
    first, second, third = world.create_table("2", [b"g", b"m"])
    dead = world.tserver()
    world.locate(first, tserver.session)
    world.locate(second, dead)
    world.kill(dead)
    found = reads.locate("2")
    assert [location.extent.end_row for location in found] == [b"g", b"m", None]
    address = world.tservers().live()[tserver.session]
    assert [location.address for location in found] == [address, None, None]
    assert third == b"2<"
    with pytest.raises(NotFoundError):
        reads.locate("9")


@dataclass(frozen=True, slots=True)
class Known:
    """A leader's knowledge of tablets; each assigned tablet is loaded."""

    problems: dict[bytes, str]
    warnings: dict[bytes, str]

    def is_loaded(self, session: str, row: bytes) -> bool | None:
        return bool(session and row)


def test_the_location_of_one_tablet_is_that_among_all_and_hurries_its_load(
    world: World, tserver: ScriptedTServer
) -> None:
    first, second, third = world.create_table("2", [b"g", b"m"])
    world.locate(first, tserver.session)
    world.locate(second, "gone-1")
    hurried: list[tuple[str, bytes]] = []
    known = Known({second: "help"}, {first: "it is not compacted"})
    unsplit = {first: "it is not split", third: "it has one row"}
    reads = Queries(
        world.table, world.tservers(), world.config, world.clock, known, lambda *tablet: hurried.append(tablet), unsplit
    )
    message = reads.locate("2")
    assert [(found.problem, found.warning, found.loaded) for found in message] == [
        (None, "it is not compacted; it is not split", True),
        ("help", None, None),
        (None, "it has one row", None),
    ]
    for row in (b"", b"a", b"g", b"g\x00", b"m", b"n"):
        (expected,) = [location for location in message if location.extent.contains(row)]
        assert reads.locate_tablet("2", row) == expected
    assert hurried == [(tserver.session, first)] * 3 + [("gone-1", second)] * 2
    world.table.purge([CellKey(second, keys.PREV_ROW)])
    with pytest.raises(BrokenChainError):
        reads.locate_tablet("2", b"h")
    with pytest.raises(NotFoundError):
        reads.locate_tablet("9", b"a")


def test_a_peer_gets_a_tserver_of_the_table_or_any(world: World, tserver: ScriptedTServer, reads: Queries) -> None:
    world.tserver("127.0.0.1:2")
    world.locate(LAST, tserver.session)
    address = world.tservers().live()[tserver.session]
    assert {reads.pick_tserver("1") for _ in range(10)} == {address}
    world.create_table("2")
    assert reads.pick_tserver("2") in {address, "127.0.0.1:2"}


def test_without_a_live_tserver_a_peer_is_refused_for_now(reads: Queries) -> None:
    with pytest.raises(UnavailableError, match="no tserver of this cluster is alive") as raised:
        reads.pick_tserver("1")
    assert NO_TSERVER in raised.value.details


def test_a_table_that_holds_records_is_known_by_segments_that_count_and_logs(world: World, reads: Queries) -> None:
    assert not reads.holds_records("1")
    log = RowPut(LAST, {keys.log_column("w"): values.LOG})
    world.table.put([log], keys.first_use_rank(1))
    assert reads.holds_records("1")
    world.table.delete([CellKey(LAST, keys.log_column("w"))], keys.log_delete_rank(5))
    assert not reads.holds_records("1")
    flush = values.FlushState(1, {}, 1, 1, {}, (), ("1/t/a.parquet",))
    world.table.put([RowPut(LAST, {keys.FLUSH: flush.encode()})], 2**40)
    assert reads.holds_records("1")
    (other,) = world.create_table("2")
    assert other != LAST
    assert not reads.holds_records("2")


@pytest.mark.parametrize(
    ("remote", "groups", "disabled", "enabled"),
    [
        ("cities", None, "-t cities --all-loc-groups east", "-t cities --all-loc-groups east"),
        ("towns", ("a", "b"), "-t cities -lg a -lg b east", "-t cities -lg a -lg b --remote-table towns east"),
    ],
)
def test_the_error_of_a_table_deleted_at_the_peer_names_the_next_step(
    remote: str, groups: tuple[str, ...] | None, disabled: str, enabled: str
) -> None:
    work = shipping()
    gone = report(name("s1"), 0, error="east has no table r1", transient=False)
    work.report(replace(gone, error_code=TableGoneError.code), 0)
    goal = Target(EAST, groups, "i-east", remote)
    made = entry(name("s1"), 9)
    state = target_state(made, goal, NO_PROGRESS, by_name(made), work, Now(0, 0), 5)
    message = status_message(state, {EAST.source_table_id: "cities"}).last_error or ""
    assert message.startswith(f"east has no table {remote} with the id {EAST.remote_table_id} any more")
    assert f"disablereplication {disabled}, then enablereplication {enabled}. " in message
    assert "missing there until a copy brings them: exporttable and importtable (east has no table r1)" in message


def test_another_error_is_shown_unchanged() -> None:
    work = shipping()
    work.report(report(name("s1"), 0, error="no such log", transient=False), 0)
    made = entry(name("s1"), 9)
    state = target_state(made, target(EAST), NO_PROGRESS, by_name(made), work, Now(0, 0), 5)
    assert status_message(state, {}).last_error == "no such log"


def test_a_row_that_waits_has_its_cause_and_that_of_the_file_at_the_root() -> None:
    work = shipping()
    gone = report(name("s1"), 0, error="east has no table r1", transient=False)
    work.report(replace(gone, error_code=TableGoneError.code), 0)
    first, behind = entry(name("s1"), 9), entry(name("s2"), 9, barriers=[(1, name("s1"), 9)])
    done, of_others = entry(name("s3"), 9, done={EAST: 9}), entry(name("s4"), 9, amount=NO_AMOUNT)
    files = by_name(first, behind, done, of_others)
    found = []
    for made in (first, behind, done, of_others):
        said = status_message(target_state(made, target(EAST), made.progress_at(0), files, work, Now(0, 0), 5), {})
        found.append((said.cause, said.root_cause))
    assert found == [("table_gone", None), ("behind", "table_gone"), (None, None), (None, None)]
