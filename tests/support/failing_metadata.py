"""A metadata table that fails when it is told to: before a call, or after it was applied (the answer is lost).

Arrives: a real table and a schedule. Leaves: the same table, with TransientError where the schedule says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from bookkeeper.errors import TransientError, UnavailableError
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut

Wanted = Callable[[str, Sequence[bytes]], bool]
"""Whether a call fails: its name, and ``family:qualifier`` of the columns it touches."""


class FailingMetadata:
    """Wraps a table. Thread-safe."""

    def __init__(self, table: MetadataTable) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._before: list[Wanted] = []
        self._after: list[Wanted] = []
        self._gates: list[tuple[Wanted, threading.Event, threading.Event]] = []
        self.failures = 0
        self.error: type[TransientError] = UnavailableError

    @contextmanager
    def failing(self, wanted: Wanted, applied: bool = False) -> Iterator[None]:
        """Calls that are wanted raise inside the block; ``applied``: after they were done."""
        schedule = self._after if applied else self._before
        schedule.append(wanted)
        try:
            yield
        finally:
            schedule.remove(wanted)

    @contextmanager
    def holding(self, wanted: Wanted) -> Iterator[threading.Event]:
        """Calls that are wanted wait inside the block; the event is set when the first one does."""
        reached, gate = threading.Event(), threading.Event()
        entry = (wanted, reached, gate)
        self._gates.append(entry)
        try:
            yield reached
        finally:
            self._gates.remove(entry)
            gate.set()

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        columns = [f"{c.family}:".encode() + c.qualifier for row in rows for c in row.values]
        self._around("put", columns, lambda: self._table.put(rows, rank))

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        self._around("delete", _names(cells), lambda: self._table.delete(cells, rank))

    def purge(self, cells: Sequence[CellKey]) -> None:
        self._around("purge", _names(cells), lambda: self._table.purge(cells))

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        return self._table.get(key, families)

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        return self._table.scan(start, stop, families)

    def close(self) -> None:
        self._table.close()

    def _around(self, name: str, columns: Sequence[bytes], act: Callable[[], None]) -> None:
        for wanted, reached, gate in list(self._gates):
            if wanted(name, columns):
                reached.set()
                gate.wait(60)
        self._fail(self._before, name, columns)
        act()
        self._fail(self._after, name, columns)

    def _fail(self, schedule: Sequence[Wanted], name: str, columns: Sequence[bytes]) -> None:
        if any(wanted(name, columns) for wanted in list(schedule)):
            with self._lock:
                self.failures += 1
            raise self.error("the metadata table does not answer (as the test told it to)")


def _names(cells: Sequence[CellKey]) -> list[bytes]:
    return [f"{cell.column.family}:".encode() + cell.column.qualifier for cell in cells]


def touching(prefix: bytes, call: str = "put") -> Wanted:
    """Calls of this name that touch a column with the prefix, as in ``b"log:"``."""
    return lambda name, columns: name == call and any(column.startswith(prefix) for column in columns)
