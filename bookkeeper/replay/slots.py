"""Task slots for the runs of peers: a slow or dead peer never takes the slots of another one.

A run gets slots until its peer has ``per_peer`` of them. Each further run of the peer gets one, until the peer has half
of all slots: each tserver has runs of its own, and one that waited would wait as long as the run of another tserver
lasts. A peer whose last run failed counts as suspect and has one slot; all suspects together have at most half of the
slots, so that healthy peers always find some; and few runs of one peer may wait, so that they do not use the threads of
other peers. Tasks that follow a tserver stay, so they have slots of their own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError

WAITING_MAX = 2
"""Most runs of one peer that wait for a slot; a further run is declined."""

SUSPECTS_MAX = 1024
"""Most suspect peers; above it the oldest entry is removed."""


def grant(
    total: int, per_peer: int, in_use: Mapping[str, int], suspects: Collection[str], peer: str, wanted: int
) -> int:
    """The number of slots that ``peer`` gets now (0: it must wait); ``in_use`` counts the slots of each peer."""
    free = total - sum(in_use.values())
    own = in_use.get(peer, 0)
    if peer not in suspects:
        further = int(own < total // 2)
        return max(0, min(wanted, max(per_peer - own, further), free))
    of_suspects = sum(count for name, count in in_use.items() if name in suspects)
    return max(0, min(1 - own, total // 2 - of_suspects, free))


class TaskSlots:
    """The slots of one replay process. Thread-safe."""

    def __init__(self, total: int, per_peer: int, clock: Clock) -> None:
        """``total`` at least 2."""
        self._total = total
        self._per_peer = per_peer
        self._clock = clock
        self._in_use: dict[str, int] = {}
        self._waiting: Counter[str] = Counter()
        self._suspects: dict[str, None] = {}
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self, peer: str, wanted: int, timeout_ms: int) -> Iterator[int]:
        """Take one to ``wanted`` slots for the block; raises OverloadedError when no slot gets free in time, or when
        :data:`WAITING_MAX` runs of that peer wait already.
        """
        count = self._acquire(peer, wanted, timeout_ms)
        try:
            yield count
        finally:
            with self._changed:
                self._in_use[peer] -= count
                if not self._in_use[peer]:
                    del self._in_use[peer]
                self._changed.notify_all()

    def record_run(self, peer: str, healthy: bool) -> None:
        """Record the outcome of the last run of ``peer``."""
        with self._changed:
            self._suspects.pop(peer, None)
            if not healthy:
                self._suspects[peer] = None
            if len(self._suspects) > SUSPECTS_MAX:
                del self._suspects[next(iter(self._suspects))]
            self._changed.notify_all()

    def in_use(self) -> dict[str, int]:
        """Slots in use by peer."""
        with self._changed:
            return dict(self._in_use)

    def _acquire(self, peer: str, wanted: int, timeout_ms: int) -> int:
        deadline_ns = self._clock.boot_ns() + timeout_ms * 1_000_000
        with self._changed:
            while True:
                count = grant(self._total, self._per_peer, self._in_use, self._suspects, peer, wanted)
                if count:
                    self._in_use[peer] = self._in_use.get(peer, 0) + count
                    return count
                remaining_ns = deadline_ns - self._clock.boot_ns()
                if remaining_ns <= 0 or not self._wait(peer, remaining_ns / 1e9):
                    raise OverloadedError(
                        f"no task slot got free for {peer} in {timeout_ms} ms; in use: {self._in_use}; "
                        "raise replay.tasks_max if several peers are slow"
                    )

    def _wait(self, peer: str, seconds: float) -> bool:
        if self._waiting[peer] >= WAITING_MAX:
            raise OverloadedError(
                f"{WAITING_MAX} runs for {peer} wait for a task slot already; its other runs continue"
            )
        self._waiting[peer] += 1
        try:
            return self._changed.wait(seconds)
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]


class FollowerSlots:
    """The slots for tasks that follow: one for each tserver and peer. Thread-safe."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._tasks: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """The slots in use."""
        with self._lock:
            return len(self._tasks)

    @contextmanager
    def acquire(self, tserver: str, cluster: str) -> Iterator[None]:
        """Take the slot for the block; the next task of the same tserver and peer shares it with the one before. Raises
        OverloadedError.
        """
        key = tserver, cluster
        with self._lock:
            if key not in self._tasks and len(self._tasks) >= self._total:
                raise OverloadedError(
                    f"{self._total} tasks follow tservers here, so runs ship for {cluster}; "
                    "raise replay.followers_max if the lag matters"
                )
            self._tasks[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._tasks[key] -= 1
                if not self._tasks[key]:
                    del self._tasks[key]
