"""The cost of tasks that follow for a writer of small batches: two real clusters of three tservers, 16 tablets each.

Each batch of 25 rows goes to most tablets, so each of the three tservers ships a record or two of each tablet at a
time: the dearest case of a stream that ships at once. The reference is a second pair of clusters, whose streams no task
follows, measured in turns with the first; the median turn of each counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random

import psutil
from msgspec import Struct

from bookkeeper.client import Mutation
from tests.benchmarks.figure import Figure
from tests.benchmarks.host_processes import cpu_seconds
from tests.benchmarks.pair import FAMILY, QUALIFIER, TABLE, Pair, replicated_pair

TSERVERS, TABLETS = 3, 16
TURNS = 3
BATCHES, BATCH_ROWS = 200, 25
"""Batches of a turn, each acknowledged at sync before the next one is written."""
KEYS = 16_000
SEED = 7
SAME = 1.03
"""At most three percent more than the reference."""


class Turn(Struct, frozen=True):
    """Seconds until the last batch was acknowledged, from there until the peer had all, and CPU of both clusters."""

    write_s: float
    drain_s: float
    cpu_s: float


def run() -> list[Figure]:
    """Measure; takes two minutes."""
    with _spread_pair({}) as followed, _spread_pair({"replay.followers_max": 0}) as in_runs:
        turns = [(_turn(followed, number), _turn(in_runs, number)) for number in range(TURNS + 1)][1:]
    mine, reference = zip(*turns, strict=True)
    return [
        _figure("small batches into 16 tablets", [t.write_s for t in mine], [t.write_s for t in reference]),
        _figure("from the last of them to the peer", [t.drain_s for t in mine], [t.drain_s for t in reference]),
        _figure("CPU of both clusters until then", [t.cpu_s for t in mine], [t.cpu_s for t in reference]),
    ]


@contextmanager
def _spread_pair(overrides: Mapping[str, object]) -> Iterator[Pair]:
    splits = [b"%05d" % (KEYS * number // TABLETS) for number in range(1, TABLETS)]
    with replicated_pair(TSERVERS, overrides) as pair:
        for client in (pair.west, pair.east):
            client.tables.add_splits(TABLE, splits)
        yield pair


def _turn(pair: Pair, number: int) -> Turn:
    rng, value = Random(SEED + number), b"v" * 100
    cpu_before_s, began = _cpu_s(), time.perf_counter()
    with pair.west.writer(TABLE) as writer:
        for _ in range(BATCHES):
            for _ in range(BATCH_ROWS):
                writer.add(Mutation(b"%05d" % rng.randrange(KEYS)).put(FAMILY, QUALIFIER, value))
            writer.flush()
    written = time.perf_counter()
    left = pair.west.replication.wait(TABLE)
    if left:
        raise AssertionError(f"the peer lacks {left}")
    shipped = time.perf_counter()
    return Turn(written - began, shipped - written, _cpu_s() - cpu_before_s)


def _cpu_s() -> float:
    """The CPU time of all clusters until now: the other pair is quiet."""
    return cpu_seconds(*psutil.Process().children(recursive=True))


def _figure(name: str, mine_s: list[float], reference_s: list[float]) -> Figure:
    value, reference = statistics.median(mine_s), statistics.median(reference_s)
    return Figure(
        name=name,
        value=value,
        unit="s",
        reference=reference,
        reference_name="no task follows",
        reference_unit="s",
        ratio=value / reference,
        target=SAME,
        target_of="ratio",
        lower_is_better=True,
        size=BATCHES * BATCH_ROWS,
    )
