"""Schedules of books.md that need more than a master: real clusters over simulated edges, green with their rule, red
without it.

========  =====================================================================================================
schedule  where
========  =====================================================================================================
1-3, 8    ``test_schedules_leaders``
4         ``test_schedules_files``
5-7, 9    ``test_schedules_targets``
10-13     here (13: the part of it without bulk import)
14        ``test_schedules_files``
15, 16    here
17        ``test_schedules_files``
18        part 3: it needs merges
19-21     here
22        ``test_schedules_files``
23-25     here
26        part 3: it needs a second path
27        ``test_schedules_targets``
28        ``test_schedules_files``
========  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bookkeeper.errors import GapError
from bookkeeper.model import StreamKey, TargetKey
from bookkeeper.rpc.messages import ReplicateRequest, SourceBlock
from bookkeeper.storage.wal import read_blocks
from tests.simulation import test_schedules_files, test_schedules_leaders, test_schedules_targets
from tests.support.faults import fault
from tests.support.simulation.cluster import Node
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.network import Net, SimPool
from tests.support.simulation.users import Write
from tests.support.simulation.world import LawBrokenError, World, simulation

ELSEWHERE = {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 17, 22, 27, 28}
PART_3 = {18, 26}


class Stage:
    """Two clusters, table t in both."""

    def __init__(self, world: World, tservers: int = 1, splits: Sequence[bytes] = ()) -> None:
        self.world = world
        self.west, self.east = world.add_cluster("west"), world.add_cluster("east")
        self.west.create_table("t", "1", splits)
        self.east.create_table("t", "2", [b"g", b"t"])
        self.west.define(self.east)
        self.east.define(self.west)
        world.boot(self.east)
        world.boot(self.west, tservers=tservers)

    def enable(self) -> TargetKey:
        """West's table goes to east."""
        return self.world.enable(self.west, "t", self.east)

    def owner(self, row: bytes = b"a") -> Node:
        """Who serves a row in west."""
        extent = next(extent for extent in self.west.extents("1") if extent.contains(row))
        node = self.west.holder(extent)
        assert node is not None
        return node

    def there(self) -> set[bytes]:
        """What east has."""
        return {entry.value for entry in self.east.entries("2")}

    def until_there(self, writes: Sequence[Write]) -> None:
        """Wait until east has it."""
        self.world.until(lambda: {write.value for write in writes} <= self.there(), "it is at east")

    def replace(self, node: Node, power: bool = False) -> None:
        """Kill a tserver and start another."""
        cluster = self.world.clusters[node.process.cluster]
        cluster.kill(node, power)
        cluster.start_tserver()

    def rest(self) -> None:
        """Everything comes to rest, and all laws hold."""
        self.world.rest(60.0)
        judge_at_rest(self.world)

    def must_be_there(self, writes: Sequence[Write]) -> None:
        """East has what was written after ``enablereplication`` had returned."""
        missing = {write.value for write in writes} - self.there()
        if missing:
            raise LawBrokenError(f"written after the command had returned, and not at east: {missing}")

    def must_not_be_there(self, writes: Sequence[Write]) -> None:
        """East lacks what was written after ``disablereplication`` had returned."""
        found = {write.value for write in writes} & self.there()
        if found:
            raise LawBrokenError(f"written after the command had returned, and at east: {found}")


def send(stage: Stage, file: str, target: TargetKey, first: int, last: int, acked: int) -> list[str]:
    """A zombie of a sender ships records ``first`` to ``last``; returns what it was told."""
    told: list[str] = []
    east = stage.east
    stream = StreamKey(stage.west.instance, file, target.source_table_id, target.remote_table_id, target.incarnation)
    blocks = tuple(
        SourceBlock(b.first_offset, b.last_offset, b.payload.to_pybytes(), b.header.record_count, b"", b"")
        for b in read_blocks(file, first, last)
    )

    def run(pool: SimPool) -> None:
        tserver = pool.tserver(east.booted(east.tservers)[0].part.address, 2_000)
        token = tserver.open_stream(stream)
        try:
            tserver.replicate(ReplicateRequest(token, stream, (stage.west.instance,), acked, first - 1, last, blocks))
            told.append("acknowledged")
        except GapError as error:
            told.append(f"gap behind {error.high_water}")

    task = stage.world.client(stage.west, "zombie sender", run)
    stage.world.until(lambda: task.done, "the zombie sender was answered")
    return told


# ---- the schedules


def schedule_10(world: World) -> None:
    """A write is acknowledged, and its tserver dies before it writes anything else to the books."""
    stage = Stage(world)
    stage.enable()
    owner = stage.owner()
    with world.held("books: put", process=owner.process):
        wrote = world.put(stage.west, "t", b"a")
        stage.replace(owner)
    stage.rest()
    stage.must_be_there(wrote)


