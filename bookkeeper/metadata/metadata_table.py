"""The protocol of the metadata table: the timestamp of a cell is a rank, so that *newest wins* merges two values.

All puts or deletes of one call share one rank. A read returns rows in order, with one cell for each column: the highest
rank that no tombstone hides. No call reads before it writes, and two cells change together only if they are puts of one
row in one call (law L8). Rules: R1-R4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

MAX_RANK = 2**62 + 2**61
"""Highest rank a put or delete may carry; the rank of a purge lies above it."""

PURGE_RANK = 2**63 - 2
"""Rank of a purge: the highest rank that a store can hide."""

CLOSED_RANK = 2**62
"""Added to the final offset to rank a CLOSED status above every OPEN one of the same file."""

FAMILIES = ("tablet", "location", "segment", "log", "repl", "done", "recv", "fate", "del", "quar", "replica")
"""Families that a read returns by default."""

OWNER_FAMILY = "owner"
"""Family of the row with the owner of the books; a read returns it only when it names the family."""


class Column(Struct, frozen=True, order=True):
    """Family and qualifier; only the qualifier may hold arbitrary bytes."""

    family: str
    qualifier: bytes


class Cell(Struct, frozen=True):
    """A value and the rank at which it was written."""

    rank: int
    value: bytes


class Row(Struct, frozen=True):
    """One row of a scan: its key and the visible cells of the requested families, never empty."""

    key: bytes
    cells: Mapping[Column, Cell]

    def family(self, name: str) -> dict[bytes, Cell]:
        """The cells of one family by qualifier, in order."""
        return {c.qualifier: cell for c, cell in sorted(self.cells.items()) if c.family == name}


class RowPut(Struct, frozen=True):
    """Values for one row; they become visible together."""

    key: bytes
    values: Mapping[Column, bytes]


class CellKey(Struct, frozen=True, order=True):
    """Names one cell, for deletes and purges."""

    key: bytes
    column: Column


class MetadataTable(Protocol):
    """One key-value table. Safe for use by many threads. Raises TransientError when the store can't be reached
    (after its own bounded retries) and PermanentError on misuse; a failed write may have been applied in part,
    and repeating all of it is harmless.
    """

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """Write values at ``rank``; durable on return. A cell keeps the highest rank; the same rank is a retry."""

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """Hide every version of these cells up to and including ``rank``; a later put above it shows."""

    def purge(self, cells: Sequence[CellKey]) -> None:
        """Hide these cells for ever, also from later writes: only for names that are never used again."""

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """One row, or None when no cell is visible; ``families`` None means :data:`FAMILIES`."""

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """Rows with ``start <= key < stop`` in key order; each row is atomic, the scan is not; memory is bounded."""

    def close(self) -> None:
        """Release connections; the object can't be used any more."""


@runtime_checkable
class SliceReader(Protocol):
    """A table that can read a part of a row; some rows that the master reads have a hundred thousand cells."""

    def get_slice(self, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
        """The cells of one family with ``start <= qualifier < stop``, or None when none is visible."""


def get_slice(table: MetadataTable, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
    """See :class:`SliceReader`; reads the complete family from other tables. Raises as ``get`` does."""
    if isinstance(table, SliceReader):
        return table.get_slice(key, family, start, stop)
    row = table.get(key, (family,))
    cells = {} if row is None else {c: cell for c, cell in row.cells.items() if start <= c.qualifier < stop}
    return Row(key, cells) if cells else None


@runtime_checkable
class PartReader(Protocol):
    """A table that can return a long row in parts, so that a reader needs no memory for all of it."""

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """As ``scan``, but a long row is several consecutive rows with the same key, all from one snapshot, each with
        other columns, in order of family and qualifier. Rule R9 needs all of them.
        """


def scan_parts(table: MetadataTable, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
    """See :class:`PartReader`; other tables return complete rows. Raises as ``scan`` does."""
    if isinstance(table, PartReader):
        return table.scan_parts(start, stop, families)
    return table.scan(start, stop, families)


@runtime_checkable
class Compactor(Protocol):
    """A table that keeps hidden cells until it is told; HBase compacts its tables by itself."""

    def compact(self) -> None:
        """Drop the cells and tombstones that were hidden at the previous call, too. Between two calls, the caller waits
        longer than any write can be in flight (rule R4): a later write below a dropped tombstone would show.
        """


@runtime_checkable
class Probed(Protocol):
    """A table of a store that can tell at once whether it takes writes; a store may answer reads and take no write."""

    def probe(self) -> None:
        """Raise TransientError when the table takes no write now. Writes nothing; tries for a second at most, unless a
        connection hangs.
        """


@runtime_checkable
class OwnerReader(Protocol):
    """A table that reads its owner row over a new connection, because its file may have been replaced."""

    def owner_row(self) -> Row | None:
        """The ``~owner`` row with its family, without a check of the owner; raises as ``get`` does."""


def prefix_stop(prefix: bytes) -> bytes | None:
    """Smallest key greater than every key that starts with ``prefix``; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
