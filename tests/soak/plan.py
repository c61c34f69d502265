"""The plan of a round: a list of faults, the same for the same seed and round.

Each step is a fault, its victim, and the number of batches before it. Several faults may be open at once: the next step
does not wait until the one before it is healed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

STEPS_MAX = 7
BATCHES_MAX = 60

SERVERS = [(side, role) for side in ("west", "east") for role in ("master", "tserver1", "tserver2")]
"""Processes whose sessions matter; east has nothing to replay."""
TSERVERS = [(side, role) for side, role in SERVERS if role != "master"]
REPLAY = ("west", "replay")


class Fault(Enum):
    """A fault of a process, or of a side."""

    KILL = "kill -9"
    KILL_JVM = "kill -9 of the JVM"
    FREEZE = "stop beyond the lease, then continue"
    HICCUP = "stop for less than the lease"
    RESTART = "end cleanly"
    CRASH = "kill -9 of the supervisor"
    FLUSH = "flush all tables"
    RESET = "reset all connections"
    DELAY = "delay all traffic"
    CUT = "let nothing pass"
    TEAR = "kill -9, half a block behind the log"
    FILL = "fill the disk"
    DEPOSE = "stop beyond the lease, unsupervised, continue when others have taken over"
    NO_MASTERS = "kill -9 of masters, and of each that is started, for a while"
    KILL_HBASE = "kill -9 of HBase, then start it again"
    RESTART_HBASE = "end HBase cleanly, then start it again"
    STOP_HBASE = "stop HBase, then continue"
    KILL_THRIFT = "kill -9 of HBase's Thrift server, then start it again"
    STOP_THRIFT = "stop HBase's Thrift server, then continue"


HBASE_FAULTS = (Fault.KILL_HBASE, Fault.RESTART_HBASE, Fault.STOP_HBASE, Fault.KILL_THRIFT, Fault.STOP_THRIFT)
"""Faults of the HBase that holds the books of both clusters."""


SIDES = [("west", ""), ("east", "")]
VICTIMS = {
    Fault.KILL_JVM: [REPLAY],
    Fault.CRASH: SIDES,
    Fault.FLUSH: SIDES,
    Fault.RESET: SIDES,
    Fault.DELAY: SIDES,
    Fault.CUT: SIDES,
    Fault.TEAR: TSERVERS,
    Fault.FILL: [("west", "")],
    Fault.DEPOSE: SERVERS,
    Fault.NO_MASTERS: [*SIDES, ("", "")],
    **{fault: [("books", "")] for fault in HBASE_FAULTS},
}
"""Whom a fault may hit; any process where nothing is said. A fault without a side hits both."""

PAUSES_MS = {
    Fault.HICCUP: (200, 4_000),
    Fault.DELAY: (1, 400),
    Fault.NO_MASTERS: (2_000, 20_000),
    Fault.STOP_HBASE: (200, 20_000),
    Fault.STOP_THRIFT: (200, 20_000),
}
"""HBase is stopped for longer than a request to it waits, too."""

WEIGHTS = {
    Fault.KILL: 8,
    Fault.KILL_JVM: 1,
    Fault.FREEZE: 4,
    Fault.HICCUP: 3,
    Fault.RESTART: 2,
    Fault.CRASH: 1,
    Fault.FLUSH: 3,
    Fault.RESET: 3,
    Fault.DELAY: 2,
    Fault.CUT: 2,
    Fault.TEAR: 3,
    Fault.FILL: 2,
    Fault.DEPOSE: 2,
    Fault.NO_MASTERS: 2,
}
HBASE_WEIGHTS = {**WEIGHTS, **dict.fromkeys(HBASE_FAULTS, 2)}


@dataclass(frozen=True, slots=True)
class Step:
    """After ``batches`` more batches: ``fault`` to ``role`` of ``side``; role "" for the whole side, its disk, or its
    incoming traffic.
    """

    batches: int
    fault: Fault
    side: str
    role: str
    pause_ms: int = 0

    def __str__(self) -> str:
        pause = f" ({self.pause_ms} ms)" if self.pause_ms else ""
        return f"{self.fault.value}{pause}: {' '.join(filter(None, (self.side, self.role))) or 'both sides'}"


def plan_round(seed: int, number: int, *, hbase: bool = False) -> list[Step]:
    """One to :data:`STEPS_MAX` steps; ``hbase``: the books are in an HBase, and faults strike that, too."""
    rng = random.Random(f"{seed}:{number}")
    weights = HBASE_WEIGHTS if hbase else WEIGHTS
    return [_step(rng, weights) for _ in range(rng.randint(1, STEPS_MAX))]


def _step(rng: random.Random, weights: Mapping[Fault, int]) -> Step:
    fault = rng.choices(list(weights), list(weights.values()))[0]
    batches = rng.randrange(BATCHES_MAX) if rng.random() < 0.6 else 0
    side, role = rng.choice(VICTIMS.get(fault, [*SERVERS, REPLAY]))
    return Step(batches, fault, side, role, rng.randint(*PAUSES_MS[fault]) if fault in PAUSES_MS else 0)