def schedule_11(world: World) -> None:
    """Write, enable, write, all in one log, and the tserver dies."""
    stage = Stage(world)
    before = world.put(stage.west, "t", b"a")
    stage.enable()
    owner = stage.owner()
    with world.held("books: put", process=owner.process):
        after = world.put(stage.west, "t", b"a")
        stage.replace(owner)
    stage.rest()
    stage.must_be_there(after)
    stage.must_not_be_there(before)


def _slow_to_learn(world: World, stage: Stage, command: str, *arguments: object) -> None:
    """A command whose news reach the tserver late."""
    owner = stage.owner()
    world.hold("configuration:", process=owner.process)
    confirming = world.hold("rpc-confirm_config", process=owner.process)
    task = world.ask(stage.west, command, *arguments)
    world.kernel.run_for(1.5)
    if not task.done:  # as it should be
        world.kernel.release(confirming)
        world.until(lambda: task.done, command)


def schedule_12_enable(world: World) -> None:
    """``enablereplication`` returns, and a tserver that had not heard of it takes a write."""
    stage = Stage(world)
    _slow_to_learn(world, stage, "enable_replication", "t", [], "east", "")
    wrote = world.put(stage.west, "t", b"a")
    stage.rest()
    stage.must_be_there(wrote)


def schedule_12_disable(world: World) -> None:
    """The reverse."""
    stage = Stage(world)
    stage.enable()
    desk = stage.owner().part.parts.path.desk
    world.until(lambda: desk.view.generation == stage.west.config().generation, "the target is in force")
    _slow_to_learn(world, stage, "disable_replication", "t", [], "east")
    wrote = world.put(stage.west, "t", b"a")
    if any(block.stamps for file in world.ledger.files.values() for block in file.blocks):
        raise LawBrokenError(f"{wrote[0].value!r} was written after the command had returned, and is stamped")
    stage.rest()
    stage.must_not_be_there(wrote)


def schedule_13(world: World) -> None:
    """What was written before enabling lies in the same log as what is written after: only the latter travels."""
    stage = Stage(world)
    before = world.put(stage.west, "t", b"a")
    stage.enable()
    after = world.put(stage.west, "t", b"a")
    stage.until_there(after)
    stage.must_not_be_there(before)
    stage.rest()


def schedule_15(world: World) -> None:
    """A zombie appends to its log when recovery has counted it, and others serve its tablets."""
    stage = Stage(world, tservers=2)
    zombie = stage.owner()
    holds = [world.hold("lease:", process=zombie.process), world.hold("commit: append", process=zombie.process)]
    _, wrote = world.write(stage.west, "t", [b"a"])
    world.until_at("commit: append", process=zombie.process)
    stage.west.expire(zombie)
    extent = stage.west.extents("1")[0]
    world.until(lambda: stage.west.holder(extent) is not None, "somebody else serves it")
    world.kernel.release(holds[1])
    world.kernel.run_for(0.5)
    assert wrote[0].state in ("pending", "unknown", "acked")
    stage.rest()


def schedule_16(world: World) -> None:
    """Records that nobody synced yet travel, and then their machine loses its power."""
    stage = Stage(world)
    stage.enable()
    owner = stage.owner()
    books = world.hold("books:", process=owner.process)
    world.put(stage.west, "t", b"a")
    syncing = world.hold("commit: sync", process=owner.process)
    world.put(stage.west, "t", b"a", durability="flush")
    world.kernel.release(books)
    world.kernel.run_for(1.0)
    stage.replace(owner, power=True)
    world.kernel.release(syncing)
    stage.rest()


def _two_blocks(world: World, stage: Stage) -> tuple[str, TargetKey, int]:
    """Two records of one tablet in one log, and a sender that is held; returns file, target and the hold."""
    target = stage.enable()
    hold = world.hold("replication-east")
    world.put(stage.west, "t", b"a")
    world.put(stage.west, "t", b"a")
    return stage.owner().part.parts.path.desk.wal_uri(), target, hold


def schedule_19(world: World) -> None:
    """The range [2, 2] arrives before [1, 1]."""
    stage = Stage(world)
    file, target, hold = _two_blocks(world, stage)
    assert send(stage, file, target, 2, 2, 0) == ["gap behind 0"]
    assert send(stage, file, target, 1, 1, 0) == ["acknowledged"]
    world.kernel.release(hold)
    stage.rest()


def schedule_20_race(world: World) -> None:
    """Two receivers get the same range at the same time."""
    stage = Stage(world)
    file, target, hold = _two_blocks(world, stage)
    world.kernel.release(hold)
    assert send(stage, file, target, 1, 2, 0) == ["acknowledged"]
    stage.rest()


def schedule_20_crash(world: World) -> None:
    """A receiver dies after it has applied a range and before anybody hears of it."""
    stage = Stage(world)
    stage.enable()
    lost: list[str] = []

    def lose(_caller: str, method: str) -> bool:
        if method == "replicate" and not lost:
            lost.append(method)
            return True
        return False

    Net.now.lose_answer = lose
    wrote = world.put(stage.west, "t", b"a")
    world.until(lambda: bool(lost) and wrote[0].value in stage.there(), "it is applied and not answered")
    holder = stage.east.holder(next(extent for extent in stage.east.extents("2") if extent.contains(b"a")))
    assert holder is not None
    Net.now.calm()
    stage.replace(holder)
    stage.rest()


