"""A task of a replay process follows the logs of a tserver: it, and what is around it, is stopped, killed and cut.

At each step of the way of a record: before the task asks, before it sends the record, before the peer has it, before it
brings the result. Nothing is lost, nothing is applied twice, and records go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.cluster import Node
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.late_writes import FLIGHT_MS
from tests.support.simulation.network import Net
from tests.support.simulation.pair import Pair
from tests.support.simulation.shown_lag import shown_ages
from tests.support.simulation.users import Write
from tests.support.simulation.world import LawBrokenError, World, simulation

ASKS, SENDS, RECEIVES = ("rpc-follow", "call follow"), ("sender", "call replicate"), ("rpc-replicate", "begin")
"""The task asks, or brings a result; it sends a record; the peer takes it."""

ROWS = 30

AWAY_S, BETWEEN_S, ROLLS_S = 60, 6, 20
"""The books are away for so long; a record comes after each of these times. Logs are due to end meanwhile."""

NEXT_S = 10.0
"""A record is at the peer within this time after its task died: nobody waits until the task is missed."""


def followed(world: World, tservers: int = 1, borders: Sequence[bytes] = (b"m",)) -> Pair:
    """A task follows: the second row went with it."""
    pair = Pair(world, tservers, splits=borders)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", b"a"))
    wait_for_poll(pair)
    pair.until_there(world.put(pair.west, "t", b"b"))
    wait_for_poll(pair)
    return pair


def wait_for_poll(pair: Pair) -> None:
    """A task waits for records."""
    world = pair.world
    world.until(lambda: is_followed(world, pair.owner()), "a poll waits")


def is_followed(world: World, node: Node) -> bool:
    """Whether a poll waits at a tserver."""
    return world.waiting_at("rpc-follow", "a condition", process=node.process) is not None


def soon_there(pair: Pair, writes: Sequence[Write]) -> None:
    """East has it before a task would be missed."""
    wanted = {write.value for write in writes}
    pair.world.until(lambda: wanted <= pair.there(), "it is at east", NEXT_S)


def stop_at(pair: Pair, step: tuple[str, ...]) -> int:
    """A row is on its way, and somebody is about to take this step; the number of the hold."""
    world = pair.world
    all_of_them = world.hold(*step)
    world.put(pair.west, "t", b"c")
    one = world.until_at(*step)
    hold = world.kernel.hold(lambda task: task is one)
    world.kernel.release(all_of_them)
    return hold


def go_on(pair: Pair, hold: int) -> None:
    """What was held goes on, later rows arrive, and all laws hold."""
    world = pair.world
    world.kernel.release(hold)
    pair.until_there(world.put(pair.west, "t", b"d"))
    pair.rest()


def killed(pair: Pair, step: tuple[str, ...]) -> None:
    """The replay process is killed; another one starts."""
    hold = stop_at(pair, step)
    (replay,) = pair.west.alive(pair.west.replays)
    pair.west.kill(replay)
    pair.west.start_replay()
    go_on(pair, hold)


def stopped(pair: Pair, step: tuple[str, ...]) -> None:
    """The ranges of a step that takes long are taken back, a run ships them, and what was held comes too late: within
    the time of R4, because a worker that stands still is ended long before (R20).
    """
    hold = stop_at(pair, step)
    (wrote,) = pair.world.put(pair.west, "t", b"e")
    pair.world.until(lambda: wrote.value in pair.there(), "it is at east", 45.0)
    pair.world.kernel.run_for(FLIGHT_MS / 2_000)
    go_on(pair, hold)


def cut(pair: Pair, step: tuple[str, ...]) -> None:
    """For some seconds, no answer comes back to the replay process."""
    (replay,) = pair.west.alive(pair.west.replays)
    hold = stop_at(pair, step)
    Net.now.lose_answer = lambda caller, method: caller == replay.process.name and method in ("follow", "replicate")
    pair.world.kernel.release(hold)
    pair.world.kernel.run_for(5.0)
    Net.now.calm()
    go_on(pair, hold)


def tserver_killed(pair: Pair, step: tuple[str, ...]) -> None:
    """The tserver is killed while its task lives: another one takes its log and its tablets."""
    hold = stop_at(pair, step)
    pair.replace(pair.owner())
    pair.world.until(pair.west.is_served, "another tserver serves it")
    go_on(pair, hold)


def zombie(pair: Pair, step: tuple[str, ...]) -> None:
    """The tserver is stopped, and counts as dead; its task goes on, and so does the tserver, later."""
    hold = stop_at(pair, step)
    old = pair.owner()
    old.process.suspended = True
    pair.west.expire(old)
    pair.west.start_tserver()
    pair.world.until(lambda: pair.west.is_served() and pair.owner() is not old, "another tserver serves it")
    pair.until_there(pair.world.put(pair.west, "t", b"e"))
    old.process.suspended = False
    go_on(pair, hold)


def sealed(pair: Pair, step: tuple[str, ...]) -> None:
    """The log ends while its task is on the way, and the next log begins."""
    hold = stop_at(pair, step)
    pair.world.roll(pair.owner())
    wrote = pair.world.put(pair.west, "t", b"e")
    pair.world.kernel.release(hold)
    pair.until_there(wrote)
    go_on(pair, hold)


def receiver_killed(pair: Pair, step: tuple[str, ...]) -> None:
    """A tserver of the peer dies."""
    hold = stop_at(pair, step)
    receiver = pair.east.alive(pair.east.tservers)[0]
    pair.east.kill(receiver)
    pair.east.start_tserver()
    go_on(pair, hold)


ACCIDENTS: dict[str, Callable[[Pair, tuple[str, ...]], None]] = {
    "the replay process is killed": killed,
    "stopped": stopped,
    "cut": cut,
    "the tserver is killed": tserver_killed,
    "a zombie follows": zombie,
    "the log is sealed": sealed,
    "the receiver is killed": receiver_killed,
}


@pytest.mark.parametrize("step", [ASKS, SENDS, RECEIVES], ids=["asks", "sends", "receives"])
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_an_accident_at_each_step_of_a_record_loses_nothing(
    accident: str, step: tuple[str, ...], tmp_path: Path
) -> None:
    with simulation(tmp_path / "world") as world:
        ACCIDENTS[accident](followed(world), step)


def a_stopped_task_comes_too_late_for_everything(world: World) -> None:
    """A task stands still before it sends a record. A run ships it, the log ends, both sides forget the stream, and
    tombstones are compacted. Then it sends.
    """
    pair = followed(world)
    hold = stop_at(pair, SENDS)
    pair.until_there(world.put(pair.west, "t", b"c", delete=True))
    used = {name for name, file in world.ledger.files.items() if file.instance == pair.west.instance}
    world.roll(pair.owner())
    world.until(lambda: not used & set(pair.west.logs()), "the logs are gone")
    world.until(lambda: not pair.east.books() and not pair.east.high_waters(), "the streams are over")
    go_on(pair, hold)


def both_ways(world: World) -> None:
    """Each record wakes the opposite task for a block that goes no further."""
    pair = followed(world)
    world.enable(pair.east, "t", pair.west)
    for row in (b"c", b"d", b"e"):
        pair.until_there(world.put(pair.west, "t", row))
        world.put(pair.east, "t", b"x" + row)
        world.kernel.run_for(1.0)
    pair.rest()


def a_task_after_the_other(world: World) -> None:
    """Rows arrive beside the change of tasks; no run ships any."""
    pair = followed(world)
    before = len(world.kernel.trace)
    for _ in range(16):
        pair.until_there(world.put(pair.west, "t", b"c"))
        world.kernel.run_for(8.0)
    assert not [line for line in world.kernel.trace[before:] if "call run at" in line], "a run ships at a change"
    pair.rest()


def the_master_hands_little_out(world: World) -> None:
    """Rows arrive one after the other. The master hears of most with the report that they are at the peer, so it has
    little to hand out, and what it shows is true. When no more rows come, it shows that nothing is missing.
    """
    pair = followed(world)
    world.kernel.observe = world.judge_lag
    before = len(world.kernel.trace)
    for _ in range(ROWS):
        pair.until_there(world.put(pair.west, "t", b"c"))
        world.kernel.run_for(0.05)
    world.kernel.run_for(0.5)
    leader = pair.west.leader()
    assert leader is not None
    with world.kernel.aside():
        assert not list(shown_ages(leader.part.leadership)), "a row that has arrived is shown as missing"
    handed_out = [line for line in world.kernel.trace[before:] if "call assign_work" in line]
    assert len(handed_out) <= ROWS / 3, "the master hands out what a task has shipped"
    pair.rest()


def clocks_jump(world: World) -> None:
    """The wall clock of the tserver jumps by hours, ahead and back: no task is missed, and no run ships anything."""
    pair = followed(world)
    clock = pair.owner().part._clock
    before = len(world.kernel.trace)
    for hours in (5, -5, 0):
        clock.skew_ms = hours * 3_600_000
        soon_there(pair, world.put(pair.west, "t", b"c"))
        world.kernel.run_for(3.0)
    assert not [line for line in world.kernel.trace[before:] if "call run at" in line], "a run ships after a jump"
    pair.rest()


def a_poll_whose_task_died(world: World) -> None:
    """The replay process is killed while its poll waits at the tserver. The next record goes with a run."""
    pair = followed(world)
    (replay,) = pair.west.alive(pair.west.replays)
    pair.west.kill(replay)
    pair.west.start_replay()
    world.kernel.run_for(1.0)
    soon_there(pair, world.put(pair.west, "t", b"c"))
    pair.rest()


def a_tablet_moves_while_its_record_is_sent(world: World) -> None:
    """A task is about to send the rows of two tablets, and one of these moves to another tserver. There its row is
    deleted: the streams of that tserver wait for the put.
    """
    pair = followed(world)
    first = pair.owner()
    hold = stop_at(pair, SENDS)
    world.put(pair.west, "t", b"x")
    pair.west.start_tserver()
    moved: list[bytes] = []

    def has_moved() -> bool:
        moved[:] = [row for row in (b"c", b"x") if pair.west.is_served() and pair.owner(row) is not first]
        return bool(moved)

    world.until(has_moved, "a tablet has moved")
    world.put(pair.west, "t", moved[0], delete=True)
    world.kernel.run_for(2.0)
    go_on(pair, hold)


def books_are_away(world: World) -> None:
    """The books of both clusters are away for a minute. Records of logs in use arrive all the time; a new log waits."""
    pair = Pair(world, 1, splits=[b"m"], settings={"tserver.wal_roll_age_ms": ROLLS_S * 1000})
    pair.enable()
    for row in (b"a", b"b"):
        pair.until_there(world.put(pair.west, "t", row))
        world.kernel.run_for(1.0)
    for cluster in (pair.west, pair.east):
        cluster.table.refuse = lambda _process: True
    for _ in range(AWAY_S // BETWEEN_S):
        soon_there(pair, world.put(pair.west, "t", b"b"))
        world.kernel.run_for(BETWEEN_S)
    world.roll(pair.owner())
    _, wrote = world.write(pair.west, "t", (b"c",))
    world.kernel.run_for(BETWEEN_S)
    assert wrote[0].value not in pair.there(), "R12: a log is used before the books name it"
    for cluster in (pair.west, pair.east):
        cluster.table.refuse = lambda _process: False
    pair.until_there(wrote)
    world.roll(pair.owner())
    pair.rest()


def books_are_away_from_runs(world: World) -> None:
    """The same, and no task asks."""
    world.hold("/follow-east-")
    books_are_away(world)


SCHEDULES = (
    a_stopped_task_comes_too_late_for_everything,
    both_ways,
    a_task_after_the_other,
    the_master_hands_little_out,
    clocks_jump,
    a_poll_whose_task_died,
    a_tablet_moves_while_its_record_is_sent,
    books_are_away,
    books_are_away_from_runs,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_of_a_task_that_follows(schedule: Callable[[World], None], tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        schedule(world)


RED: list[tuple[str, Callable[[World], None], type[AssertionError], str]] = [
    (
        "silent-tasks-keep-their-ranges",
        lambda world: stopped(followed(world), ASKS),
        StuckError,
        "never: it is at east",
    ),
    (
        "needed-offsets-are-told-first",
        the_master_hands_little_out,
        AssertionError,
        "the master hands out what a task has shipped",
    ),
    ("unknown-offsets-count-as-finished", a_tablet_moves_while_its_record_is_sent, LawBrokenError, "gap: "),
]


@pytest.mark.parametrize(("switch", "schedule", "error", "law"), RED)
def test_a_schedule_is_red_without_its_rule(
    switch: str, schedule: Callable[[World], None], error: type[AssertionError], law: str, tmp_path: Path
) -> None:
    with fault(switch), simulation(tmp_path / "world") as world, pytest.raises(error, match=law):
        schedule(world)
