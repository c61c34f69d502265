"""``~root_`` rows: records of a log have come to this cluster, and other paths may bring them again.

A tserver writes the cell before a tablet applies a record of the log. The master deletes it when no record of the log
is on its way anywhere any more (R22). So a tablet that finds intervals of a log without a cell, in a flush state or in
a block, forgets them. The cells survive a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from bookkeeper.clock import Clock
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Column, MetadataTable, RowPut
from bookkeeper.origins import RootLog
from bookkeeper.runtime.session_retries import SessionRetries

ANNOUNCED_MAX = 100_000
"""Announced logs that a tserver remembers; it announces more of them again."""


def announced_logs(metadata: MetadataTable, instance_ids: Iterable[str]) -> set[RootLog]:
    """The logs of these clusters that are not over. Raises TransientError, CorruptionError."""
    found: set[RootLog] = set()
    for instance_id in sorted(set(instance_ids)):
        for row in metadata.scan(*keys.root_section(instance_id), ("recv",)):
            if keys.ROOT_HERE in row.cells:
                found.add(keys.parse_root_row(row.key))
    return found


def marks_of(sender: str) -> dict[Column, bytes]:
    """The cells of a log, for a cluster that sends records of it."""
    return {keys.ROOT_HERE: values.EMPTY, keys.sender_column(sender): values.EMPTY}


class OriginMarks:
    """Announces logs. Thread-safe."""

    def __init__(self, metadata: MetadataTable, persistence: SessionRetries, clock: Clock) -> None:
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._lock = threading.Lock()
        self._announced: dict[RootLog, frozenset[str]] = {}
        """Each with the clusters that sent records of it."""

    def announce(self, logs: Collection[RootLog], sender: str) -> None:
        """Write the cells of each log, before a record of it is applied: the log is here, and ``sender`` brings it.
        Raises TransientError.
        """
        with self._lock:
            fresh = sorted(log for log in logs if sender not in self._announced.get(log, ()))
        if not fresh:
            return
        self._persistence.check()
        puts = [RowPut(keys.root_row(log), marks_of(sender)) for log in fresh]
        self._metadata.put(puts, self._clock.wall_ms())
        with self._lock:
            for log in fresh:
                self._announced[log] = self._announced.get(log, frozenset()) | {sender}
            while len(self._announced) > ANNOUNCED_MAX:
                del self._announced[next(iter(self._announced))]

    def forget(self, logs: Iterable[RootLog]) -> None:
        """These logs are over."""
        with self._lock:
            for log in logs:
                self._announced.pop(log, None)