def schedule_21(world: World) -> None:
    """Put in w1, the tablet moves, delete in w2; the worker that ships w1 is slow."""
    stage = Stage(world, splits=[b"d", b"m", b"r"])
    stage.enable()
    first = stage.owner()
    slow = world.hold("replication-east", process=first.process)
    rows = (b"a", b"h", b"p", b"x")
    for row in rows:
        world.put(stage.west, "t", row)
    stage.west.start_tserver()
    world.until(
        lambda: stage.west.is_served() and any(stage.owner(row) is not first for row in rows), "some tablets move"
    )
    for row in rows:
        world.put(stage.west, "t", row, delete=True)
    world.kernel.run_for(2.0)
    world.kernel.release(slow)
    stage.rest()


def schedule_23(world: World) -> None:
    """A put is sent again when its delete has arrived."""
    stage = Stage(world)
    target = stage.enable()
    world.put(stage.west, "t", b"a")
    stage.until_there(world.put(stage.west, "t", b"a", delete=True))
    file = stage.owner().part.parts.path.desk.wal_uri()
    assert send(stage, file, target, 1, 1, 0) == ["acknowledged"]
    stage.rest()


def schedule_24(world: World) -> None:
    """A message is under way inside the peer when its stream ends: it arrives before the grace is over."""
    stage = Stage(world)
    stage.enable()
    world.hold("lease:")
    world.hold("rpc-apply_replicated: begin", "rpc")
    wrote = [*world.put(stage.west, "t", b"a"), *world.put(stage.west, "t", b"k"), *world.put(stage.west, "t", b"x")]
    late = world.until_at("rpc-apply_replicated: begin")
    world.kernel.holds.clear()
    world.kernel.hold(lambda task: task is late)
    stage.until_there(wrote)
    file = stage.owner().part.parts.path.desk.wal_uri()
    world.roll(stage.owner())
    world.until(lambda: file not in stage.west.logs(), "the log is gone")
    world.kernel.run_for(1.5)
    world.kernel.holds.clear()
    stage.rest()


def schedule_25(world: World) -> None:
    """A cluster's own writes lie in one log with what came from the peer: they travel all the same."""
    stage = Stage(world)
    world.enable(stage.east, "t", stage.west)
    stage.enable()
    theirs = world.put(stage.east, "t", b"a")
    world.until(
        lambda: theirs[0].value in {entry.value for entry in stage.west.entries("1")}, "what east wrote is at west"
    )
    ours = world.put(stage.west, "t", b"a")
    stage.rest()
    stage.must_be_there(ours)


SCHEDULES: dict[str, tuple[Callable[[World], None], tuple[str, ...]]] = {
    "10": (schedule_10, ("log-without-repl",)),
    "11": (schedule_11, ("enabling-needs-no-cell",)),
    "12 enable": (schedule_12_enable, ("all-are-confirmed",)),
    "12 disable": (schedule_12_disable, ("all-are-confirmed",)),
    "13": (schedule_13, ("today's-configuration-counts",)),
    "15": (schedule_15, ("no-fence",)),
    "16": (schedule_16, ("written-counts-as-synced",)),
    "19": (schedule_19, ("gaps-are-swallowed",)),
    "20 race": (schedule_20_race, ("high-water-does-not-count",)),
    "20 crash": (schedule_20_crash, ("high-water-not-rebuilt",)),
    "21": (schedule_21, ("moves-leave-no-trace", "no-barriers-in-the-books", "barriers-do-not-hold")),
    "23": (schedule_23, ("high-water-does-not-count",)),
    "24": (schedule_24, ("streams-are-forgotten-at-once",)),
    "25": (schedule_25, ("provenance-is-the-file's",)),
}
RED = [(number, name) for number, (_, names) in SCHEDULES.items() for name in names]


@pytest.mark.parametrize("number", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(number: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[number][0](world)


@pytest.mark.parametrize(("number", "name"), RED)
def test_a_schedule_is_red_without_its_rule(number: str, name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world, fault(name), pytest.raises(LawBrokenError):
        SCHEDULES[number][0](world)


def test_every_schedule_has_its_place() -> None:
    here = {int(number.split()[0]) for number in SCHEDULES}
    assert here | ELSEWHERE | PART_3 == set(range(1, 29))
    modules = (test_schedules_files, test_schedules_leaders, test_schedules_targets)
    names = [name for module in modules for name in dir(module)]
    for number in ELSEWHERE:
        assert any(name.startswith(f"test_{number}_") and "_red_" not in name for name in names)
        assert any(name.startswith(f"test_{number}_red_") for name in names)
