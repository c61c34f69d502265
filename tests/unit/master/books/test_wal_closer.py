"""CLOSED from the file itself: the same value from every writer, barriers rebuilt (R10, R24)."""

from __future__ import annotations

from bookkeeper.master.books.wal_closer import close_cells
from bookkeeper.metadata import keys, values
from bookkeeper.model import Barrier, BlockTarget, TargetKey
from bookkeeper.storage.wal.reading.wal_recovery import FileSummary, TabletSummary
from bookkeeper.storage.wal.writing.seal import Seal
from tests.support.master_values import name, status_value
from tests.support.master_world import World, open_status

FILE, BEFORE = name("s2").decode(), name("s1").decode()
STAMPS = frozenset({BlockTarget(TargetKey("east", "r1", "1", 1), None)})


def _summary(**tablets: TabletSummary) -> FileSummary:
    named = {"last": ("1", None), "m": ("1", b"m")}
    return FileSummary(1_000, Seal(9, 4_321), {named[key]: found for key, found in tablets.items()})


def test_each_tablet_gets_the_exact_end_and_its_own_barriers() -> None:
    barrier = Barrier(4, BEFORE, 17)
    summary = _summary(last=TabletSummary(1, 9, (), STAMPS), m=TabletSummary(4, 8, (barrier,), STAMPS))
    announced = [barrier, Barrier(10, BEFORE, 20)]
    cells = close_cells(
        FILE, {b"1<": status_value(3), b"1;m": status_value(2, False, announced)}, summary, {b"1<", b"1;m"}
    )
    found = {put.key: values.decode_status(put.values[keys.repl_column(FILE)]) for put in cells.rows}
    assert cells.rank == keys.closed_rank(9)
    assert {
        row: (s.state, s.replication_needed_offset, s.needed_bytes, s.created_time) for row, s in found.items()
    } == {
        b"1<": (1, 9, 4_321, 1_000),
        b"1;m": (1, 9, 4_321, 1_000),
    }
    assert not found[b"1<"].barriers
    assert [(b.offset, b.file, b.until_offset) for b in found[b"1;m"].barriers] == [(4, BEFORE, 17)]


def test_a_tablet_of_blocks_with_targets_gets_a_missing_cell_if_it_still_exists() -> None:
    summary = _summary(last=TabletSummary(1, 3, (), STAMPS), m=TabletSummary(4, 9, (), STAMPS))
    cells = close_cells(FILE, {}, summary, {b"1<"})
    assert [put.key for put in cells.rows] == [b"1<"]


def test_a_tablet_that_no_target_wants_gets_none() -> None:
    summary = _summary(last=TabletSummary(1, 9, (), frozenset()))
    assert close_cells(FILE, {}, summary, {b"1<"}).rows == ()


def test_an_empty_log_takes_its_age_from_its_cells() -> None:
    summary = FileSummary(0, Seal(0, 0), {})
    (put,) = close_cells(FILE, {b"1<": values.encode_status(open_status(0, created=77))}, summary, {b"1<"}).rows
    status = values.decode_status(put.values[keys.repl_column(FILE)])
    assert (status.state, status.replication_needed_offset, status.created_time) == (1, 0, 77)


def test_two_masters_and_repeated_cycles_write_the_same(world: World) -> None:
    world.enable("1")
    dead = world.tserver()
    first = world.log(dead, 4)
    second = world.log(dead, 6, 2, after=[(1, first, 4)])
    world.use(b"1<", first, 2)
    world.use(b"1<", second, 0, [Barrier(1, first, 4)])
    world.kill(dead)
    master = world.master()
    master.cycle()
    before = {file: world.repl(file) for file in (first, second)}
    (status,) = before[second].values()
    assert (status.state, status.replication_needed_offset) == (1, 6)
    assert [(b.offset, b.file, b.until_offset) for b in status.barriers] == [(1, first, 4)]
    world.depose(master).cycle()
    assert {file: world.repl(file) for file in (first, second)} == before


def test_the_offsets_of_a_closed_file_are_safe_at_once(world: World) -> None:
    world.enable("1")
    dead = world.tserver()
    file = world.log(dead, 4)
    world.use(b"1<", file, 2)
    world.kill(dead)
    master = world.master()
    master.cycle()
    (made,) = master.books.snapshot.files.values()
    assert (made.needed, made.safe) == (4, 4)
