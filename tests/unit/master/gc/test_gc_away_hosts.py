"""Hosts that are away with logs: collector and recovery decide nothing about these, and go on with the others."""

from __future__ import annotations

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.master.books.tserver_recovery import ROUNDS_TO_ASK_AGAIN, unsealed_sessions
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import LogHome
from bookkeeper.model import HostIdentity
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.faults import fault
from tests.support.master_logs import LAST, sealed
from tests.support.master_world import LATE_MS, Master, World

HOME = LogHome("host2", "9f3a")


def far_log(world: World) -> tuple[str, str]:
    """A session whose log is on a host that is away, and the log; a tablet needs its records, and so does a peer."""
    session = world.tserver()
    world.table.put([RowPut(keys.home_row(session), {keys.HOME: HOME.encode()})], keys.ONCE_RANK)
    log = world.name(session)
    world.use(LAST, log, 3)
    return session, log


def lives_on(world: World) -> str:
    """A live session with a log on the Volume."""
    session = world.tserver()
    world.log(session, 1)
    return session


def pass_time(world: World, master: Master) -> None:
    """Collect, and again when no write is in flight any more."""
    for _ in range(3):
        master.collector.run_once()
        world.clock.jump(LATE_MS)


def test_r17_nothing_about_a_host_that_is_away_is_purged_or_deleted(world: World) -> None:
    session, log = far_log(world)
    world.kill(session)
    lives_on(world)
    near = sealed(world)
    master = world.master()
    pass_time(world, master)
    if not world.repl(log):
        raise AssertionError("R17: books of logs are purged because a host is away")
    seen = master.collector.observe()
    assert log in seen, "a log counts as deleted because its host is away"
    assert seen.absent == frozenset()
    assert near in seen


def test_a_marked_log_of_a_host_that_is_away_waits_for_the_host(world: World) -> None:
    session, _ = far_log(world)
    marked = world.name(session, 2)
    world.table.put([RowPut(keys.del_row(marked), {keys.DEL: values.EMPTY})], keys.ONCE_RANK)
    world.kill(session)
    assert marked not in world.master().collector.observe().going


def test_books_that_are_purged_because_a_host_is_away_are_noticed(world: World) -> None:
    with fault("away-hosts-are-empty"), pytest.raises(AssertionError, match="R17: books of logs are purged"):
        test_r17_nothing_about_a_host_that_is_away_is_purged_or_deleted(world)


def test_a_host_that_is_away_keeps_its_session_waiting_and_no_other(world: World) -> None:
    session, _ = far_log(world)
    other = world.tserver()
    near = world.log(other, 3)
    for dead in (session, other):
        world.kill(dead)
    master = world.master()
    assert master.recovery.run_once(master.recovery.tservers.sessions()) == [other]
    assert read_seal(world.volume, near) is not None
    assert list(master.recovery.waiting) == [session]
    reason = master.recovery.waiting[session]
    assert "lie on host host2, which is away: start it (since " in reason
    for _ in range(ROUNDS_TO_ASK_AGAIN):
        master.recovery.run_once(master.recovery.tservers.sessions())
    assert master.recovery.waiting == {session: reason}, "the time since when changes"
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == [session]
    assert master.recovery.forget(master.tservers.sessions(), ()) == [], "a session is forgotten whose logs nobody read"
    with pytest.raises(UnavailableError):
        master.tservers.logs()
    assert [log.name for log in master.tservers.logs_in_reach()] == [near]


def test_a_host_that_does_not_answer_is_away(world: World) -> None:
    session, _ = far_log(world)
    world.kill(session)
    world.tserver("127.0.0.1:1", HostIdentity(HOME.host, HOME.incarnation))
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    assert "host2, which is not answering" in master.recovery.waiting[session]


def test_a_session_that_ended_in_order_keeps_no_tablet_waiting(world: World) -> None:
    session, _ = far_log(world)
    world.kill(session)
    world.table.put([RowPut(keys.home_row(session), {keys.HOME_ENDED: values.EMPTY})], keys.ONCE_RANK)
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    assert master.recovery.waiting == {}
    assert unsealed_sessions(master.tservers.sessions(), master.tservers) == []


def test_a_file_of_a_host_that_is_away_stays_open_and_others_are_closed(world: World) -> None:
    world.enable("1")
    session, log = far_log(world)
    other = world.tserver()
    near = world.log(other, 3)
    world.use(LAST, near, 3)
    for dead in (session, other):
        world.kill(dead)
    master = world.master()
    master.cycle()
    assert [status.state for status in world.repl(log).values()] == [0]
    assert [status.state for status in world.repl(near).values()] == [1]


def test_the_home_of_a_session_goes_with_the_record_of_the_session(world: World) -> None:
    session = world.tserver()
    world.log(session, 1, seal=True)
    world.kill(session)
    master = world.master()
    homes = master.tservers.homes
    assert homes is not None
    homes.put(session, HOME)
    homes.remove(session)
    assert world.table.get(keys.home_row(session)) is None
    homes.put(session, HOME)
    assert world.table.get(keys.home_row(session)) is None, "a late put brings the row of a forgotten session back"
