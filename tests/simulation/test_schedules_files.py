"""The schedules of docs/design/rules.md that are about files: their closing, their collection, their waits.

Each by its number: green with its rule, red without. One schedule is one function that plays it and tells the final
state; it is played as the code is, and with the switch that breaks the rule. They need a master only.
Rules: R4, R10, R17 and R24.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from bookkeeper.coordination.config_changes import set_table_state
from bookkeeper.master.cycle.assigner import next_range
from bookkeeper.master.index.shipments import Shipments
from bookkeeper.metadata.metadata_table import CellKey, Compactor
from bookkeeper.model import Barrier
from tests.support.faults import fault
from tests.support.master_logs import LAST, used
from tests.support.master_world import LATE_MS, World

# ---- 4: a write that comes when everything is over


def _late_first_use(world: World) -> str:
    witness = world.tserver()
    world.log(witness, 1)
    world.enable("1")
    session, file = used(world)
    world.kill(session)
    master = world.master()
    master.cycle()
    for target in world.config().targets_of("1"):
        world.ship(file, target.key, 3)
    master.cycle()
    master.cycle()
    world.flushed(LAST, file)
    assert master.collect() == [file]
    assert isinstance(world.table, Compactor)
    for _ in range(2):
        world.table.compact()
    world.use(LAST, file, 2, log=False)
    master.cycle()
    assert world.repl(file)
    assert world.needed(file)
    for _ in range(2):
        master.collect(1)
        world.clock.jump(LATE_MS)
    return file


def test_4_books_of_a_file_that_is_gone_are_purged_after_a_while(world: World) -> None:
    file = _late_first_use(world)
    assert (world.repl(file), world.needed(file)) == ({}, {})


def test_4_red_they_stay(world: World) -> None:
    with fault("books-of-missing-files-stay"):
        file = _late_first_use(world)
    assert world.repl(file), "without R4 they leak"


def test_4_books_of_a_file_made_after_the_listing_stay(world: World) -> None:
    world.enable("1")
    witness = world.tserver()
    world.log(witness, 1)
    master = world.master()
    seen = master.collector.observe()
    _, file = used(world)
    late = replace(seen, absent=frozenset({file}))
    master.collector.void(late)
    assert world.repl(file)
    with fault("missing-is-void-at-once"):
        master.collector.void(late)
    assert not world.repl(file), "without the grace of R4 a newborn's books go"


# ---- 14: no process is left that would write CLOSED


def _all_flushed_then_a_crash(world: World) -> str:
    target = world.enable("1")
    session, file = used(world)
    world.flushed(LAST, file)
    world.kill(session)
    master = world.master()
    master.cycle()
    world.ship(file, target, 3)
    for _ in range(2):
        master.cycle()
    return file


def test_14_the_master_closes_the_files_of_a_dead_tserver(world: World) -> None:
    assert not world.repl(_all_flushed_then_a_crash(world))


def test_14_red_nobody_closes(world: World) -> None:
    with fault("logs-of-the-dead-stay-open"):
        file = _all_flushed_then_a_crash(world)
    assert world.repl(file), "without R10 the file is stuck"


def test_14_the_master_closes_what_a_live_tserver_sealed_and_did_not_close(world: World) -> None:
    world.enable("1")
    _, file = used(world, 5, seal=True)
    world.use(LAST, file, 2)
    world.master().cycle()
    (status,) = world.repl(file).values()
    assert (status.state, status.replication_needed_offset) == (1, 5)


def test_14_a_log_that_its_living_owner_writes_is_not_closed(world: World) -> None:
    world.enable("1")
    _, file = used(world)
    world.master().cycle()
    (status,) = world.repl(file).values()
    assert status.state == 0


# ---- 17 and 28: the files that the collector may take


def _newborn(world: World) -> str:
    session = world.tserver()
    file = world.log(session, 1)
    world.master().collect(4)
    return file


def test_17_a_log_without_reference_whose_tserver_lives_may_be_a_newborn(world: World) -> None:
    assert world.exists(_newborn(world))


def test_17_red_newborns_go(world: World) -> None:
    with fault("newborns-go"):
        file = _newborn(world)
    assert not world.exists(file), "without R17 it is deleted alive"


def _table_deleted_and_its_tserver_dead(world: World) -> str:
    world.enable("1")
    session, file = used(world)
    master = world.master()
    master.cycle()
    world.kill(session)
    world.table.purge([CellKey(row.key, column) for row in world.table.scan(b"", b"~") for column in row.cells])
    set_table_state(world.coordination, "1", "deleting")
    for _ in range(3):
        master.cycle()
    master.collect(4)
    assert world.exists(file), "R17: it is not sealed"
    master.recovery.run_once(world.coordination.sessions("tserver"))
    master.collect(4)
    return file


def test_28_a_log_of_a_dead_tserver_that_nobody_refers_to_goes(world: World) -> None:
    assert not world.exists(_table_deleted_and_its_tserver_dead(world))


def test_28_red_logs_that_nobody_uses_are_not_recovered(world: World) -> None:
    with fault("unused-logs-are-not-recovered"):
        file = _table_deleted_and_its_tserver_dead(world)
    assert world.exists(file), "without R17 it is kept for ever"


# ---- 22: two tablets swap servers


def _two_tablets_swap_servers(world: World) -> dict[str, int]:
    """Tablet a writes 1-5 to w1, then 6-10 to w2; tablet b the other way round. Returns how far each log comes."""
    a, b = world.create_table("2", [b"m"])
    target = world.enable("2")
    s1, s2 = world.tserver(), world.tserver()
    w1, w2 = world.name(s1), world.name(s2)
    for session in (s1, s2):
        world.log(session, 1)
    world.use(a, w1, 10)
    world.use(b, w2, 10)
    world.use(a, w2, 10, [Barrier(6, w1, 5)])
    world.use(b, w1, 10, [Barrier(6, w2, 5)])
    master = world.master()
    for _ in range(6):
        master.cycle()
        files = master.books.snapshot.files
        shipping = Shipments(1, 1, random.Random(1))
        ranges = {entry.file: next_range(entry, target, files, shipping) for entry in files.values()}
        for file, found in ranges.items():
            if found is not None:
                world.ship(file.decode(), target, found[1])
    return {file: world.done(file).get(target, 0) for file in (w1, w2)}


def test_22_barriers_are_offsets_so_two_tablets_that_swap_servers_both_arrive(world: World) -> None:
    assert set(_two_tablets_swap_servers(world).values()) == {10}


def test_22_red_whole_files_wait(world: World) -> None:
    with fault("complete-files-wait"):
        reached = _two_tablets_swap_servers(world)
    assert set(reached.values()) == {0}, "with barriers between whole files nothing ever moves"
