"""The trace of a run, for people: each event is printed at once; the failure report gets the last lines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bookkeeper.clock import Clock

LINES_MAX = 400


@dataclass(slots=True)
class Trace:
    """Times are seconds since its making."""

    clock: Clock
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    _start_ns: int = 0

    def __post_init__(self) -> None:
        self._start_ns = self.clock.boot_ns()

    def say(self, text: str) -> None:
        """One line."""
        line = f"{(self.clock.boot_ns() - self._start_ns) / 1e9:8.1f} s  {text}"
        self.lines.append(line)
        print(line, flush=True)
