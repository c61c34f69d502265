"""Logs that the books may name once more although segments hold all of them: first uses that come late (rule R4).

Arrives: how far flushes of a tablet reach in logs. Leaves: what its next state says of them. A tserver may die in the
middle of announcing a first use (rule R12), and the put may arrive when its log was sealed long ago, and its tablet was
flushed, moved, split or merged: above every delete of that cell, about a record that was never appended. Whoever loads
the tablet then finds a log to replay. So a state says how far it holds *every* log of which that may happen, not only
those that its own flush was about: the log that is written now, and any other for as long as a write may be in flight
since its holder first knew that no use of it begins any more. Splits and merges hand all of that on.

Survives a crash: ``FlushState.through``. Used by the commit thread alone.
"""

from __future__ import annotations

from collections.abc import Mapping


def may_come_late(over_since_ns: int, now_ns: int, flight_ns: int) -> bool:
    """Rule R4: a use that was announced before the log was over may still reach the books."""
    return now_ns - over_since_ns <= flight_ns


class FlushedLogs:
    """Of one tablet at one holder. ``through`` are those of the state that it found."""

    def __init__(self, through: Mapping[str, int], flight_ms: float) -> None:
        self._through = dict(through)
        self._flight_ns = int(flight_ms * 1_000_000)
        self._over_since_ns: dict[str, int] = {}

    def flush(self, needed: Mapping[str, int], current: str, now_ns: int) -> dict[str, int]:
        """What the state of a flush says: how far it holds the logs that it is about, and the others that count still.
        ``current`` is the log that is written now, ``now_ns`` the boot clock.
        """
        for log in self._through:
            if log != current:
                self._over_since_ns.setdefault(log, now_ns)
        over = [
            log for log, since_ns in self._over_since_ns.items() if not may_come_late(since_ns, now_ns, self._flight_ns)
        ]
        for log in over:
            del self._over_since_ns[log], self._through[log]
        for log, offset in needed.items():
            self._through[log] = max(offset, self._through.get(log, 0))
        return dict(self._through)
