"""What happens in a round: a list of faults, the same for the same seed and round.

Arrives: a seed and a round's number. Leaves: steps, each a fault, its victim, and how many batches are written before
it. Several may be open at once: the next step does not wait until the one before it is healed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

STEPS_MAX = 7
BATCHES_MAX = 60
PAUSE_MS_MAX = 4_000

SERVERS = [(side, role) for side in ("west", "east") for role in ("master", "tserver1", "tserver2")]
"""Processes whose sessions matter; east has nothing to replay."""
REPLAY = ("west", "replay")


class Fault(Enum):
    """What is done to a process, or to a side."""

    KILL = "kill -9"
    KILL_JVM = "kill -9 of the JVM"
    FREEZE = "stop beyond the lease, then continue"
    HICCUP = "stop for less than the lease"
    RESTART = "end cleanly"
    CRASH = "kill -9 of the supervisor"
    FLUSH = "flush all tables"


WEIGHTS = {
    Fault.KILL: 8,
    Fault.KILL_JVM: 1,
    Fault.FREEZE: 4,
    Fault.HICCUP: 3,
    Fault.RESTART: 2,
    Fault.CRASH: 1,
    Fault.FLUSH: 3,
}


@dataclass(frozen=True, slots=True)
class Step:
    """After ``batches`` more batches: ``fault`` to ``role`` of ``side`` ("" where the whole side is meant)."""

    batches: int
    fault: Fault
    side: str
    role: str
    pause_ms: int = 0

    def __str__(self) -> str:
        pause = f" ({self.pause_ms} ms)" if self.pause_ms else ""
        return f"{self.fault.value}{pause}: {' '.join(filter(None, (self.side, self.role)))}"


def plan_round(seed: int, number: int) -> list[Step]:
    """One to :data:`STEPS_MAX` steps."""
    rng = random.Random(f"{seed}:{number}")
    return [_step(rng) for _ in range(rng.randint(1, STEPS_MAX))]


def _step(rng: random.Random) -> Step:
    fault = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    batches = rng.randrange(BATCHES_MAX) if rng.random() < 0.6 else 0
    if fault in (Fault.CRASH, Fault.FLUSH):
        return Step(batches, fault, rng.choice(("west", "east")), "")
    if fault is Fault.KILL_JVM:
        return Step(batches, fault, *REPLAY)
    victim = rng.choice([*SERVERS, REPLAY])
    pause_ms = rng.randint(200, PAUSE_MS_MAX) if fault is Fault.HICCUP else 0
    return Step(batches, fault, *victim, pause_ms)
