"""Two clusters that replicate into each other, and everything that may happen to them.

Arrives: choices, as small numbers, so that any sequence of them is a schedule. Leaves: the world they led to. Each
choice is one thing that happens in the world; between two of them random tasks go on for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.kernel import Task
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.network import Net
from tests.support.simulation.world import World

T = TypeVar("T")
ROWS = (b"a", b"h", b"k", b"p", b"x")
TABLES = ("t", "t", "u")
DURABILITIES = ("sync", "sync", "log", "flush", "none")
PROCESSES_MAX = 5
"""Processes of one kind that live at once, zombies included."""


class Chaos:
    """What a schedule does. Every method takes any number."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.kernel = world.kernel
        self.rng = Random(seed)
        self.west, self.east = world.add_cluster("west"), world.add_cluster("east")
        self.west.create_table("t", "1", [b"m"])
        self.west.create_table("u", "3", [])
        self.east.create_table("t", "2", [b"g", b"t"])
        self.east.create_table("u", "4", [b"k"])
        for cluster, peer in ((self.west, self.east), (self.east, self.west)):
            cluster.define(peer)
            world.boot(cluster, masters=2)
        world.enable(self.west, "t", self.east)
        self._slow: list[int] = []

    # ---- users

    def write(self, number: int) -> None:
        """A user writes a record, or deletes one."""
        cluster = self.west if number % 4 else self.east
        self.world.write(
            cluster,
            pick(TABLES, number // 4),
            [pick(ROWS, number // 12)],
            delete=number % 5 == 0,
            durability=pick(DURABILITIES, number // 60),
        )

    def write_two(self, number: int) -> None:
        """A user writes two records of one tablet in one call."""
        self.world.write(self.west, "t", [b"a", b"h"] if number % 2 else [b"p", b"x"])

    def reconfigure(self, number: int) -> None:
        """An operator enables or disables replication."""
        cluster, peer = (self.west, self.east) if number % 3 else (self.east, self.west)
        if cluster.leader() is None:
            return
        table = pick(("t", "u"), number // 3)
        if number // 6 % 3:
            self.world.ask(cluster, "enable_replication", table, [], peer.name, "")
        else:
            self.world.ask(cluster, "disable_replication", table, [], peer.name)

    # ---- what clusters do by themselves

    def roll(self, number: int) -> None:
        """A log is full."""
        node = self._node(number, lambda cluster: cluster.booted(cluster.tservers))
        if node is not None:
            self.kernel.spawn(node.process, "roll", lambda: node.part.parts.committer.roll() and None)

    def flush(self, number: int) -> None:
        """A tablet is full."""
        node = self._node(number, lambda cluster: cluster.booted(cluster.tservers))
        if node is None:
            return
        tablets = [tablet for tablet in node.part.parts.registry.all() if tablet.accepting]
        if tablets:
            tablet = pick(tablets, number // 7)
            self.world.client(
                self._cluster_of(node),
                "flush",
                lambda pool: pool.tserver(node.part.address, 3_000).flush_tablet(tablet.extent),
            )

    def move(self, number: int) -> None:
        """One more tserver: tablets move to it."""
        cluster = self._cluster(number)
        if len(cluster.alive(cluster.tservers)) < PROCESSES_MAX:
            cluster.start_tserver()

    def compact_books(self, number: int) -> None:
        """The store drops what nobody can see, and old tombstones."""
        self._cluster(number).table.compact_now()

    # ---- faults

    def kill_tserver(self, number: int) -> None:
        """kill -9, or a power failure; its supervisor starts another."""
        cluster = self._cluster(number)
        alive = cluster.alive(cluster.tservers)
        if alive:
            cluster.kill(pick(alive, number // 3), power=number // 15 % 2 == 1)
            cluster.start_tserver()

    def kill_master(self, number: int) -> None:
        """kill -9."""
        cluster = self._cluster(number)
        alive = cluster.alive(cluster.masters)
        if alive:
            cluster.kill(pick(alive, number // 3))
            cluster.start_master()

    def kill_replay(self, number: int) -> None:
        """kill -9."""
        cluster = self._cluster(number)
        for node in cluster.alive(cluster.replays):
            cluster.kill(node)
        cluster.start_replay()

    def depose(self, number: int) -> None:
        """The master's session ends while it goes on."""
        cluster = self._cluster(number)
        leader = cluster.leader()
        if leader is not None and len(cluster.alive(cluster.masters)) < 3:
            cluster.expire(leader)
            cluster.start_master()

    def zombie(self, number: int) -> None:
        """A tserver's session ends; it is stopped, or goes on until it notices."""
        cluster = self._cluster(number)
        booted = cluster.booted(cluster.tservers)
        if booted and len(cluster.alive(cluster.tservers)) < PROCESSES_MAX:
            node = pick(booted, number // 3)
            node.process.suspended = number // 12 % 2 == 0
            cluster.expire(node)
            cluster.start_tserver()

    def suspend(self, number: int) -> None:
        """A process stops for a while, and nobody knows."""
        node = self._node(number, lambda c: [*c.alive(c.tservers), *c.alive(c.masters), *c.alive(c.replays)])
        if node is not None:
            node.process.suspended = True

    def resume(self, _number: int) -> None:
        """Whatever was stopped goes on."""
        for cluster in (self.west, self.east):
            for node in [*cluster.masters, *cluster.tservers, *cluster.replays]:
                node.process.suspended = False
        for hold in self._slow:
            self.kernel.release(hold)
        self._slow.clear()

    def delay(self, number: int) -> None:
        """One call, or one thread, is slow."""
        waiting = self.kernel.runnable()
        if waiting and len(self._slow) < 3:
            slow = pick(waiting, number)
            self._slow.append(self.kernel.hold(lambda task: task is slow))

    def lossy(self, number: int) -> None:
        """Requests or answers are lost, one in some."""
        odds = number % 4 / 10
        rng = self.rng
        if number // 4 % 2:
            Net.now.lose_answer = lambda _caller, _method: rng.random() < odds
        else:
            Net.now.lose_request = lambda _caller, _method: rng.random() < odds

    def unreadable(self, number: int) -> None:
        """The configuration can't be read for a while, or can again."""
        self._cluster(number).coordination.unreadable = number // 3 % 2 == 0

    def silent_books(self, number: int) -> None:
        """The books do not answer for a while, or do again."""
        table = self._cluster(number).table
        odds, rng = number // 3 % 3 / 10, self.rng
        table.refuse = lambda _process: rng.random() < odds

    # ---- time

    def run(self, seed: int, steps: int) -> None:
        """Random tasks go on. Raises LawBrokenError."""
        self.kernel.burst(steps, Random(seed))

    def run_some(self, number: int) -> None:
        """One task goes on for some steps while all others wait."""
        waiting = self.kernel.runnable()
        if not waiting:
            return
        task: Task = pick(waiting, number)
        for _ in range(number // 50 % 12 + 1):
            if not self.kernel.can_run(task):
                return
            self.kernel.step(task)

    def pass_time(self, number: int) -> None:
        """Nobody goes on for a while."""
        self.kernel.advance(self.kernel.now_ns + number % 4_000 * 1_000_000)

    def finish(self) -> None:
        """No more faults; everything comes to rest, and all laws are judged. Raises StuckError, LawBrokenError."""
        self.world.rest()
        judge_at_rest(self.world)
        for cluster in (self.west, self.east):
            for node in cluster.alive(cluster.tservers):
                cluster.kill(node, power=True)
        self.world.rest()
        judge_at_rest(self.world)

    # ---- choosing

    def _cluster(self, number: int) -> Cluster:
        return self.east if number % 3 == 0 else self.west

    def _node(self, number: int, of: Callable[[Cluster], Sequence[Node]]) -> Node | None:
        nodes = of(self._cluster(number))
        return pick(nodes, number // 3) if nodes else None

    def _cluster_of(self, node: Node) -> Cluster:
        return self.world.clusters[node.process.cluster]


QUIET = ("write", "write_two", "roll", "flush")
FAULTS = (
    "reconfigure",
    "move",
    "compact_books",
    "kill_tserver",
    "kill_master",
    "kill_replay",
    "depose",
    "zombie",
    "suspend",
    "resume",
    "delay",
    "lossy",
    "unreadable",
    "silent_books",
    "run_some",
    "pass_time",
)


def pick(options: Sequence[T], number: int) -> T:
    """One of them."""
    return options[number % len(options)]


def run_schedule(world: World, seed: int, length: int) -> Chaos:
    """A whole schedule from one number."""
    chaos = Chaos(world, seed)
    rng = Random(seed)
    for _ in range(length):
        name = pick(QUIET if rng.random() < 0.5 else FAULTS, rng.randrange(1000))
        number = rng.randrange(10_000)
        world.kernel.note(f"{name} {number}")
        getattr(chaos, name)(number)
        chaos.run(rng.randrange(2**30), rng.randrange(5, 80))
    chaos.finish()
    return chaos
