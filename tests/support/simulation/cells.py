"""The books as HBase keeps them: versions by rank, tombstones, scans that are not atomic, batches that may be cut.

Arrives: calls of the protocol ``bookkeeper.metadata.metadata_table``. Each row of a put, each cell of a delete and each
row of a scan is a step of its own. A write may arrive after its caller gave up or ended: see ``late_writes``. Leaves:
what the highest rank says that no tombstone hides. Rule R1 is a law here: one rank is never written with two values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import PURGE_RANK, Cell, CellKey, Column, Row, RowPut
from bookkeeper.metadata.owner import owner_value
from tests.support.simulation.kernel import Kernel, KilledError, Process
from tests.support.simulation.late_writes import FLIGHT_MS, Step, Way


@dataclass
class _Versions:
    values: dict[int, bytes] = field(default_factory=dict)
    hidden: int = 0
    hidden_ns: int = 0
    shown: Cell | None = None

    def changed(self) -> None:
        """Find out what shows now."""
        rank = max(self.values, default=0)
        self.shown = Cell(rank, self.values[rank]) if rank > self.hidden else None


@dataclass(eq=False)
class SimTable:
    """One cluster's books. ``refuse`` tells of a process for which they do not answer now, ``way`` which writes arrive
    although their callers got no answer.
    """

    kernel: Kernel
    refuse: Callable[[str], bool] = lambda _process: False
    broken_laws: list[str] = field(default_factory=list)
    on_put: Callable[[bytes, Column, int], None] = lambda _key, _column, _rank: None
    on_row: Callable[[bytes, Collection[Column]], None] = lambda _key, _columns: None
    way: Way = field(default_factory=Way)
    _rows: dict[bytes, dict[Column, _Versions]] = field(default_factory=dict)
    _compacted_ns: dict[Process, int] = field(default_factory=dict)

    # ---- the protocol

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        self._write(
            [
                Step(f"put {put.key!r} {_columns(put.values)} at {rank_text(rank)}", partial(self._put_row, put, rank))
                for put in rows
            ]
        )

    def _put_row(self, put: RowPut, rank: int) -> None:
        cells = self._rows.setdefault(put.key, {})
        for column, value in put.values.items():
            self._put_cell(put.key, cells.setdefault(column, _Versions()), column, rank, value)
        self.on_row(put.key, put.values)

    def _put_cell(self, key: bytes, versions: _Versions, column: Column, rank: int, value: bytes) -> None:
        before = versions.values.get(rank)
        if before is not None and before != value:
            self.broken_laws.append(
                f"R1: {key!r} {column} has {before!r} at rank {rank_text(rank)} and is written {value!r} there"
            )
        versions.values[rank] = value
        versions.changed()
        self.on_put(key, column, rank)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        self._write(
            [
                Step(
                    f"delete {cell.key!r} {_columns([cell.column])} at {rank_text(rank)}",
                    partial(self._hide, cell, rank),
                )
                for cell in cells
            ]
        )

    def purge(self, cells: Sequence[CellKey]) -> None:
        self._write(
            [
                Step(f"purge {cell.key!r} {_columns([cell.column])}", partial(self._hide, cell, PURGE_RANK))
                for cell in cells
            ]
        )

    def _write(self, steps: Sequence[Step]) -> None:
        """All steps, unless the caller gives up or ends before one: then this one and the later ones are on their
        way.
        """
        for number, step in enumerate(steps):
            begun_ns = self.kernel.now_ns
            try:
                self._pause(step.label)
                self.way.answer(step.label)
            except (KilledError, UnavailableError):
                self.way.send(self.kernel, steps[number:], begun_ns)
                raise
            step.act()

    def _hide(self, cell: CellKey, rank: int) -> None:
        versions = self._rows.setdefault(cell.key, {}).setdefault(cell.column, _Versions())
        versions.hidden, versions.hidden_ns = max(rank, versions.hidden), self.kernel.now_ns
        versions.changed()

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        self._pause(f"get {key!r}")
        return self.row(key, families)

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        at = start
        while True:
            self._pause(f"scan {start!r} from {at!r}")
            key = min((k for k in self._rows if k >= at and (stop is None or k < stop)), default=None)
            while key is not None and (row := self.row(key, families)) is None:
                after = key
                key = min((k for k in self._rows if k > after and (stop is None or k < stop)), default=None)
            if key is None:
                return
            yield row  # type: ignore[misc]
            at = key + b"\x00"

    def compact(self) -> None:
        """A process drops what it found hidden at its compaction before."""
        self._pause("compact")
        process = self.kernel.process_of_current()
        found_ns = self._compacted_ns.get(process, 0)
        self._drop(lambda versions: versions.hidden_ns <= found_ns)
        self._compacted_ns[process] = self.kernel.now_ns

    def close(self) -> None:
        """Nothing to let go of."""

    def _pause(self, label: str) -> None:
        self.kernel.pause(label)
        current = self.kernel.current
        if current is not None and self.refuse(current.process.name):
            raise UnavailableError("the books do not answer")

    # ---- for the world

    def owned_by(self, instance_id: str) -> None:
        """Made for an instance, as ``init`` does."""
        cells = self._rows.setdefault(keys.owner_row(), {})
        self._put_cell(
            keys.owner_row(), cells.setdefault(keys.OWNER, _Versions()), keys.OWNER, 1, owner_value(instance_id)
        )

    def row(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """The visible cells of a row now."""
        cells = {
            column: cell
            for column, versions in sorted(self._rows.get(key, {}).items())
            if (cell := versions.shown) is not None and (families is None or column.family in families)
        }
        return Row(key, cells) if cells else None

    def names(self) -> Iterator[tuple[bytes, Column, Cell]]:
        """Every cell that shows."""
        for key, cells in self._rows.items():
            for column, versions in cells.items():
                if versions.shown is not None:
                    yield key, column, versions.shown

    def rows(self, prefix: bytes = b"", families: Collection[str] | None = None) -> list[Row]:
        """Everything that shows now, at one moment."""
        found = (self.row(key, families) for key in sorted(self._rows) if key.startswith(prefix))
        return [row for row in found if row is not None]

    def compact_now(self) -> None:
        """HBase compacts by itself: deletes go at once, purges when no write below them can be on its way (rule R4)."""
        kept_ns = self.kernel.now_ns - FLIGHT_MS * 1_000_000
        self._drop(lambda versions: versions.hidden_ns <= kept_ns or versions.hidden < PURGE_RANK)

    def _drop(self, is_due: Callable[[_Versions], bool]) -> None:
        """Drop hidden versions, and the tombstones that are due."""
        for cells in self._rows.values():
            for versions in cells.values():
                shown = versions.shown
                versions.values = {} if shown is None else {shown.rank: shown.value}
                if is_due(versions):
                    versions.hidden = 0


def _columns(columns: object) -> str:
    names = [f"{c.family}:{short(c.qualifier.decode(errors='replace'))}" for c in columns]  # type: ignore[attr-defined]
    return " ".join(names)


def short(name: str) -> str:
    """The end of a file's name."""
    return "/".join(name.rsplit("/", 2)[-2:]) if "/" in name else name


def rank_text(rank: int) -> str:
    """A rank as people read it."""
    if rank >= 2**62:
        return f"closed+{rank - 2**62}"
    return f"{rank >> 32}.{rank & 0xFFFFFFFF}" if rank >> 32 else str(rank)
