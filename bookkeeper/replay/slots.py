"""Who may use the task slots: a slow or dead peer never takes those of another.

Arrives: runs, each for one peer, that want some tasks. Leaves: how many they get, at once or when others end. Rules:
a peer holds at most ``per_peer`` slots; a peer whose last run failed counts as suspect and holds one; all suspects
together hold at most half of the slots, so that healthy peers always find some; and few runs of one peer wait, so
that waiting ones don't use up the threads of others. Nothing here survives a crash.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError

WAITING_MAX = 2
"""Runs of one peer that may wait for a slot; one more is declined at once."""

SUSPECTS_MAX = 1024
"""Peers remembered as suspect; beyond it the longest remembered is forgotten."""


def grant(total: int, per_peer: int, held: Mapping[str, int], suspects: Collection[str], peer: str, wanted: int) -> int:
    """How many slots ``peer`` gets now (0: it has to wait), given who holds how many of ``total``."""
    free = total - sum(held.values())
    own = held.get(peer, 0)
    if peer not in suspects:
        return max(0, min(wanted, per_peer - own, free))
    held_by_suspects = sum(count for name, count in held.items() if name in suspects)
    return max(0, min(1 - own, total // 2 - held_by_suspects, free))


class TaskSlots:
    """The slots of one replay process. Thread-safe."""

    def __init__(self, total: int, per_peer: int, clock: Clock) -> None:
        """``total`` at least 2."""
        self._total = total
        self._per_peer = per_peer
        self._clock = clock
        self._held: dict[str, int] = {}
        self._waiting: Counter[str] = Counter()
        self._suspects: dict[str, None] = {}
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, peer: str, wanted: int, timeout_ms: int) -> Iterator[int]:
        """Hold one to ``wanted`` slots for the block; raises OverloadedError when none got free in time, or when
        enough runs of that peer wait already.
        """
        count = self._acquire(peer, wanted, timeout_ms)
        try:
            yield count
        finally:
            with self._changed:
                self._held[peer] -= count
                if not self._held[peer]:
                    del self._held[peer]
                self._changed.notify_all()

    def judge(self, peer: str, healthy: bool) -> None:
        """Remember how the last run of ``peer`` went."""
        with self._changed:
            self._suspects.pop(peer, None)
            if not healthy:
                self._suspects[peer] = None
            if len(self._suspects) > SUSPECTS_MAX:
                del self._suspects[next(iter(self._suspects))]
            self._changed.notify_all()

    def held(self) -> dict[str, int]:
        """Slots in use by peer."""
        with self._changed:
            return dict(self._held)

    def _acquire(self, peer: str, wanted: int, timeout_ms: int) -> int:
        deadline_ns = self._clock.boot_ns() + timeout_ms * 1_000_000
        with self._changed:
            while True:
                count = grant(self._total, self._per_peer, self._held, self._suspects, peer, wanted)
                if count:
                    self._held[peer] = self._held.get(peer, 0) + count
                    return count
                left_ns = deadline_ns - self._clock.boot_ns()
                if left_ns <= 0 or not self._wait(peer, left_ns / 1e9):
                    raise OverloadedError(
                        f"no task slot got free for {peer} in {timeout_ms} ms; in use: {self._held}; "
                        "raise replay.tasks_max if several peers are slow"
                    )

    def _wait(self, peer: str, seconds: float) -> bool:
        if self._waiting[peer] >= WAITING_MAX:
            raise OverloadedError(f"{WAITING_MAX} runs for {peer} wait for a task slot already; its other runs go on")
        self._waiting[peer] += 1
        try:
            return self._changed.wait(seconds)
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]
