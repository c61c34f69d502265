"""Random schedules of the document to the letter, which show how often it gets stuck.

Three replicas, eight keys, 60 steps with two leaders at times and partitions; then twelve rounds without any fault.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bookkeeper.replicas.rules import LITERAL, Rules
from tests.support.segment_simulation.codec import Codec
from tests.support.segment_simulation.play import Play
from tests.support.segment_simulation.steps import take

HOSTS = ("a", "b", "c")
LENGTH = 60
ROUNDS = 12
DEEDS = (*("write", "flush", "elect", "replicate", "replicate") * 3, *("run", "cut") * 2, "compact")
BY_LEADERS = frozenset({"write", "flush", "replicate", "compact"})
STALE = 0.3
"""How often a replica does not hear of a new leader."""

FLUSHED_FOR_FREE = replace(LITERAL, name="literal", p9_flush_on_loss=True)
"""To the letter, but memory of a follower is flushed (the document leaves that open): memory is not what is stuck."""


@dataclass(slots=True)
class LiteralSchedule:
    """One random schedule of the literal rules."""

    seed: int
    rules: Rules = FLUSHED_FOR_FREE
    steps: list[dict[str, Any]] = field(default_factory=list)
    play: Play = field(init=False)
    leader: str = "a"

    def __post_init__(self) -> None:
        codec = Codec()
        world = codec.read({"rules": "literal", "replicas": {host: {"leader": "a"} for host in HOSTS}, "steps": []})
        world.rules = self.rules
        self.play = Play(world, codec)

    def do(self, kind: str, **args: Any) -> dict[str, Any]:
        """Do one step and write it down."""
        self.steps.append({"step": kind, **args})
        return take(self.play, self.steps[-1])

    def run(self) -> bool:
        """Whether the replicas are stuck at the end: a replica lacks rows, or its leader can't serve it."""
        rng = random.Random(self.seed)
        for number in range(LENGTH):
            self._one_deed(rng, number)
        self.do("heal")
        self.do("elect", leader=self.leader)
        livelocks = 0
        for _ in range(ROUNDS):
            livelocks = self._one_round()
        return livelocks > 0 or not self._is_complete()

    def _one_deed(self, rng: random.Random, number: int) -> None:
        deed = rng.choice(DEEDS)
        leaders = [host for host in HOSTS if self.play.world.replicas[host].is_leader]
        name = rng.choice(leaders if deed in BY_LEADERS and leaders else HOSTS)
        leads = name in leaders
        if deed == "write" and leads:
            self.do("write", replica=name, rows=[f"k{rng.randint(0, 7)}={number}"])
        elif deed == "flush":
            self.do("flush", replica=name)
        elif deed == "compact" and leads:
            self.do("compact", replica=name)
        elif deed == "run":
            self.do("leader_gc" if leads else "follower_run", replica=name)
        elif deed == "replicate" and leads:
            self.do("replicate_to", replica=name, to=rng.choice([host for host in HOSTS if host != name]))
        elif deed == "elect":
            self.leader = name
            hears = [host for host in HOSTS if host == name or rng.random() > STALE]
            self.do("elect", leader=name, seen_by=hears)
        elif deed == "cut":
            if self.play.world.cut:
                self.do("heal")
            else:
                self.do("partition", sides=[[name], [host for host in HOSTS if host != name]])

    def _one_round(self) -> int:
        """A turn for everybody; returns how many turns of the leader ended in a livelock."""
        livelocks = 0
        for name in HOSTS:
            self.do("flush", replica=name)
        self.do("leader_gc", replica=self.leader)
        for name in HOSTS:
            if name != self.leader:
                livelocks += self.do("replicate_to", replica=self.leader, to=name)["outcome"] == "livelock"
                self.do("follower_run", replica=name)
        return livelocks

    def _is_complete(self) -> bool:
        """Whether each replica has each row, in its list or in memory."""
        world = self.play.world
        held = {
            name: {row for (owner, _), rows in world.rows.items() if owner == name for row in rows}
            | set(world.memory[name])
            for name in HOSTS
        }
        return len(set(map(frozenset, held.values()))) == 1


def share_stuck(seeds: range, rules: Rules = FLUSHED_FOR_FREE) -> float:
    """The share of schedules that end stuck."""
    return sum(LiteralSchedule(seed, rules).run() for seed in seeds) / len(seeds)
