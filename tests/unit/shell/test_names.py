"""A background thread reads names: no user waits long, and cached names stay."""

from __future__ import annotations

import threading

from bookkeeper.errors import UnavailableError
from shell.names import FRESH_MS, ClusterNames, NameCache

LONG_MS = 60_000.0


class SteppedClock:
    """A clock that advances only when a test adds to ``now_ns``."""

    def __init__(self) -> None:
        self.now_ns = 1

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000

    def boot_ns(self) -> int:
        return self.now_ns

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        return event.wait(timeout_ms / 1000)


class Cluster:
    """A cluster whose one table has the number of the read in its name; it answers while ``may_answer`` is set."""

    def __init__(self) -> None:
        self.reads = 0
        self.reachable = True
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self) -> ClusterNames:
        self.reads += 1
        assert self.may_answer.wait(LONG_MS / 1000)
        if not self.reachable:
            raise UnavailableError("nobody answers")
        return ClusterNames("west", (f"t{self.reads}",))


def test_cached_names_are_fresh_for_a_while() -> None:
    cluster, clock = Cluster(), SteppedClock()
    names = NameCache(cluster.read, clock)
    assert names.get(LONG_MS) == ClusterNames("west", ("t1",))
    clock.now_ns += (FRESH_MS - 1) * 1_000_000
    assert names.get(LONG_MS).tables == ("t1",)
    clock.now_ns += 1_000_000
    assert names.get(LONG_MS).tables == ("t2",)


def test_a_caller_does_not_wait_for_a_cluster_that_hangs() -> None:
    cluster = Cluster()
    cluster.may_answer.clear()
    names = NameCache(cluster.read, SteppedClock())
    assert names.get(1) == names.get(0) == ClusterNames()
    assert cluster.reads == 1
    cluster.may_answer.set()
    assert names.get(LONG_MS).tables == ("t1",)


def test_cached_names_stay_when_the_cluster_stops_answering() -> None:
    cluster, clock = Cluster(), SteppedClock()
    names = NameCache(cluster.read, clock)
    names.get(LONG_MS)
    cluster.reachable = False
    clock.now_ns += FRESH_MS * 1_000_000
    assert names.get(LONG_MS) == ClusterNames("west", ("t1",))
    cluster.reachable = True
    clock.now_ns += FRESH_MS * 1_000_000
    assert names.get(LONG_MS).tables == ("t3",)
