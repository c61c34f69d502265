"""``~root_``: that records of a log have come to this cluster, by whatever path, and that others may bring them again.

The cell stands before anything of the log is taken, and goes when nothing of it is under way anywhere any more (rule
R22): so a tablet that finds what it holds of a log without a cell, in a flush state or in a block, forgets it.

Arrives: the logs that messages speak of. Leaves: one cell a log, once by each tserver. Survives a crash: the cells.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from bookkeeper.clock import Clock
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Column, MetadataTable, RowPut
from bookkeeper.origins import RootLog
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.tserver.tablets.tablet import ReceivedBlock

KNOWN_MAX = 100_000
"""Logs that a tserver remembers to have announced; more are announced again."""


def logs_in(blocks: Iterable[ReceivedBlock]) -> set[RootLog]:
    """The logs that some blocks were first written to. Older versions do not say it: theirs are told by stream."""
    found: set[RootLog] = set()
    for block in blocks:
        if block.block_origins is not None:
            found.update(root.log for root, _ in block.block_origins.records)
            found.update(claim.root.log for claim in block.block_origins.claims)
    return found


def announced_logs(metadata: MetadataTable, instance_ids: Iterable[str]) -> set[RootLog]:
    """The logs of these clusters that are not over. Raises TransientError, CorruptionError."""
    found: set[RootLog] = set()
    for instance_id in sorted(set(instance_ids)):
        for row in metadata.scan(*keys.root_section(instance_id), ("recv",)):
            if keys.ROOT_HERE in row.cells:
                found.add(keys.parse_root_row(row.key))
    return found


def ended_logs(held: Iterable[RootLog], announced: Collection[RootLog]) -> set[RootLog]:
    """What a tablet holds of these is of no use any more: they were over while nobody served it. ``announced`` was read
    after what is held.
    """
    return {log for log in held if log not in announced}


def marks_of(sender: str) -> dict[Column, bytes]:
    """The cells of a log that a cluster brings records of."""
    return {keys.ROOT_HERE: values.EMPTY, keys.sender_column(sender): values.EMPTY}


class OriginMarks:
    """Announces logs. Thread-safe."""

    def __init__(self, metadata: MetadataTable, persistence: SessionRetries, clock: Clock) -> None:
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[RootLog, frozenset[str]] = {}
        """Each with the clusters that are known to have brought records of it."""

    def announce(self, logs: Collection[RootLog], sender: str) -> None:
        """Let each have its cells, before anything of it is taken: that it is here, and that ``sender`` brings it.
        Raises TransientError.
        """
        with self._lock:
            fresh = sorted(log for log in logs if sender not in self._known.get(log, ()))
        if not fresh:
            return
        self._persistence.check()
        puts = [RowPut(keys.root_row(log), marks_of(sender)) for log in fresh]
        self._metadata.put(puts, self._clock.wall_ms())
        with self._lock:
            for log in fresh:
                self._known[log] = self._known.get(log, frozenset()) | {sender}
            while len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def forget(self, logs: Iterable[RootLog]) -> None:
        """These are over."""
        with self._lock:
            for log in logs:
                self._known.pop(log, None)
