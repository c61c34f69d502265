"""Dead tservers: sealed, and forgotten when nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from bookkeeper.errors import LeaseLostError, UnavailableError
from bookkeeper.master.books.tserver_recovery import ROUNDS_TO_TRY_AGAIN, unsealed_sessions
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.faults import fault
from tests.support.master_world import World, open_status


def test_logs_of_dead_sessions_are_sealed_and_those_of_live_ones_are_not(world: World) -> None:
    dead, alive = world.tserver(), world.tserver()
    files = [world.log(dead, 3, 1), world.log(dead, 2, 2), world.log(alive, 1)]
    master = world.master()
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == []
    world.kill(dead)
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == [dead]
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == [dead]
    assert [seal and seal.offset for seal in map(partial(read_seal, world.volume), files)] == [3, 2, None]
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == []
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == []


def test_a_damaged_log_is_a_problem_and_delays_its_tablets_alone(world: World) -> None:
    dead, other = world.tserver(), world.tserver()
    damaged, sound = world.log(dead, 5), world.log(other, 3)
    path = world.path(damaged)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    for session in (dead, other):
        world.kill(session)
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    assert list(master.recovery.problems) == [damaged]
    assert read_seal(world.volume, sound) is not None
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == [dead]


def check_cut_logs_are_told(world: World) -> None:
    """A log of a dead session that holds less than the books say, in each way in which it can be cut."""
    cuts: list[Callable[[bytes, int], bytes]] = [
        lambda raw, end: raw[:end],
        lambda raw, end: raw[:end] + bytes(len(raw) - end),
        lambda raw, end: raw[: end + 5],
        lambda raw, end: b"",  # noqa: ARG005
        lambda raw, end: bytes(len(raw)),  # noqa: ARG005
    ]
    dead = world.tserver()
    files = [world.log(dead, 5, number) for number in range(1, len(cuts) + 1)]
    for file, cut in zip(files, cuts, strict=True):
        [*_, third, _, _] = read_headers(world.volume, file)
        world.path(file).write_bytes(cut(world.path(file).read_bytes(), third.end_position))
        status = values.encode_status(open_status(5))
        world.table.put([RowPut(b"1<", {keys.repl_column(file): status})], keys.needed_rank(5))
    used = world.log(dead, 2, 9)
    world.path(used).write_bytes(b"")
    world.table.put([RowPut(b"1<", {keys.log_column(used): values.LOG})], keys.first_use_rank(1))
    world.kill(dead)
    master = world.master()
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == [], (
        "a log that was cut is sealed as a crash left it"
    )
    assert set(master.recovery.problems) == {*files, used}
    assert all(read_seal(world.volume, file) is None for file in (*files, used))
    assert "ends after record 3, and the books know of 5 durable ones" in master.recovery.problems[files[0]]
    assert "it is empty, and the books say that tablets use it" in master.recovery.problems[used]


def test_a_log_that_was_cut_is_not_taken_for_one_that_a_crash_left(world: World) -> None:
    check_cut_logs_are_told(world)


def test_without_the_books_claim_cut_logs_are_sealed_and_lose_records(world: World) -> None:
    with (
        fault("cut-logs-are-short-logs"),
        pytest.raises(AssertionError, match="a log that was cut is sealed as a crash left it"),
    ):
        check_cut_logs_are_told(world)


def test_a_crash_leaves_an_unused_log_or_one_with_an_unsynced_end(world: World) -> None:
    dead = world.tserver()
    unused, torn = world.log(dead, 2, 1), world.log(dead, 5, 2)
    world.path(unused).write_bytes(b"")
    world.path(torn).write_bytes(world.path(torn).read_bytes()[:-3])
    for file, needed in ((torn, 4),):
        cells = {keys.repl_column(file): values.encode_status(open_status(needed)), keys.log_column(file): values.LOG}
        world.table.put([RowPut(b"1<", cells)], keys.needed_rank(needed))
    world.kill(dead)
    master = world.master()
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == [dead]
    assert [seal and seal.offset for seal in map(partial(read_seal, world.volume), (unused, torn))] == [0, 4]


def test_a_log_that_was_restored_is_recovered_after_a_while(world: World) -> None:
    dead = world.tserver()
    file = world.log(dead, 3)
    whole = world.path(file).read_bytes()
    world.path(file).write_bytes(b"rubbish" + whole[7:])
    world.kill(dead)
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    world.path(file).write_bytes(whole)
    assert [dead] in [master.recovery.run_once(master.recovery.tservers.sessions()) for _ in range(ROUNDS_TO_TRY_AGAIN)]
    assert master.recovery.problems == {}


def test_a_session_is_forgotten_when_it_left_neither_tablet_nor_log(world: World) -> None:
    dead, alive, holding = (world.tserver() for _ in range(3))
    file = world.log(dead, 3, seal=True)
    for session in (dead, holding):
        world.kill(session)
    master = world.master()
    assert master.recovery.forget(master.tservers.sessions(), {holding}) == []
    path = world.path(file)
    for name in path.parent.iterdir():
        name.unlink()
    assert master.recovery.forget(master.tservers.sessions(), {holding}) == [dead]
    assert not path.parent.exists()
    assert [info.session_id for info in master.tservers.sessions()] == sorted([alive, holding])


def test_a_directory_of_a_dead_session_that_can_not_be_removed_ends_no_master(world: World) -> None:
    """It is a link, which the system does not remove as a directory."""
    dead = world.tserver()
    world.kill(dead)
    master = world.master()
    place = world.settings.wal_dir / dead
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(world.settings.directory, target_is_directory=True)
    with pytest.raises(UnavailableError, match="can't be removed"):
        master.tservers.remove_directory(dead)


def test_dead_masters_and_replay_processes_are_forgotten(world: World) -> None:
    sessions = [world.coordination.open_session(kind, "127.0.0.1:1") for kind in ("master", "replay", "replay")]
    for session in sessions[:2]:
        session.close()
    master = world.master()
    master.recovery.forget_others(master.recovery.tservers.sessions_of_all_kinds())
    assert [info.session_id for info in world.coordination.sessions("replay")] == [sessions[2].session_id]
    assert [info.session_id for info in world.coordination.sessions("master")] == [master.session.session_id]


def test_a_deposed_leader_seals_nothing(world: World) -> None:
    dead = world.tserver()
    file = world.log(dead, 3)
    world.kill(dead)
    master = world.master()
    master.session.close()
    with pytest.raises(LeaseLostError):
        master.recovery.run_once(master.recovery.tservers.sessions())
    assert read_seal(world.volume, file) is None
