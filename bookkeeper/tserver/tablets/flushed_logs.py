"""The offset in each log up to which a tablet's segments have its records: a late first use replays nothing (rule R4).

A tserver may die while it announces a first use (rule R12). The put may arrive long after the log was sealed and the
tablet was flushed, moved, split or merged: it is above every delete of that ``log:`` cell, and about a record that was
never appended. The next holder then finds a log to replay. So a state has an offset of *every* log for which that
may happen: the current log, and any other for as long as a write may be in flight since the holder first knew that the
log begins no use any more. Splits and merges pass the offsets on.

``FlushState.through`` survives a crash. Only the commit thread uses this module.
"""

from __future__ import annotations

from collections.abc import Mapping


class FlushedLogs:
    """The flushed logs of one tablet at one holder, who starts with ``through`` of the state in the books."""

    def __init__(self, through: Mapping[str, int], flight_ms: float) -> None:
        self._through = dict(through)
        self._flight_ns = int(flight_ms * 1_000_000)
        self._over_since_ns: dict[str, int] = {}

    def flush(self, needed: Mapping[str, int], current: str, now_ns: int) -> dict[str, int]:
        """The offsets for the state of a flush: of the logs that it makes unneeded, and of the others that still
        matter. ``current`` is the current log, ``now_ns`` the boot clock.
        """
        for log in self._through:
            if log != current:
                self._over_since_ns.setdefault(log, now_ns)
        # R4: until then, a use that was announced before the log was over may still reach the books.
        over = [log for log, since_ns in self._over_since_ns.items() if now_ns - since_ns > self._flight_ns]
        for log in over:
            del self._over_since_ns[log], self._through[log]
        for log, offset in needed.items():
            self._through[log] = max(offset, self._through.get(log, 0))
        return dict(self._through)
