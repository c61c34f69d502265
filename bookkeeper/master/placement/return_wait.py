"""The wait for returning tservers after an outage of all, so that the first one does not get all tablets."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.placement.tablet_balance import fair_share, missing_sessions

RETURN_MS = 4_000
"""ms that tablets wait for the tservers that are still missing."""


class ReturnWait(Struct):
    """The wait of one reign. Used by the master's thread alone."""

    clock: Clock
    due_ns: int | None = None
    """The end of the wait (boot clock); None without a wait."""
    _expected: int = 0
    _has_waited: bool = False

    def update(self, tablets: TabletIndex, live: Collection[str]) -> None:
        """Start or end the wait, by the tservers that live now."""
        missing = missing_sessions(tablets, live) if live else 0
        if self.due_ns is not None:
            if len(live) >= self._expected or self.clock.boot_ns() >= self.due_ns:
                self.due_ns = None
        elif missing > len(live) and not self._has_waited:
            self._expected, self.due_ns = missing, self.clock.boot_ns() + RETURN_MS * 1_000_000
        self._has_waited = missing > 0 and (self._has_waited or self.due_ns is not None)

    def tablets_max(self, tablets: int) -> int | None:
        """The most tablets that one tserver gets while others are missing; None when there is no bound."""
        return None if self.due_ns is None else fair_share(tablets, self._expected)
