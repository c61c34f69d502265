"""The shown lag is the age of the oldest row that the peer lacks: under steady writes, and after kill -9 of the master.

The processes are real. The truth is the time at which the first row was acknowledged that a scan at the peer lacks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import TransientError
from tests.support.cluster import Cluster
from tests.support.shared_cluster import lent
from tests.support.time_limit import TimeLimit

pytestmark = [pytest.mark.integration, pytest.mark.spark]

TABLE = "steady-lag"
PAUSE_S = 0.1
STEADY_S, OUTAGE_S = 6.0, 5.0
EXACT_S = 2.0
UNKNOWN_S = 3.0
LIMIT_S = 90.0


class Writes:
    """One row after another, and what the peer has of them."""

    def __init__(self, west: Cluster, east: Cluster) -> None:
        self.west, self.east = west, east
        self.acked_s: list[float] = []

    def run(self, stop: threading.Event) -> None:
        """Write rows until the test is over."""
        while not stop.wait(PAUSE_S):
            with self.west.client.writer(TABLE) as writer:
                writer.add(Mutation(b"%06d" % len(self.acked_s)).put(b"f", b"q", b"v"))
            self.acked_s.append(time.monotonic())

    def true_s(self) -> float:
        """The age of the oldest row that is not at the peer."""
        there = sum(1 for _ in self.east.client.scan(TABLE).cells())
        now_s, acked_s = time.monotonic(), list(self.acked_s)
        return now_s - acked_s[there] if there < len(acked_s) else 0.0

    def shown_s(self) -> float | None:
        """The lag of the status; None while a part of it is unknown."""
        found = [one.lag_seconds for one in self.west.client.replication.report(TABLE).targets]
        known = [age_s for age_s in found if age_s is not None]
        return max(known, default=0.0) if len(known) == len(found) else None

    def difference_s(self) -> float | None:
        """How far the shown lag is from the true one, which changes while it is looked at; None while it is unknown."""
        began_s, before_s = time.monotonic(), self.true_s()
        shown_s = self.shown_s()
        after_s, took_s = self.true_s(), time.monotonic() - began_s
        if shown_s is None:
            return None
        return max(min(before_s, after_s) - shown_s, shown_s - max(before_s, after_s)) - took_s

    def are_steady(self) -> bool:
        """Whether the rows of the first seconds, while Spark starts, have arrived and are reported."""
        shown_s = self.shown_s()
        return shown_s is not None and max(shown_s, self.true_s()) < 1.0


@contextmanager
def steady_writes(west: Cluster, east: Cluster) -> Iterator[Writes]:
    """Rows are written to west inside the block, and the peer has had one of them."""
    for cluster in (west, east):
        cluster.client.tables.create(TABLE)
    west.client.replication.define_cluster("east", east.quorum)
    west.client.replication.enable(TABLE, "east")
    writes, stop = Writes(west, east), threading.Event()
    writer = threading.Thread(target=writes.run, args=(stop,), name="steady writes")
    writer.start()
    try:
        west.wait_until(lambda: any(east.client.scan(TABLE).cells()), "a row at the peer", LIMIT_S)
        west.wait_until(writes.are_steady, "the beginning to arrive, and its report", LIMIT_S)
        yield writes
    finally:
        stop.set()
        writer.join()
    assert not west.client.replication.wait(TABLE, "east", timeout_ms=LIMIT_S * 1_000)
    west.client.replication.disable(TABLE, "east")
    west.client.replication.delete_cluster("east", east.quorum)


def differences(writes: Writes, seconds: float) -> list[float]:
    """How far the shown lag is from the true one, for some seconds; it is never unknown."""
    found = []
    limit = TimeLimit(seconds)
    while not limit.is_over():
        difference_s = writes.difference_s()
        assert difference_s is not None, "this master has seen all of it written"
        found.append(difference_s)
        limit.pause()
    return found


def unknown_after_new_master_s(writes: Writes) -> float:
    """How long the lag was unknown since the first answer of a master; from then on it is true. A standstill of the
    machine counts as a second.
    """
    unknown_s, last_s = 0.0, None
    limit = TimeLimit(LIMIT_S)
    while not limit.is_over():
        try:
            difference_s = writes.difference_s()
        except TransientError:
            limit.pause()
            continue
        now_s = time.monotonic()
        unknown_s += 0.0 if last_s is None else min(now_s - last_s, 1.0)
        if difference_s is not None:
            assert difference_s <= EXACT_S, f"{difference_s:.1f} s more or less than the true lag are shown"
            return unknown_s
        last_s = now_s
        limit.pause()
    raise AssertionError("the lag stays unknown")


@pytest.mark.long
def test_the_shown_lag_is_true_under_steady_writes_and_after_a_new_master(west: Cluster, east: Cluster) -> None:
    with lent(west), lent(east), steady_writes(west, east) as writes:
        assert max(differences(writes, STEADY_S)) <= EXACT_S
        replay = west.kill9("replay")
        outage = TimeLimit(OUTAGE_S)
        while not outage.is_over():
            outage.pause()
        master = west.kill9("master")
        assert unknown_after_new_master_s(writes) <= UNKNOWN_S
        west.wait_restarted("master", master)
        west.wait_restarted("replay", replay)
