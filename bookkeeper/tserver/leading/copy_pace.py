"""The pauses of copies: while clients write here, a lane takes a bounded part of a core for a large file.

Arrives: the CPU time of the lane's thread, and whether clients write. Leaves: the pause before the next part of a file.
A slow network or disk is no work of this host, so a lane that waits for them pauses less, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bookkeeper.clock import Clock, thread_cpu_ns

PAUSE_MAX_MS = 1_000.0
"""Longest pause between two parts, ms."""


def pause_ms(took_ms: float, computed_ms: float, share: float) -> float:
    """The pause after so much time, of which so much was CPU time, ms."""
    return min(PAUSE_MAX_MS, max(0.0, computed_ms / share - took_ms))


class CopyPace(Struct):
    """Used by the thread of a lane. ``share``: of a core; ``wait``: for so many ms, or until the lane is to end;
    ``cpu_ns``: the CPU time of the calling thread.
    """

    clock: Clock
    share: float
    is_busy: Callable[[], bool]
    wait: Callable[[float], object]
    cpu_ns: Callable[[], int] = lambda: thread_cpu_ns()
    _began_ns: int = 0
    _computed_ns: int = 0

    def begin(self) -> None:
        """The first part of a file follows."""
        self._began_ns, self._computed_ns = self.clock.boot_ns(), self.cpu_ns()

    def keep(self) -> None:
        """Another part follows: wait first, if clients write."""
        if self.is_busy():
            took_ms = (self.clock.boot_ns() - self._began_ns) / 1e6
            pause = pause_ms(took_ms, (self.cpu_ns() - self._computed_ns) / 1e6, self.share)
            if pause:
                self.wait(pause)
        self.begin()
