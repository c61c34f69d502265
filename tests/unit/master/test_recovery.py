"""Dead tservers: sealed, and forgotten when nothing is left of them."""

from __future__ import annotations

import pytest

from bookkeeper.errors import LeaseLostError
from bookkeeper.master.recovery import unsealed_sessions
from bookkeeper.storage.wal import read_seal
from bookkeeper.storage.wal.files import path_of
from tests.support.master_world import World


def test_logs_of_dead_sessions_are_sealed_and_those_of_live_ones_are_not(world: World) -> None:
    dead, alive = world.tserver(), world.tserver()
    files = [world.log(dead, 3, 1), world.log(dead, 2, 2), world.log(alive, 1)]
    master = world.master()
    assert master.recovery.run_once() == []
    world.kill(dead)
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == [dead]
    assert master.recovery.run_once() == [dead]
    assert [seal and seal.offset for seal in map(read_seal, files)] == [3, 2, None]
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == []
    assert master.recovery.run_once() == []


def test_a_damaged_log_is_told_and_keeps_its_tablets_waiting_and_others_go_on(world: World) -> None:
    dead, other = world.tserver(), world.tserver()
    damaged, sound = world.log(dead, 5), world.log(other, 3)
    path = path_of(damaged)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    for session in (dead, other):
        world.kill(session)
    master = world.master()
    master.recovery.run_once()
    assert list(master.recovery.problems) == [damaged]
    assert read_seal(sound) is not None
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == [dead]


def test_a_session_is_forgotten_when_it_left_neither_tablet_nor_log(world: World) -> None:
    dead, alive, holding = (world.tserver() for _ in range(3))
    file = world.log(dead, 3, seal=True)
    for session in (dead, holding):
        world.kill(session)
    master = world.master()
    assert master.recovery.forget(master.tservers.sessions(), {holding}) == []
    path = path_of(file)
    for name in path.parent.iterdir():
        name.unlink()
    assert master.recovery.forget(master.tservers.sessions(), {holding}) == [dead]
    assert not path.parent.exists()
    assert [info.session_id for info in master.tservers.sessions()] == sorted([alive, holding])


def test_dead_masters_and_replay_processes_are_forgotten(world: World) -> None:
    sessions = [world.coordination.open_session(kind, "127.0.0.1:1") for kind in ("master", "replay", "replay")]
    for session in sessions[:2]:
        session.close()
    master = world.master()
    master.recovery.forget_others()
    assert [info.session_id for info in world.coordination.sessions("replay")] == [sessions[2].session_id]
    assert [info.session_id for info in world.coordination.sessions("master")] == [master.session.session_id]


def test_a_deposed_leader_seals_nothing(world: World) -> None:
    dead = world.tserver()
    file = world.log(dead, 3)
    world.kill(dead)
    master = world.master()
    master.session.close()
    with pytest.raises(LeaseLostError):
        master.recovery.run_once()
    assert read_seal(file) is None
