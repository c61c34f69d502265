"""Schedules of docs/design/rules.md that need more than a master: real clusters over simulated edges, green with their
rule, red without it.

========  ========================  ===========================================================================
schedule  rules                     where
========  ========================  ===========================================================================
1-3, 8    R2, R3, R6, R7, R8        ``test_schedules_leaders``
4         R4                        ``test_schedules_files``
5-7, 9    R5, R6, R9                ``test_schedules_targets``
10, 11    R12                       here
12        R14                       here
13        R13                       here; its bulk import: ``tests/unit/replay/stream/test_segment_transfer``
14        R10                       ``test_schedules_files``
15, 16    R15                       here
17, 28    R17                       ``test_schedules_files``
18        R16                       ``tests/unit/master/test_border_laws``
19        R19                       here
20, 23    R18                       here
21        R24                       here
22        R24                       ``test_schedules_files``
24        R20                       here
25        R21                       here
26        R22                       ``test_schedules_paths``, and where it is a pure function
27        R5                        ``test_schedules_targets``
========  ========================  ===========================================================================

Schedules of one log with several tablets, tables, groups and incarnations are in ``test_schedules_one_log``; receivers
that work at the same time are in ``test_schedules_receivers``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.model import TargetKey
from tests.simulation import test_schedules_files, test_schedules_leaders, test_schedules_targets
from tests.support.faults import fault
from tests.support.simulation.disk import Disk
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.network import Net
from tests.support.simulation.pair import Pair, send
from tests.support.simulation.world import LawBrokenError, World, simulation
from tests.unit.master import test_border_laws as borders
from tests.unit.tserver.origins import test_origin_dedup as paths

ELSEWHERE = {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 17, 22, 27, 28}
IN_UNITS = {18: (borders, "r16"), 26: (paths, "r22_schedule_26")}
"""Schedules about a pure function: the module with tests of this name, and with switches beside them."""


# ---- the schedules


def schedule_10(world: World) -> None:
    """A write is acknowledged, and its tserver dies before it writes anything else to the books."""
    pair = Pair(world)
    pair.enable()
    owner = pair.owner()
    with world.held("books: put", process=owner.process):
        wrote = world.put(pair.west, "t", b"a")
        pair.replace(owner)
    pair.rest()
    pair.must_be_there(wrote)


def schedule_11(world: World) -> None:
    """Write, enable, write, all in one log, and the tserver dies."""
    pair = Pair(world)
    before = world.put(pair.west, "t", b"a")
    pair.enable()
    owner = pair.owner()
    with world.held("books: put", process=owner.process):
        after = world.put(pair.west, "t", b"a")
        pair.replace(owner)
    pair.rest()
    pair.must_be_there(after)
    pair.must_not_be_there(before)


def _slow_to_learn(world: World, pair: Pair, command: str, *arguments: object) -> None:
    """A command whose news reach the tserver late."""
    owner = pair.owner()
    world.hold("configuration:", process=owner.process)
    confirming = world.hold("rpc-confirm_config", process=owner.process)
    task = world.ask(pair.west, command, *arguments)
    world.kernel.run_for(1.5)
    if not task.done:  # as it should be
        world.kernel.release(confirming)
        world.until(lambda: task.done, command)


def schedule_12_enable(world: World) -> None:
    """``enablereplication`` returns, and a tserver that had not heard of it takes a write."""
    pair = Pair(world)
    _slow_to_learn(world, pair, "enable_replication", "t", [], "east", "")
    wrote = world.put(pair.west, "t", b"a")
    pair.rest()
    pair.must_be_there(wrote)


def schedule_12_disable(world: World) -> None:
    """The reverse."""
    pair = Pair(world)
    pair.enable()
    context = pair.owner().part.parts.writing.path.context
    world.until(lambda: context.view.generation == pair.west.config().generation, "the target is in force")
    _slow_to_learn(world, pair, "disable_replication", "t", [], "east")
    wrote = world.put(pair.west, "t", b"a")
    if any(block.block_targets for file in world.ledger.files.values() for block in file.blocks):
        raise LawBrokenError(f"{wrote[0].value!r} was written after the command had returned, and is stamped")
    pair.rest()
    pair.must_not_be_there(wrote)


def schedule_13(world: World) -> None:
    """One log holds records from before and after enabling: only the later ones travel."""
    pair = Pair(world)
    before = world.put(pair.west, "t", b"a")
    pair.enable()
    after = world.put(pair.west, "t", b"a")
    pair.until_there(after)
    pair.must_not_be_there(before)
    pair.rest()


def schedule_15(world: World) -> None:
    """A zombie appends to its log when recovery has counted it, and others serve its tablets."""
    pair = Pair(world, tservers=2)
    zombie = pair.owner()
    holds = [world.hold("lease:", process=zombie.process), world.hold("/commit-", ": append", process=zombie.process)]
    _, wrote = world.write(pair.west, "t", [b"a"])
    world.until_at("/commit-", ": append", process=zombie.process)
    pair.west.expire(zombie)
    extent = pair.west.extents("1")[0]
    world.until(lambda: pair.west.holder(extent) is not None, "another tserver serves it")
    world.kernel.release(holds[1])
    world.kernel.run_for(0.5)
    assert wrote[0].state in ("pending", "unknown", "acked")
    pair.rest()


def schedule_16(world: World) -> None:
    """Records that nobody synced yet travel in a run, and then their machine loses its power."""
    world.hold("/follow-east-")
    pair = Pair(world)
    pair.enable()
    owner = pair.owner()
    world.put(pair.west, "t", b"a")
    world.kernel.run_for(3.0)  # runs wait two seconds for the first task
    books = world.hold("books:", process=owner.process)
    world.put(pair.west, "t", b"a")
    syncing = world.hold("/commit-", ": sync", process=owner.process)
    world.put(pair.west, "t", b"a", durability="flush")
    world.kernel.release(books)
    world.kernel.run_for(1.0)
    pair.replace(owner, power=True)
    world.kernel.release(syncing)
    pair.rest()


def a_sync_that_fails(world: World) -> None:
    """A tserver's sync fails, and its log still shows what the disk lacks. The log is recovered, then its machine loses
    its power, and nothing of it has been shipped or flushed yet.
    """
    pair = Pair(world)
    pair.enable()
    owner = pair.owner()
    shipping = world.hold("replication-east")
    first = world.put(pair.west, "t", b"a")
    session = pair.west.session_of(owner)
    assert session is not None
    Disk.failing.add(session)
    world.write(pair.west, "t", [b"a"])
    world.until(lambda: owner.process.dead, "the tserver ends")
    heir = pair.west.start_tserver()
    world.until(pair.west.is_served, "its tablet is served again")
    pair.west.lose_power(session)
    pair.replace(heir)
    world.kernel.release(shipping)
    pair.rest()
    pair.must_be_there(first)


def a_flush_beside_a_sync(world: World) -> None:
    """A flush begins while a group of its tablet is written and not synced yet; then the tserver dies."""
    pair = Pair(world, splits=[b"m"])
    owner = pair.owner()
    first = world.put(pair.west, "t", b"a")
    syncing = world.hold("/commit-", ": sync", process=owner.process)
    writing, second = world.write(pair.west, "t", [b"b"])
    world.until_at("/commit-", ": sync", process=owner.process)
    extent, address = pair.west.extents("1")[0], owner.part.address
    flushing = world.client(pair.west, "flush", lambda pool: pool.tserver(address, 30_000).flush_tablet(extent))
    world.kernel.run_for(0.5)
    last, third = world.write(pair.west, "t", [b"x"])
    world.kernel.run_for(0.5)
    world.kernel.release(syncing)
    world.until(lambda: writing.done and flushing.done and last.done, "all are done")
    assert [write.state for write in (*first, *second, *third)] == ["acked"] * 3
    pair.replace(owner)
    pair.rest()


def _two_blocks(world: World, pair: Pair) -> tuple[str, TargetKey, int]:
    """Two records of one tablet in one log, and a sender that is held; returns file, target and the hold."""
    target = pair.enable()
    hold = world.hold("replication-east")
    world.put(pair.west, "t", b"a")
    world.put(pair.west, "t", b"a")
    return pair.owner().part.parts.writing.path.wal_name, target, hold


def schedule_19(world: World) -> None:
    """The range [2, 2] arrives before [1, 1]."""
    pair = Pair(world)
    file, target, hold = _two_blocks(world, pair)
    assert send(pair, file, target, 2, 2, 0) == ["gap behind 0"]
    assert send(pair, file, target, 1, 1, 0) == ["acknowledged"]
    world.kernel.release(hold)
    pair.rest()


def schedule_20_race(world: World) -> None:
    """Two receivers get the same range at the same time."""
    pair = Pair(world)
    file, target, hold = _two_blocks(world, pair)
    world.kernel.release(hold)
    assert send(pair, file, target, 1, 2, 0) == ["acknowledged"]
    pair.rest()


def schedule_20_crash(world: World) -> None:
    """A receiver dies after it has applied a range and before anybody hears of it."""
    pair = Pair(world)
    pair.enable()
    lost: list[str] = []

    def lose(_caller: str, method: str) -> bool:
        if method == "replicate" and not lost:
            lost.append(method)
            return True
        return False

    Net.now.lose_answer = lose
    wrote = world.put(pair.west, "t", b"a")
    world.until(lambda: bool(lost) and wrote[0].value in pair.there(), "it is applied and not answered")
    holder = pair.east.holder(next(extent for extent in pair.east.extents("2") if extent.contains(b"a")))
    assert holder is not None
    Net.now.calm()
    pair.replace(holder)
    pair.rest()


def schedule_21(world: World) -> None:
    """Put in w1, the tablet moves, delete in w2; the worker that ships w1 is slow."""
    pair = Pair(world, splits=[b"d", b"m", b"r"])
    pair.enable()
    first = pair.owner()
    slow = world.hold("replication-east", process=first.process)
    rows = (b"a", b"h", b"p", b"x")
    for row in rows:
        world.put(pair.west, "t", row)
    pair.west.start_tserver()
    world.until(
        lambda: pair.west.is_served() and any(pair.owner(row) is not first for row in rows), "some tablets move"
    )
    for row in rows:
        world.put(pair.west, "t", row, delete=True)
    world.kernel.run_for(2.0)
    world.kernel.release(slow)
    pair.rest()


def schedule_23(world: World) -> None:
    """A put is sent again when its delete has arrived."""
    pair = Pair(world)
    target = pair.enable()
    world.put(pair.west, "t", b"a")
    pair.until_there(world.put(pair.west, "t", b"a", delete=True))
    file = pair.owner().part.parts.writing.path.wal_name
    assert send(pair, file, target, 1, 1, 0) == ["acknowledged"]
    pair.rest()


def schedule_24(world: World) -> None:
    """A message is under way inside the peer when its stream ends: it arrives before the grace is over."""
    pair = Pair(world)
    pair.enable()
    world.hold("lease:")
    world.hold("rpc-apply_replicated: begin", "rpc")
    wrote = [*world.put(pair.west, "t", b"a"), *world.put(pair.west, "t", b"k"), *world.put(pair.west, "t", b"x")]
    file = pair.owner().part.parts.writing.path.wal_name
    late = world.until_at("rpc-apply_replicated: begin")
    world.kernel.holds.clear()
    world.kernel.hold(lambda task: task is late)
    pair.until_there(wrote)
    world.roll(pair.owner())
    world.until(lambda: file not in pair.west.logs(), "the log is gone")
    world.kernel.run_for(1.5)
    world.kernel.holds.clear()
    pair.rest()


def schedule_25(world: World) -> None:
    """A cluster's own writes lie in one log with what came from the peer: they travel all the same."""
    pair = Pair(world)
    world.enable(pair.east, "t", pair.west)
    pair.enable()
    theirs = world.put(pair.east, "t", b"a")
    world.until(
        lambda: theirs[0].value in {entry.value for entry in pair.west.entries("1")}, "east's record is at west"
    )
    ours = world.put(pair.west, "t", b"a")
    pair.rest()
    pair.must_be_there(ours)


