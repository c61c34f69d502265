"""The lag that a leader shows is that of the ledger after each step: under steady writes, after a new master, for
ranges in quarantine. Red: the time of a lag that restarts only when nothing is missing; headers that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.master.queries.target_states import TargetState, all_states
from tests.simulation.test_schedules_followers import followed
from tests.support.faults import fault
from tests.support.simulation.pair import Pair
from tests.support.simulation.shown_lag import shown_ages
from tests.support.simulation.world import World, simulation

KNOWN_WITHIN_S = 3.0

SHOWN_S = 0.22
"""A put of needed offsets waits for a fifth of a second while a task follows; then a nudge starts a cycle."""


def judged_after_each_step(world: World) -> None:
    """From now on."""
    world.kernel.observe = world.judge_lag


def shown(pair: Pair) -> list[float]:
    """The ages that west's leader shows."""
    leader = pair.west.leader()
    assert leader is not None
    with pair.world.kernel.aside():
        return [age_s for *_, age_s in shown_ages(leader.part.leadership)]


def hold_messages(pair: Pair) -> int:
    """East's tservers take no message."""
    return pair.world.hold("east.", "rpc-replicate")


def steady_writes(world: World) -> None:
    """The peer is always a record behind, and never further."""
    pair = Pair(world)
    pair.enable()
    judged_after_each_step(world)
    hold = hold_messages(pair)
    before = world.put(pair.west, "t", b"a")
    for _ in range(8):
        world.kernel.run_for(0.4)
        following = world.put(pair.west, "t", b"a")
        world.kernel.run_for(0.4)
        world.kernel.release(hold)
        pair.until_there(before)
        hold, before = hold_messages(pair), following
    world.kernel.release(hold)
    pair.rest()


def outage_and_new_master(world: World) -> None:
    """The peer takes nothing for a while, and the master dies meanwhile."""
    pair = Pair(world)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", b"a"))
    judged_after_each_step(world)
    hold = hold_messages(pair)
    for _ in range(5):
        world.put(pair.west, "t", b"a")
        world.kernel.run_for(1.0)
    leader = pair.west.leader()
    assert leader is not None
    pair.west.kill(leader)
    pair.west.start_master()
    world.until(lambda: pair.west.leader() is not None, "a new master leads")
    world.put(pair.west, "t", b"a")
    try:
        world.until(lambda: any(age_s > 4.0 for age_s in shown(pair)), "the age is known", KNOWN_WITHIN_S)
    finally:
        world.kernel.release(hold)
    pair.rest()


def states_of(pair: Pair) -> list[TargetState]:
    """West's outstanding logs at east, as west's leader shows them, the newest last."""
    leader = pair.west.leader()
    assert leader is not None
    lead = leader.part.leadership
    with pair.world.kernel.aside():
        files, shipping = lead.cycle.books.snapshot.files, lead.cycle.dispatcher.shipping
        return sorted(all_states(files, shipping, lead.moment(), lambda _target: True, 1), key=lambda one: one.file)


def a_stream_that_a_task_follows(world: World) -> None:
    """What the books have of it is a fifth of a second old, and so is what the leader shows; also while the peer stands
    still in the middle of a record.
    """
    pair = followed(world)
    judged_after_each_step(world)
    for _ in range(5):
        put_and_wait(pair)
        assert all((one.phase, one.lag_records) == ("done", 0) for one in states_of(pair))
    hold = hold_messages(pair)
    put_and_wait(pair)
    (state,) = [one for one in states_of(pair) if one.lag_records]
    assert (state.phase, state.finished < state.needed, state.lag_records) == ("shipping", True, 1)
    world.kernel.run_for(4.0)
    (state,) = [one for one in states_of(pair) if one.lag_records]
    assert state.lag_seconds is not None
    assert 4.0 <= state.lag_seconds <= 4.0 + 2 * SHOWN_S
    world.kernel.release(hold)
    world.kernel.run_for(SHOWN_S)
    assert not [one for one in states_of(pair) if one.phase != "done" or one.lag_records or one.lag_seconds]
    pair.rest()


def put_and_wait(pair: Pair) -> None:
    """A row, and the time after which the leader knows of it."""
    pair.world.put(pair.west, "t", b"c")
    pair.world.kernel.run_for(SHOWN_S)
    shown = [(one.needed, end_of(pair, one)) for one in states_of(pair)[-1:]]
    assert shown, "the leader does not know of a log in time"
    assert shown[0][0] == shown[0][1], "the leader does not know of a record in time"


def end_of(pair: Pair, state: TargetState) -> int:
    """The last record of a log."""
    return pair.world.ledger.files[state.file].blocks[-1].last


def red(schedule: Callable[[World], None], directory: Path, switch: str, said: str) -> None:
    with fault(switch), simulation(directory) as world, pytest.raises(AssertionError, match=said):
        schedule(world)


def test_under_steady_writes_the_shown_lag_is_the_age_of_the_first_missing_record(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        steady_writes(world)


def test_if_the_time_restarts_only_when_nothing_is_missing_the_shown_lag_is_too_large(tmp_path: Path) -> None:
    red(steady_writes, tmp_path / "world", "lag-restarts-when-complete", "lag: .* is shown as")


def test_after_a_new_master_the_shown_lag_is_unknown_and_then_true(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        outage_and_new_master(world)


def test_a_stream_that_a_task_follows_is_shown_as_it_is(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        a_stream_that_a_task_follows(world)


def test_if_no_header_is_read_the_lag_stays_unknown(tmp_path: Path) -> None:
    red(outage_and_new_master, tmp_path / "world", "headers-are-not-read", "never: the age is known")
