"""A clock for tests that let time pass at once."""

from __future__ import annotations

from bookkeeper.clock import SystemClock


class TestClock(SystemClock):
    """The machine's clock, and jumps of the boot clock that a test makes."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead_ns = 0

    def boot_ns(self) -> int:
        """See the protocol."""
        return super().boot_ns() + self._ahead_ns

    def jump(self, ms: int) -> None:
        """Let time pass."""
        self._ahead_ns += ms * 1_000_000
