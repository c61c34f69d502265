"""Writes that arrive in the books long after their process died: nothing comes back, and nothing is left over (R4).

One schedule for each kind of write. A process dies in the middle of it, and others do its work to the end: the log is
shipped and deleted, its streams are over. Then the write arrives, and all tservers start anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.kernel import StuckError, Task
from tests.support.simulation.late_writes import FLIGHT_MS, LATE_MAX_MS
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation

LATE_S = LATE_MAX_MS / 1000 - 0.5
ROW = b"a"
ROUNDS_MAX = 6

KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "first use": ("west", ("put", "log:")),
    "needed offset": ("west", ("/books: put", "repl:")),
    "needed cell": ("west", ("/cycle", "put b'~repl_")),
    "finished offset": ("west", ("put", "done:")),
    "received offset": ("east", ("put", "recv:")),
    "operation": ("west", ("put", "fate:op")),
    "step": ("west", ("put", "fate:step")),
    "mark": ("west", ("put", "del:")),
    "location": ("west", ("put", "location:")),
    "serial": ("west", ("put", "tablet:serial")),
    "state": ("west", ("put", "tablet:flush")),
    "end of a use": ("west", ("delete", "log:")),
    "purge of needed cells": ("west", ("delete b'~repl_", "repl:")),
    "purge of finished cells": ("west", ("purge", "done:")),
    "purge of received cells": ("east", ("purge", "recv:")),
    "purge of a mark": ("west", ("purge", "del:")),
    "purge of an operation": ("west", ("purge", "fate:")),
}
"""The cluster whose process dies, and words of the step that is late."""

AT_ONCE = ("first use", "needed offset", "received offset")
"""Kinds of each run; ``make test-long`` plays all."""

BOUND = {"first use": "is not served", "received offset": "~recv_"}
"""Kinds that rest on the time of R4, and the harm without it. What arrives late of all others is void in itself, or
found and removed, however late it is.
"""

LOOK_S = 80.0
"""A tserver looks for late uses within this time."""

MUCH_LATER_S = 3 * FLIGHT_MS / 1000


class Late:
    """A pair in which a write is late."""

    def __init__(self, world: World, kind: str) -> None:
        self.world = world
        self.pair = Pair(world, tservers=2)
        self.pair.enable()
        name, self.words = KINDS[kind]
        self.cluster: Cluster = world.clusters[name]
        self.wrote = world.put(self.pair.west, "t", ROW)

    def use(self) -> None:
        """The tablet is flushed, its tserver is killed, and all logs end: each kind of write happens."""
        west = self.pair.west
        self.world.until(west.is_served, "west serves its table", look_every=5)
        task, wrote = self.world.write(west, "t", [ROW])
        self.wrote += wrote
        owner = self.pair.owner(ROW)
        address, extent = owner.part.address, west.extents("1")[0]
        self.world.client(west, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))
        self.world.kernel.spawn(owner.process, "roll", lambda: owner.part.parts.writing.committer.roll() and None)
        self.world.kernel.run_for(2.0)
        if not task.done or self.stopped() is not None:
            return
        west.kill(owner)
        west.start_tserver()
        self.world.kernel.run_for(8.0)

    def lose(self, after_s: float) -> None:
        """A process dies before a write of the kind, which arrives after this time."""
        hold = self.world.kernel.hold(self.is_late)
        for _ in range(ROUNDS_MAX):
            if (task := self.stopped()) is not None:
                break
            self.use()
        assert task is not None, f"nobody writes {self.words}"
        label, way = task.label, self.cluster.table.way
        way.delay_ns = lambda step: int(after_s * 1e9) if step == label else None
        self.replace(self.node_of(task.process))
        assert way.under_way, label
        way.calm()
        self.world.kernel.release(hold)

    def is_late(self, task: Task) -> bool:
        """Whether the next step of a task is a write of the kind."""
        said = task.next_step
        return task.process.cluster == self.cluster.name and all(word in said for word in self.words)

    def stopped(self) -> Task | None:
        """The task that is about to write."""
        return next(filter(self.is_late, self.world.kernel.tasks), None)

    def node_of(self, process: object) -> Node:
        """The node of a process."""
        nodes = (*self.cluster.masters, *self.cluster.tservers, *self.cluster.replays)
        return next(node for node in nodes if node.process is process)

    def replace(self, node: Node) -> None:
        """Kill a process and start another."""
        self.cluster.kill(node)
        if node in self.cluster.masters:
            self.cluster.start_master()
        else:
            self.cluster.start_tserver()

    def end_all(self) -> None:
        """Everything that was written is shipped, and each log is deleted."""
        cluster = self.pair.west
        self.world.until(lambda: self.pair.west.is_served() and self.pair.east.is_served(), "all is served")
        old = {name for name, file in self.world.ledger.files.items() if file.instance == cluster.instance}
        for node in cluster.booted(cluster.tservers):
            self.world.roll(node)
        self.world.until(lambda: not old & set(cluster.logs()), "the logs are gone")

    def arrive(self) -> None:
        """The write arrives, and all processes start anew."""
        self.world.until(lambda: not self.cluster.table.way.under_way, "the write arrives", look_every=20)
        for cluster in self.world.clusters.values():
            for node in cluster.alive(cluster.tservers):
                cluster.kill(node)
                cluster.start_tserver()
        self.pair.rest()


def a_late_write(world: World, kind: str, after_s: float = LATE_S) -> None:
    """A write of this kind arrives after everything about it is over."""
    late = Late(world, kind)
    late.lose(after_s)
    late.end_all()
    late.arrive()


def some(kinds: Iterable[str]) -> pytest.MarkDecorator:
    """Those of each run, and the others of ``make test-long``."""
    marked = [pytest.param(kind, marks=() if kind in AT_ONCE else pytest.mark.long) for kind in kinds]
    return pytest.mark.parametrize("kind", marked)


def played(directory: Path, kind: str, after_s: float = LATE_S) -> None:
    """Play the schedule; something that is left over breaks a law, too."""
    with simulation(directory / "world") as world:
        try:
            a_late_write(world, kind, after_s)
        except StuckError as error:
            raise LawBrokenError("; ".join([str(error), *getattr(error, "__notes__", ())])) from error


@some(KINDS)
def test_r4_a_write_within_its_time_changes_nothing(kind: str, tmp_path: Path) -> None:
    played(tmp_path, kind)


@pytest.mark.parametrize("kind", BOUND)
def test_r4_red_nobody_waits_for_late_writes(kind: str, tmp_path: Path) -> None:
    with fault("nothing-is-on-its-way"), pytest.raises(LawBrokenError, match=BOUND[kind]):
        played(tmp_path, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BOUND])
def test_a_write_of_another_kind_may_be_later_than_r4(kind: str, tmp_path: Path) -> None:
    played(tmp_path, kind, MUCH_LATER_S)


@pytest.mark.long
@pytest.mark.parametrize("kind", BOUND)
def test_r4_a_machine_that_was_paused_for_longer_does_this_harm(kind: str, tmp_path: Path) -> None:
    """The limit of R4: supervisor and gateway stand still with the process, and nobody ends them."""
    with pytest.raises(LawBrokenError, match=BOUND[kind]):
        played(tmp_path, kind, MUCH_LATER_S)


def a_first_use_is_repeated(world: World) -> None:
    """The first use of a log gets no answer, and is put again. The log ends, the tablet needs nothing of it, and HBase
    drops the tombstone of the use. Then the first put arrives, before the collector deletes the log. The tserver serves
    the tablet all the time.
    """
    pair = Pair(world, tservers=2)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", ROW))
    owner, table = pair.owner(ROW), pair.west.table
    world.roll(owner)
    table.way.answers = lambda label: "log:" not in label
    table.way.delay_ns = lambda label: int(LATE_S * 1e9) if "log:" in label else None
    task, wrote = world.write(pair.west, "t", [ROW])
    world.until(lambda: bool(table.way.under_way), "a first use has no answer")
    table.way.calm()
    world.until(lambda: task.done, "it was put again")
    hold = world.hold("west.m0", "/collector")
    pair.until_there(wrote)
    world.roll(owner)
    extent = pair.west.extents("1")[0]
    world.client(pair.west, "flush", lambda pool: pool.tserver(owner.part.address, 3_000).flush_tablet(extent))
    world.kernel.run_for(2.0)
    table.compact_now()
    world.until(lambda: not table.way.under_way, "the write arrives", look_every=20)
    world.kernel.release(hold)
    world.rest(LOOK_S)
    judge_at_rest(world)


def test_r4_a_first_use_that_was_repeated_arrives_when_its_log_is_over(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        a_first_use_is_repeated(world)


def test_r4_red_a_first_use_that_was_repeated_retains_its_log(tmp_path: Path) -> None:
    with (
        fault("late-uses-stay"),
        simulation(tmp_path / "world") as world,
        pytest.raises(StuckError, match="never: rest"),
    ):
        a_first_use_is_repeated(world)
