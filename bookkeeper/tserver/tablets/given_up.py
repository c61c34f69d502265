"""The logs that one tablet is served without, because their host is away (N6).

The cells ``tablet:lost:`` of the tablet's row survive a crash, and loading makes this from them. Each tail is merged at
most once for a holder: memory has its records from then on, and a state that is named with them closes it. A holder
that dies before that leaves the cell, and the next one merges the tail from its own start. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from bookkeeper.tserver.tablets.wal_order import WalPosition


def session_directory(log: str) -> str:
    """The directory of all logs of the session that wrote a log."""
    return log.rpartition("/")[0]


class GivenUpLogs:
    """The given-up logs of one tablet at one holder."""

    def __init__(self, lost: Collection[str], tails: Mapping[str, int]) -> None:
        """``lost``: all; ``tails``: those with records that the tablet lacks, each with the offset before these."""
        self._lock = threading.Lock()
        self._lost = frozenset(lost)
        self._waiting = dict(tails)
        self._merged: frozenset[str] = frozenset()

    @property
    def awaits_tails(self) -> bool:
        """Whether a tail of the tablet may still come, or is not named yet. Older records than the newest ones come
        with it, so deletes stay (P17), high-waters are remembered (R18), and no copy is complete.
        """
        return bool(self._waiting or self._merged)

    @property
    def has_lost(self) -> bool:
        """Whether the books may have a cell of a given-up log of the tablet."""
        return bool(self._lost)

    @property
    def waiting(self) -> Mapping[str, int]:
        """The logs whose tails are not merged, each with the offset after which the tablet lacks records."""
        with self._lock:
            return dict(self._waiting)

    @property
    def merged(self) -> frozenset[str]:
        """The logs whose tails are in memory or in states, and whose cells wait for a name."""
        return self._merged

    def awaits(self, log: str) -> bool:
        """Whether the tail of this log may still come, or is not named yet."""
        with self._lock:
            return log in self._waiting or log in self._merged

    def tail_merged(self, log: str) -> None:
        """Memory has the tail of this log."""
        with self._lock:
            del self._waiting[log]
            self._merged |= {log}

    def close(self, logs: Collection[str]) -> None:
        """The books have no cell of these logs any more: a named state has their tails, or they are lost for ever."""
        with self._lock:
            self._lost -= frozenset(logs)
            self._merged -= frozenset(logs)
            for log in logs:
                self._waiting.pop(log, None)

    def retain(self, logs: Collection[str]) -> None:
        """The books have cells of these logs alone; a merged log keeps its own until its state is named."""
        self.close((self._lost - frozenset(logs)) - self._merged)

    def in_order(self, last_wals: tuple[WalPosition, ...]) -> tuple[WalPosition, ...]:
        """Rule R24: the predecessors for which the next records wait: none in logs of a session of which a log was
        given up. Peers get these later, and timestamps tell their order.
        """
        if not self._lost:
            return last_wals
        away = {session_directory(log) for log in self._lost}
        return tuple(last for last in last_wals if session_directory(last.file) not in away)
