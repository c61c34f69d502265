"""The plan of a round on two clusters of three hosts each: steps, the same for the same seed and round.

A lasting fault holds while momentary ones strike inside it; then it is healed, and the next step begins.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.support.hosted_cluster import HOSTS, MOVABLE, SMALL

STEPS_MAX = 2
INNER_MAX = 2
BEFORE_MAX = 12
MEANWHILE = (2, 10)
AWAY_MEANWHILE = (20, 60)
"""A host that is away comes back after many changes."""
PICKS = 1 << 16


class HostFault(Enum):
    """A fault of one host, or of its whole cluster."""

    KILL = "kill -9 of the tserver"
    KILL_ALL = "kill -9 of all tservers"
    KILL_MASTER = "kill -9 of the master"
    WIPE = "kill -9, and all replicas of the host are lost"
    FLUSH = "flush all tables"
    SPLIT = "split a tablet"
    MERGE = "merge two tablets"
    MOVE = "split a tablet onto other hosts"
    REPLICAS = "change the number of replicas of a table"
    IMPORT = "import files into a table with replicas"
    STOP = "stop beyond the lease, while others take over, then continue"
    AWAY = "kill -9, and the directory of the host is away for a while"
    DESTROY = "kill -9, and the directory of the host is lost"
    FILL = "fill the disk of the host"
    DRAIN = "drain the host"
    FLIP = "flip a byte in a segment file of each tablet of the host"


LASTING = (HostFault.STOP, HostFault.AWAY, HostFault.DESTROY, HostFault.FILL, HostFault.DRAIN, HostFault.FLIP)
DESTRUCTIVE = (HostFault.WIPE, HostFault.DESTROY, HostFault.FLIP)
"""These take copies away, so each tablet needs all of them before."""
OPERATIONS = (HostFault.SPLIT, HostFault.MERGE, HostFault.MOVE, HostFault.REPLICAS, HostFault.IMPORT)
"""Orders to a cluster, which it may carry out while the next faults strike."""
INNER = (HostFault.KILL, HostFault.KILL_MASTER, HostFault.FLUSH, *OPERATIONS)
"""Momentary faults that may strike while a lasting one holds."""
INNER_OF = {
    HostFault.STOP: (HostFault.FLUSH, *OPERATIONS),
    HostFault.FILL: (HostFault.KILL, HostFault.KILL_MASTER),
}
"""Inside these lasting faults only some strike: a stopped supervisor starts nothing again, and a full disk takes no
flush.
"""

LOADED = "west"
"""The cluster that takes writes and imports."""
SIDES = (LOADED, "east")
VICTIMS: dict[HostFault, Sequence[str]] = {
    HostFault.KILL_ALL: [""],
    HostFault.KILL_MASTER: [""],
    HostFault.FLUSH: [""],
    **{operation: [""] for operation in OPERATIONS},
    HostFault.AWAY: [MOVABLE],
    HostFault.DESTROY: [MOVABLE],
    HostFault.FILL: [SMALL],
}
"""Hosts that a fault may hit; any one where nothing is said."""

WEIGHTS = {
    HostFault.KILL: 6,
    HostFault.KILL_ALL: 2,
    HostFault.KILL_MASTER: 1,
    HostFault.WIPE: 4,
    HostFault.FLUSH: 1,
    HostFault.SPLIT: 2,
    HostFault.MERGE: 2,
    HostFault.MOVE: 1,
    HostFault.REPLICAS: 2,
    HostFault.IMPORT: 2,
    HostFault.STOP: 3,
    HostFault.AWAY: 3,
    HostFault.DESTROY: 3,
    HostFault.FILL: 3,
    HostFault.DRAIN: 2,
    HostFault.FLIP: 3,
}


@dataclass(frozen=True, slots=True)
class HostStep:
    """After ``before`` more batches: ``fault`` to ``host`` of ``side``, "" for all of the side. ``meanwhile``: batches
    that are written while a lasting fault holds, after the ``inner`` steps. ``pick``: decides further choices.
    """

    fault: HostFault
    side: str
    host: str = ""
    before: int = 0
    meanwhile: int = 0
    inner: tuple[HostStep, ...] = ()
    pick: int = 0

    def __str__(self) -> str:
        return f"{self.fault.value}: {' '.join(filter(None, (self.side, self.host)))}"


def plan_host_round(seed: int, number: int) -> list[HostStep]:
    """One to :data:`STEPS_MAX` steps."""
    rng = random.Random(f"hosts:{seed}:{number}")
    return [_step(rng) for _ in range(rng.randint(1, STEPS_MAX))]


def _step(rng: random.Random) -> HostStep:
    fault = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    side = LOADED if fault is HostFault.IMPORT else rng.choice(SIDES)
    host = rng.choice(VICTIMS.get(fault, HOSTS))
    inner: list[HostStep] = []
    if fault in LASTING:
        inner = [_inner(rng, side, host, fault) for _ in range(rng.randrange(INNER_MAX + 1))]
    meanwhile = rng.randint(*(AWAY_MEANWHILE if fault is HostFault.AWAY else MEANWHILE))
    return HostStep(fault, side, host, rng.randrange(BEFORE_MAX), meanwhile, tuple(inner), rng.randrange(PICKS))


def _inner(rng: random.Random, side: str, host: str, outer: HostFault) -> HostStep:
    """A momentary fault of the same side that leaves the host of the lasting one alone."""
    choice = INNER_OF.get(outer, INNER)
    fault = rng.choice([one for one in choice if one is not HostFault.IMPORT or side == LOADED])
    others = [other for other in HOSTS if other != host]
    return HostStep(fault, side, rng.choice(VICTIMS.get(fault, others)), rng.randrange(4), pick=rng.randrange(PICKS))
