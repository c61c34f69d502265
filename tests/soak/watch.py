"""A watch over the books of both clusters while faults strike; it notes each broken law (docs/design/rules.md).

It reads the metadata tables again and again, and has no lines when every rule holds: no log that a target lacks is gone
(L2), no finished offset and no high-water of a receiver goes back (L3), no target is further than its log (L1 and R15),
and no tablet is in an older state than before. It only reads; a store that does not answer is read again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import TransientError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from combiners import CLOSED
from tests.soak.high_waters import HighWaters, fell_back, high_waters
from tests.support.books import books_of
from tests.support.volumes import path_of

LOOK_MS = 500
LINES_MAX = 20

Broken = Callable[[str, Sequence[Row]], list[str]]
"""Looks for other broken laws in the rows of a cluster of this name; a law counts as broken if a second look at rows
that are read later finds the same.
"""

Exists = Callable[[Settings, str], bool]
"""Whether a cluster has a file of this name."""

Marks = dict[tuple[str, ...], int]
"""Numbers that may only rise, each by its file and target, or by its tablet."""


def nothing_else(_name: str, _rows: Sequence[Row]) -> list[str]:
    """No other laws."""
    return []


def marks_of(rows: Iterable[Row]) -> Marks:
    """Finished offsets by file and target, named states by tablet and directory."""
    found: Marks = {}
    for row in rows:
        if row.key.startswith(keys.REPL_PREFIX):
            for column, cell in row.cells.items():
                if column.family == "done":
                    place = ("finished", keys.parse_repl_row(row.key), repr(keys.parse_target(column.qualifier)))
                    found[place] = values.decode_status(cell.value).replication_finished_offset
        elif keys.is_tablet(row) and keys.FLUSH in row.cells:
            state = values.FlushState.decode(row.cells[keys.FLUSH].value)
            if keys.DIR in row.cells:
                found["state", repr(row.key), values.decode_dir(row.cells[keys.DIR].value)] = state.flush_id
    return found


def went_back(before: Mapping[tuple[str, ...], int], now: Mapping[tuple[str, ...], int]) -> list[str]:
    """Offsets that are lower than before. A missing offset is none of them: it was forgotten."""
    return [
        f"{' '.join(place)} went back from {before[place]} to {offset}"
        for place, offset in now.items()
        if offset < before.get(place, 0)
    ]


def lacking(rows: Iterable[Row]) -> set[str]:
    """Files that some target lacks a part of."""
    return {
        keys.parse_repl_row(row.key)
        for row in rows
        if row.key.startswith(keys.REPL_PREFIX) and any(_behind(row, target) for target in row.family("repl"))
    }


def too_far(rows: Iterable[Row]) -> list[str]:
    """Targets that have more of a file that will not grow than there is."""
    return [
        f"{keys.parse_repl_row(row.key)} is finished up to {_finished(row, target)}, and ends at {end}"
        for row in rows
        if row.key.startswith(keys.REPL_PREFIX)
        for target, cell in row.family("repl").items()
        if (status := values.decode_status(cell.value)).state == CLOSED
        if _finished(row, target) > (end := status.replication_needed_offset)
    ]


def _finished(row: Row, target: bytes) -> int:
    cell = row.family("done").get(target)
    return 0 if cell is None else values.decode_status(cell.value).replication_finished_offset


def _behind(row: Row, target: bytes) -> bool:
    return _finished(row, target) < values.decode_status(row.family("repl")[target].value).replication_needed_offset


@dataclass(slots=True)
class Watch:
    """One cluster's books. ``lines`` are what was seen; used by one thread at a time."""

    name: str
    table: MetadataTable
    exists: Callable[[str], bool]
    broken: Broken = nothing_else
    lines: list[str] = field(default_factory=list)
    looks: int = 0
    _marks: Marks = field(default_factory=dict)
    _waters: HighWaters = field(default_factory=dict)

    def look(self) -> None:
        """One look. Raises TransientError."""
        rows = list(self.table.scan())
        marks = marks_of(rows)
        waters = high_waters(rows)
        self._note([*went_back(self._marks, marks), *fell_back(self._waters, waters), *too_far(rows)])
        self._marks, self._waters = marks, waters
        gone = {file for file in lacking(rows) if not self.exists(file)}
        still = lacking(row for row in map(self.table.get, map(keys.repl_row, sorted(gone))) if row is not None)
        self._note([f"{file} is gone, and a target lacks a part of it" for file in sorted(still)])
        if found := self.broken(self.name, rows):
            later = set(self.broken(self.name, list(self.table.scan())))
            self._note([line for line in found if line in later])
        self.looks += 1

    def _note(self, lines: list[str]) -> None:
        self.lines += [f"{self.name}: {line}" for line in lines][: LINES_MAX - len(self.lines)]


def is_there(settings: Settings, file: str) -> bool:
    """Whether a cluster has a file."""
    return path_of(file, settings.directory).exists()


@contextmanager
def watching(
    clusters: Mapping[str, Settings], clock: Clock, broken: Broken = nothing_else, exists: Exists = is_there
) -> Iterator[list[Watch]]:
    """Look at the books of clusters again and again inside the block. ``exists``: whether a cluster has a file."""
    stop = threading.Event()
    watches = [
        Watch(name, books_of(settings), partial(exists, settings), broken) for name, settings in clusters.items()
    ]

    def run() -> None:
        while not clock.wait(stop, LOOK_MS):
            for watch in watches:
                try:
                    watch.look()
                except TransientError:
                    continue  # its disk is full, or a writer was in the way

    thread = threading.Thread(target=run, name="watch", daemon=True)
    thread.start()
    try:
        yield watches
    finally:
        stop.set()
        thread.join()
        for watch in watches:
            watch.table.close()
