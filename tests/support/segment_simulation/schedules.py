"""Random schedules of steps for one tablet on four hosts: faults, then rest, judged by the checker.

A schedule writes its steps in the runner's JSON form, so the runner plays a failing one again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.replicas.placements import Role
from bookkeeper.replicas.rules import CORRECTED, Rules
from tests.support.segment_simulation.checker import BrokenError, Checker
from tests.support.segment_simulation.codec import Codec, InputError
from tests.support.segment_simulation.disk_deeds import DISK_WEIGHTS, DiskDeeds
from tests.support.segment_simulation.play import Play
from tests.support.segment_simulation.steps import take

HOSTS = ("a", "b", "c")
SPARE = "d"
LENGTH = 400
ROUNDS = 8
"""Turns that everybody gets at rest."""

WEIGHTS = {
    "write": 30,
    "flush": 12,
    "compact": 4,
    "replicate": 26,
    "replicate_queued": 6,
    "run": 14,
    "gc": 6,
    "name": 14,
    "name_queued": 2,
    "deliver": 26,
    "drop": 2,
    "duplicate": 2,
    "elect": 3,
    "give_up": 2,
    "stop": 2,
    "resume": 4,
    "crash": 2,
    "wipe": 1,
    "partition": 2,
    "heal": 3,
    "join": 1,
    "join_finalize": 4,
    "leave": 1,
    "read": 2,
    **DISK_WEIGHTS,
}
DEEDS = tuple(WEIGHTS)
CUMULATIVE = [sum(list(WEIGHTS.values())[: i + 1]) for i in range(len(WEIGHTS))]


def start_of_world() -> dict[str, Any]:
    """Three empty replicas, of which none leads."""
    return {"rules": "corrected", "copies_min": 2, "replicas": {host: {"term": 0} for host in HOSTS}, "steps": []}


@dataclass(slots=True)
class Schedule(DiskDeeds):
    """One random schedule."""

    seed: int
    rules: Rules = CORRECTED
    length: int = LENGTH
    steps: list[dict[str, Any]] = field(default_factory=list)
    play: Play = field(init=False)
    checker: Checker = field(init=False)
    rng: random.Random = field(init=False)
    written: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        codec = Codec()
        world = codec.read(start_of_world())
        world.rules = self.rules
        self.play = Play(world, codec)
        self.checker = Checker(world)

    def do(self, kind: str, **args: Any) -> dict[str, Any]:
        """Do one step, write it down and judge."""
        step = {"step": kind, **args}
        self.steps.append(step)
        try:
            return take(self.play, step)
        except InputError:
            self.steps.pop()
            raise

    def run(self) -> None:
        """Faults, then rest. Raises BrokenError."""
        self.do("elect", leader=self.rng.choice(HOSTS))
        for _ in range(self.length):
            (deed,) = self.rng.choices(DEEDS, cum_weights=CUMULATIVE)
            getattr(self, f"_do_{deed}")()
            self.checker.after_step()
        self.rest()

    def as_input(self) -> dict[str, Any]:
        """The schedule in the runner's form."""
        return start_of_world() | {"switches": switches_of(self.rules), "steps": self.steps}

    # ---- choices

    def _any(self) -> str:
        return self.rng.choice(self._names)

    def _leader(self) -> str | None:
        """A running replica that takes itself for the leader: mostly there is one, at times there are two."""
        found = [name for name in self._running() if self.play.world.replicas[name].is_leader]
        return self.rng.choice(found) if found else None

    def _other(self, name: str) -> str | None:
        others = [target.host for target in self.play.world.replicas[name].targets]
        return self.rng.choice(others) if others else None

    # ---- users and hosts

    def _do_write(self) -> None:
        leader = self._leader()
        if leader is not None:
            rows = []
            for _ in range(self.rng.randint(1, 3)):
                self.written += 1
                rows.append(f"k{self.rng.randint(0, 7)}={self.written}")
            self.do("write", replica=leader, rows=rows)

    def _do_flush(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("flush", replica=leader)

    def _do_compact(self) -> None:
        leader = self._leader()
        if leader is not None and self.play.world.replicas[leader].root is not None:
            self.do("compact", replica=leader)

    def _do_replicate(self, queued: bool = False) -> None:
        leader = self._leader()
        other = self._other(leader) if leader is not None else None
        if other is not None:
            self.do("replicate_to", replica=leader, to=other, **({"queued": True} if queued else {}))

    def _do_replicate_queued(self) -> None:
        self._do_replicate(queued=True)

    def _do_run(self) -> None:
        name = self.rng.choice(self._running() or [SPARE])
        if name in self._names and not self.play.world.replicas[name].is_leader:
            queued = self.rng.random() < 0.3
            self.do("follower_run", replica=name, **({"queued": True} if queued else {}))

    def _do_gc(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("leader_gc", replica=leader)

    def _do_name(self, queued: bool = False) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("name", replica=leader, **({"queued": True} if queued else {}))

    def _do_name_queued(self) -> None:
        self._do_name(queued=True)

    def _do_read(self) -> None:
        self.do("read", replica=self._any(), end=self.rng.random() < 0.5)

    # ---- the network

    def _some_message(self) -> int | None:
        waiting = list(self.play.world.messages)
        return self.rng.choice(waiting) if waiting else None

    def _do_deliver(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("deliver", message=number)

    def _do_drop(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("drop", message=number)

    def _do_duplicate(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("duplicate", message=number)

    def _do_partition(self) -> None:
        alone = self._any()
        self.do("partition", sides=[[alone], [name for name in self._names if name != alone]])

    def _do_heal(self) -> None:
        if self.play.world.cut:
            self.do("heal")

    # ---- accidents and the operator

    def _do_elect(self) -> None:
        running = self._running()
        if running:
            self.do("elect", leader=self.rng.choice(running))

    def _do_give_up(self) -> None:
        books = self.play.world.books["t"]
        log = books.logs.get(books.term)
        running = [name for name in self._running() if log is not None and name != log.writer]
        if running and log is not None and log.writer in self._names and not self._has_wrong(log.writer):
            self.do("elect", leader=self.rng.choice(running), give_up=True)

    def _do_stop(self) -> None:
        if len(self.play.world.stopped) < 1:
            self.do("stop", replica=self._any())

    def _do_resume(self) -> None:
        if self.play.world.stopped:
            self.do("resume", replica=self.rng.choice(sorted(self.play.world.stopped)))

    def _do_crash(self) -> None:
        self.do("crash", replica=self._any())

    def _may_lose(self, name: str) -> bool:
        """Whether a disk may be lost: others hold each named file, and no given-up tail is only there."""
        world = self.play.world
        books = world.books["t"]
        if any(log.writer == name for term, log in books.logs.items() if term in books.given_up):
            return False
        named = self._named_files("t")
        voters = [one.host for one in books.row.replicas if one.role is Role.VOTER]
        others = [self._sound(one) for one in voters if one != name]
        pending = books.given_up and world.replicas[name].entries
        copied = all(any(file in files for files in others) for file in named)
        return not pending and copied and not self._leaves_wrong(name)

    def _do_wipe(self) -> None:
        name = self._any()
        voters = [one.host for one in self.play.world.books["t"].row.replicas if one.role is Role.VOTER]
        if len(voters) > 1 and self._may_lose(name):
            self.do("wipe", replica=name)

    def _do_join(self) -> None:
        leader = self._leader()
        free = [host for host in (*HOSTS, SPARE) if host not in self._names]
        if leader is not None and free:
            self.do("join", replica=free[0], leader=leader, placement=f"{free[0]}{len(self.steps)}")

    def _do_join_finalize(self) -> None:
        leader = self._leader()
        joining = [one.host for one in self.play.world.books["t"].row.replicas if one.role is Role.JOINING]
        if leader is not None and joining:
            self.do("join_finalize", replica=joining[0], leader=leader)

    def _do_leave(self) -> None:
        name = self._any()
        world = self.play.world
        voters = sum(one.role is Role.VOTER for one in world.books["t"].row.replicas)
        others = [self._sound(one.host) for one in world.books["t"].row.replicas if one.host != name]
        copied = all(sum(file in files for files in others) >= 2 for file in self._named_files("t"))
        copied &= not self._leaves_wrong(name)
        if voters > 2 and copied and not world.books["t"].given_up and not world.replicas[name].is_leader:
            self.do("leave", replica=name)

    # ---- rest

    def rest(self) -> None:
        """All faults end, a leader is elected, and everybody gets turns."""
        world = self.play.world
        self.do("heal")
        for name in sorted(world.stopped):
            self.do("resume", replica=name)
        for number in sorted(world.messages):
            self.do("drop", message=number)
        for name in self._names:
            self.do("read", replica=name, end=True)
        self._check_all()
        self._mend_all("t")
        self._elect_one()
        for _ in range(ROUNDS):
            self._one_round()
        self.checker.at_rest()

    def _elect_one(self) -> None:
        """A leader whose file nobody has sound ends its term: the next one has the rows from the log."""
        books = self.play.world.books["t"]
        leader = self.play.world.replicas.get(str(books.row.leader))
        if leader is not None and leader.is_leader and not leader.damaged:
            return
        by_root = sorted(self._names, key=lambda name: self.play.world.replicas[name].root or 0, reverse=True)
        if not any(self.do("elect", leader=name)["outcome"] == "done" for name in by_root):
            raise BrokenError("no replica can lead: none holds the named state")

    def _one_round(self) -> None:
        leader = str(self.play.world.books["t"].row.leader)
        self.do("flush", replica=leader)
        for name in self._names:
            if name != leader:
                self.do("replicate_to", replica=leader, to=name)
                if self.play.world.replicas[name].leader is not None:
                    self.do("follower_run", replica=name)
        for one in self.play.world.books["t"].row.replicas:
            if one.role is Role.JOINING:
                self.do("join_finalize", replica=one.host, leader=leader)
        self.do("name", replica=leader)
        self.do("leader_gc", replica=leader)
        self.checker.after_step()


def switches_of(rules: Rules) -> dict[str, Any]:
    """What is switched off in the corrected rules."""
    changed = {name: getattr(rules, name) for name in Rules.__struct_fields__}
    return {name: value for name, value in changed.items() if value != getattr(CORRECTED, name)}