SCHEDULES: dict[
    str, tuple[Callable[[World], None], str, tuple[str, ...]]
] = {  # a schedule, its law, and the switches that turn it red
    "10": (schedule_10, "deleted early", ("log-without-repl",)),
    "11": (schedule_11, "deleted early", ("enabling-needs-no-cell",)),
    "12 enable": (schedule_12_enable, "promised and missing", ("all-are-confirmed",)),
    "12 disable": (schedule_12_disable, "after the command had returned, and is stamped", ("all-are-confirmed",)),
    "13": (schedule_13, "not meant", ("today's-configuration-counts",)),
    "15": (schedule_15, "lost: Write", ("no-fence",)),
    "16": (schedule_16, "not durable", ("written-counts-as-synced",)),
    "19": (schedule_19, "gap: ", ("gaps-are-swallowed",)),
    "20 race": (schedule_20_race, "twice: ", ("high-water-does-not-count and paths-are-not-compared",)),
    "20 crash": (schedule_20_crash, "twice: ", ("high-water-not-rebuilt and paths-are-not-compared",)),
    "21": (schedule_21, "gap: ", ("moves-leave-no-trace", "no-barriers-in-the-books", "barriers-do-not-hold")),
    "23": (schedule_23, "twice: ", ("high-water-does-not-count and paths-are-not-compared",)),
    "24": (
        schedule_24,
        "twice: ",
        ("streams-are-forgotten-at-once and ended-streams-are-accepted and paths-are-not-compared",),
    ),
    "25": (schedule_25, "claimed: ", ("provenance-is-the-file's",)),
}
RED = [(number, name) for number, (_, _, names) in SCHEDULES.items() for name in names]


