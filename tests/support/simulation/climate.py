"""The climate of one schedule: which acts are frequent, which never happen, and which threads are slow.

Arrives: a seed. Leaves: a :class:`Climate`. A schedule in which everything happens a little seldom has the same fault
twice where it hurts; so each one forbids some things and emphasises a few (swarm testing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import MappingProxyType

from tests.support.simulation.kernel import Task

SHARES = (0, 0, 1, 1, 2)
"""How often something happens that is not emphasised."""

EMPHASIS = 10
EMPHASISED_MAX = 3
"""Things that are emphasised in one schedule, at most."""

SLOW_THREADS = (
    "books",
    "commit",
    "cycle",
    "collector",
    "fate",
    "flusher",
    "lane",
    "received-index",
    "replication",
    "rpc",
)
"""Threads that may be slow in a schedule, by the beginning of their names."""

PACES = (20, 60, 150)
"""Steps between two events, at most."""

TIME_ODDS = (0.005, 0.02, 0.08)
"""How often time passes although some task could go on."""


@dataclass(frozen=True)
class Climate:
    """``weights``: what happens, and how often. ``rows``: where users write, rows may repeat."""

    weights: Mapping[str, int]
    pace: int
    time_odds: float
    slow: tuple[str, ...]
    rows: Sequence[bytes]
    both_ways: bool
    blackout: bool
    """Whether the world loses its power when it has come to rest, and has to come to rest again."""

    @cached_property
    def urn(self) -> tuple[str, ...]:
        """Everything that happens, as often as its weight says."""
        return tuple(name for name, weight in self.weights.items() for _ in range(weight))

    def is_slow(self, task: Task) -> bool:
        """Whether a task goes on seldom."""
        return task.name.startswith(self.slow)


def drawn(
    seed: int,
    daily: Sequence[str],
    accidents: Sequence[str],
    rows: Sequence[bytes],
    threads: Sequence[str] = (),
    frequent: Mapping[str, int] = MappingProxyType({}),
) -> Climate:
    """The climate of a seed. ``daily`` things have half of all events at least; ``threads`` may be slow, too;
    ``frequent`` are the least weights of some accidents.
    """
    rng = Random(f"climate {seed}")
    weights = {name: rng.choice(SHARES) for name in accidents}
    for name in rng.sample(accidents, rng.randint(1, EMPHASISED_MAX)):
        weights[name] = EMPHASIS
    for name, least in {"relief": 2, "ambush": 3, "kill_tserver": 2, **frequent}.items():
        weights[name] = max(weights[name], least)
    share = 2 * sum(weights.values()) / len(daily)
    weights |= {name: round(share * rng.choice((0, 0.3, 1, 2))) for name in daily}
    weights["write"] = max(weights["write"], round(share))
    return Climate(
        weights,
        rng.choice(PACES),
        rng.choice(TIME_ODDS),
        tuple(rng.sample((*SLOW_THREADS, *threads), rng.choice((0, 0, 1, 2)))),
        rng.sample(rows, rng.choice((1, 2, len(rows)))),
        rng.random() < 0.4,
        rng.random() < 0.3,
    )
