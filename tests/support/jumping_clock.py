"""Clocks for tests that let time pass at once."""

from __future__ import annotations

from bookkeeper.clock import SystemClock


class TestClock(SystemClock):
    """The machine's clock, and jumps of the boot clock that a test makes; ``set_by_ms``: of the wall clock."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead_ns = 0
        self.set_by_ms = 0

    def wall_ms(self) -> int:
        """See the protocol."""
        return super().wall_ms() + self.set_by_ms

    def boot_ns(self) -> int:
        """See the protocol."""
        return super().boot_ns() + self._ahead_ns

    def jump(self, ms: float) -> None:
        """Let time pass."""
        self._ahead_ns += int(ms * 1_000_000)


class StandingClock(SystemClock):
    """Its boot clock stands still until a test moves it."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def boot_ns(self) -> int:
        """See the protocol."""
        return self.now_ns

    def jump(self, ms: float) -> None:
        """Let time pass."""
        self.now_ns += int(ms * 1_000_000)