def test_a_flush_that_begins_beside_a_sync_loses_nothing(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        a_flush_beside_a_sync(world)


def test_if_it_did_not_wait_for_what_is_under_way_it_would(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="lost: Write")
    with fault("flushes-begin-anywhere"), simulation(tmp_path / "world") as world, red:
        a_flush_beside_a_sync(world)


def test_a_log_that_was_recovered_after_a_failed_sync_survives_a_power_failure(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        a_sync_that_fails(world)


def test_if_recovery_believed_the_page_cache_it_would_not(tmp_path: Path) -> None:
    red = pytest.raises(StuckError, match="never: all is served")
    with fault("the-page-cache-is-believed"), simulation(tmp_path / "world") as world, red:
        a_sync_that_fails(world)


@pytest.mark.parametrize("number", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(number: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[number][0](world)


@pytest.mark.parametrize(("number", "name"), RED)
def test_a_schedule_is_red_without_its_rule(number: str, name: str, tmp_path: Path) -> None:
    schedule, law, _ = SCHEDULES[number]
    with fault(name), simulation(tmp_path / "world") as world, pytest.raises(LawBrokenError, match=law):
        schedule(world)


def test_every_schedule_has_its_place() -> None:
    here = {int(number.split()[0]) for number in SCHEDULES}
    assert here | ELSEWHERE | IN_UNITS.keys() == set(range(1, 29))
    modules = (test_schedules_files, test_schedules_leaders, test_schedules_targets)
    names = [name for module in modules for name in dir(module)]
    for number in ELSEWHERE:
        assert any(name.startswith(f"test_{number}_") and "_red_" not in name for name in names)
        assert any(name.startswith(f"test_{number}_red_") for name in names)
    for module, about in IN_UNITS.values():
        assert any(name.startswith(f"test_{about}_") for name in dir(module))
