"""The plan of a round on machines: steps, the same for the same seed and round.

One fault after the other; each is healed before the next begins, and a machine that was away has to be back before
another one goes. Times are in milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tests.support.clusters_on_machines import HOSTS

STEPS_MAX = 4
BEFORE_MAX = 20
CLOCK_MS = 300_000
"""A wall clock is wrong by five minutes."""
ROLES = ("master", "tserver1", "replay", "gateway")


class MachineFault(Enum):
    """A fault of a process, of a machine, of the network or of a store."""

    KILL = "kill -9 of a process"
    STOP = "stop a process, then continue"
    KILL_SUPERVISOR = "kill -9 of the supervisor, which starts again"
    STOP_SUPERVISOR = "stop the supervisor, then continue"
    POWER = "the machine loses its power, and boots"
    STOP_MACHINE = "the machine stands still, and goes on"
    KILL_LEADER = "kill -9 of ZooKeeper's leader, which starts again"
    KILL_FOLLOWER = "kill -9 of a ZooKeeper follower, which starts again"
    STOP_LEADER = "stop ZooKeeper's leader, then continue"
    CUT_ZOOKEEPER = "cut the machine from ZooKeeper"
    CUT_PEER = "cut the machine from the peer"
    CUT_BOOKS = "cut the machine from HBase"
    CUT_ONE_WAY = "no packet of the machine reaches another one"
    KILL_BOOKS = "kill -9 of HBase, which starts again"
    STOP_BOOKS = "stop HBase, then continue"
    CLOCK_AHEAD = "the wall clock of the machine is five minutes ahead"
    CLOCK_BACK = "the wall clock of the machine is five minutes behind"
    NO_MASTERS = "kill -9 of all masters, and of each that is started, for a while"
    KILL_PEER = "kill -9 of a process of the peer"


LASTS_MS: Mapping[MachineFault, tuple[int, int]] = {
    MachineFault.STOP: (500, 25_000),
    MachineFault.STOP_SUPERVISOR: (500, 25_000),
    MachineFault.POWER: (2_000, 20_000),
    MachineFault.STOP_MACHINE: (500, 25_000),
    MachineFault.STOP_LEADER: (500, 20_000),
    MachineFault.CUT_ZOOKEEPER: (1_000, 25_000),
    MachineFault.CUT_PEER: (1_000, 20_000),
    MachineFault.CUT_BOOKS: (1_000, 25_000),
    MachineFault.CUT_ONE_WAY: (1_000, 25_000),
    MachineFault.STOP_BOOKS: (500, 20_000),
    MachineFault.CLOCK_AHEAD: (5_000, 10_000),
    MachineFault.CLOCK_BACK: (5_000, 10_000),
    MachineFault.NO_MASTERS: (2_000, 20_000),
}
"""Shorter and longer than a lease of 8 s; no gateway and no HBase is stopped for longer than rule R4 allows."""


@dataclass(frozen=True, slots=True)
class MachineStep:
    """After ``before`` more batches: ``fault`` of the machine with this number (from 0), of ``role`` where it is one of
    a process. ``other``: the machine (from 0) that nothing of it reaches.
    """

    fault: MachineFault
    machine: int
    role: str
    other: int
    before: int
    lasts_ms: int

    def __str__(self) -> str:
        lasts = f" ({self.lasts_ms} ms)" if self.lasts_ms else ""
        of_process = f" {self.role}" if self.fault in (MachineFault.KILL, MachineFault.STOP) else ""
        to = f" to m{self.other + 1}" if self.fault is MachineFault.CUT_ONE_WAY else ""
        return f"{self.fault.value}{lasts}: m{self.machine + 1}{of_process}{to}"


def plan_machine_round(seed: int, number: int) -> list[MachineStep]:
    """Two to :data:`STEPS_MAX` steps."""
    rng = random.Random(f"machines:{seed}:{number}")
    return [_step(rng) for _ in range(rng.randint(2, STEPS_MAX))]


def _step(rng: random.Random) -> MachineStep:
    fault, machine = rng.choice(list(MachineFault)), rng.randrange(HOSTS)
    others = [number for number in range(HOSTS + 2) if number != machine]
    lasts_ms = rng.randint(*LASTS_MS[fault]) if fault in LASTS_MS else 0
    return MachineStep(fault, machine, rng.choice(ROLES), rng.choice(others), rng.randrange(BEFORE_MAX), lasts_ms)
