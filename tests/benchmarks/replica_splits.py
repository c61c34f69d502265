"""A tablet on three hosts splits in place, and its parts merge again: the bytes that hosts send each other for it, and
how long writes are away.

The bytes are counted while nobody writes. Then the tablet splits and merges again and again under writes, one after the
other, on both sides of the border; the longest of them stands beside the longest one in a time without a split.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import TransientError
from bookkeeper.monitor.replica_views import leader_of
from bookkeeper.rpc.contract.messages import TabletReplicas
from tests.benchmarks.figure import Figure
from tests.benchmarks.replicas import ClusterHosts, exactly
from tests.support.cluster import Cluster

HOSTS = 3
ROWS, VALUE_BYTES, BATCH_ROWS = 8_192, 16 << 10, 512
ROUNDS = 5
AWAY_S = 1.0
QUIET_S = 10.0
LIMIT_S = 120.0
TABLE = "bench"
PROPERTIES = {
    "table.replicas": str(HOSTS),
    "table.compaction.segments_max": "1000",
    "table.compaction.ratio": "1000",
}
"""No compaction: it would send what it writes."""


def run() -> list[Figure]:
    """Measure; takes about a minute."""
    return measure()


def measure(rows: int = ROWS, rounds: int = ROUNDS, quiet_s: float = QUIET_S) -> list[Figure]:
    """One tablet of so many rows, which splits in its middle."""
    with ExitStack() as cleanup:
        base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-bench-")))
        cluster = Cluster(base / "own", "own", tservers=1, overrides={"standalone.hosts": HOSTS})
        cleanup.enter_context(cluster)
        trial = Trial(cluster, rows)
        splits, merges = trial.moved(trial.split), trial.moved(trial.merge)
        quiet = trial.longest_write_s(lambda: trial.passes(quiet_s))
        away = [(trial.longest_write_s(trial.split), trial.longest_write_s(trial.merge)) for _ in range(rounds)]
    size = f"{rows * VALUE_BYTES / 1e6:,.0f} MB"
    return [
        exactly(f"payload bytes that hosts send for a split in place, {size}", splits, 0, "none"),
        exactly(f"payload bytes that hosts send for a merge, {size}", merges, 0, "none"),
        longest("split", [split for split, _ in away], quiet),
        longest("merge", [merge for _, merge in away], quiet),
    ]


class Trial:
    """A cluster of three hosts, and a table of one tablet that each of them holds."""

    def __init__(self, cluster: Cluster, rows: int) -> None:
        self._cluster = cluster
        self._client: Client = cluster.client
        self._hosts = ClusterHosts(cluster)
        self._sides = (row_of(0), row_of(rows - 1))
        self._middle = row_of(rows // 2)
        self._client.tables.create(TABLE, properties=PROPERTIES)
        self._table_id = self._client.tables.get(TABLE).table_id
        for first in range(0, rows, BATCH_ROWS):
            with self._client.writer(TABLE) as writer:
                for row in range(first, min(rows, first + BATCH_ROWS)):
                    writer.add(Mutation(row_of(row)).put(b"f", b"q", os.urandom(VALUE_BYTES)))
        self._client.tables.flush(TABLE)
        self._wait_whole(1)

    def split(self) -> None:
        """In the middle."""
        self._client.tables.add_splits(TABLE, [self._middle])

    def merge(self) -> None:
        """Both parts."""
        self._client.tables.merge(TABLE)

    def passes(self, seconds: float) -> None:
        """Some time without an order."""
        threading.Event().wait(seconds)

    def moved(self, order: Callable[[], None]) -> int:
        """Payload that the hosts have sent each other until each of them holds what the order made."""
        before = self._sent()
        order()
        self._wait_whole(2 if order == self.split else 1)
        return self._sent() - before

    def longest_write_s(self, order: Callable[[], None]) -> float:
        """The longest write from an order until one that began after it, on both sides of the border."""
        took = []
        with ThreadPoolExecutor(1) as pool:
            ordered, is_behind = pool.submit(order), False
            while not is_behind:
                is_behind = ordered.done()
                for row in self._sides:
                    began = time.perf_counter()
                    with self._client.writer(TABLE) as writer:
                        writer.add(Mutation(row).put(b"f", b"again", b"v"))
                    took.append(time.perf_counter() - began)
            ordered.result()
        return max(took)

    def _sent(self) -> int:
        return self._hosts.sent_bytes(list(self._hosts.tservers()))

    def _wait_whole(self, tablets: int) -> None:
        self._cluster.wait_until(lambda: self._is_whole(tablets), "each host to hold what the books name", LIMIT_S)

    def _is_whole(self, tablets: int) -> bool:
        try:
            found = list(self._client.hosts.replicas(self._table_id))
        except TransientError:
            return False
        return len(found) == tablets and all(is_settled(tablet) for tablet in found)


def row_of(number: int) -> bytes:
    """The key of a row."""
    return b"%06d" % number


def is_settled(tablet: TabletReplicas) -> bool:
    """Whether each host holds the newest state of the leader, and the books name it."""
    held = [one.held for one in tablet.replicas if one.held is not None]
    return len(held) == HOSTS and {one.root for one in held} == {tablet.named} and leader_of(tablet) is not None


def longest(order: str, took_s: Sequence[float], quiet_s: float) -> Figure:
    """For how long a write waited at most."""
    return Figure(
        name=f"a write during a {order}, slowest of {len(took_s)} {order}s",
        value=max(took_s),
        unit="s",
        reference=quiet_s,
        reference_name="slowest without one",
        reference_unit="s",
        ratio=max(took_s) / quiet_s,
        target=AWAY_S,
        lower_is_better=True,
    )
