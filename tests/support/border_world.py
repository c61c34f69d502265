"""Tablets for tests of splits and merges: rows with segments, high-waters and files to replicate, and what they mean.

Arrives: a store. Leaves: tables filled as tservers would have left them, one reading of them by row (which segments
count, how far a stream is there, what comes before), and a store that is read one row at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change, TabletFacts
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import RowRange, StreamKey, join_ranges
from tests.support.metadata_model import MetadataModel

STREAM = StreamKey("east", "their/1.wal", "7", "1", 1)
LETTERS = [bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"]
FLUSHED = keys.first_flush_id(1)


def segment(first: bytes, last: bytes) -> SegmentEntry:
    """A file with rows from ``first`` to ``last``."""
    return SegmentEntry("default", 2, 99, first, last, 1, 9, FLUSHED)


def held_row(
    row: bytes, segments: Mapping[str, SegmentEntry], high_water: int, wal: tuple[str, int], serial: int = 1
) -> RowPut:
    """The tablet row that a holder of this serial leaves when it unloads the tablet; at its first flush id."""
    state = FlushState(
        keys.first_flush_id(serial), {wal[0]: wal[1]}, wal[1], 900, {STREAM: high_water}, (wal,), tuple(segments)
    )
    cells = {keys.segment_column(name): entry.encode() for name, entry in segments.items()}
    return RowPut(row, {**cells, keys.FLUSH: state.encode()})


def hold(table: MetadataTable | ModelTable, put: RowPut, serial: int = 1) -> None:
    """Write what :func:`held_row` makes."""
    table.put([RowPut(put.key, {keys.SERIAL: keys.SERIAL_VALUE})], serial)
    table.put([put], keys.first_flush_id(serial))


# ---- what tablet rows mean


@dataclass(frozen=True)
class Meaning:
    """The knowledge of a table about one row, independent of the tablet that holds it."""

    segments: frozenset[str]
    high_water: int
    after: frozenset[tuple[str, int]]
    last_seq: int


def meaning(rows: Sequence[Row]) -> dict[bytes, Meaning]:
    """Of each letter; raises AssertionError when tablets do not join up."""
    tablets = [split_rules.facts_of(row) for row in rows if keys.is_tablet(row)]
    covered = join_ranges(tablet.extent.rows for tablet in tablets)
    assert covered == (RowRange(None, None),), covered
    found = {}
    for letter in LETTERS:
        homes = [tablet for tablet in tablets if tablet.extent.contains(letter)]
        assert len(homes) == 1, homes
        found[letter] = _meaning_of(homes[0], letter)
    return found


def _meaning_of(tablet: TabletFacts, letter: bytes) -> Meaning:
    flush = tablet.flush or split_rules.EMPTY_FLUSH_STATE
    counting = {name for name, entry in tablet.segments.items() if counts(entry, letter)}
    ahead = [part.offset for part in flush.partial_high_waters.get(STREAM, ()) if part.rows.contains(letter)]
    high_water = max([flush.high_water.get(STREAM, 0), *ahead])
    return Meaning(frozenset(counting), high_water, frozenset(flush.last_wals), flush.last_seq)


def counts(entry: SegmentEntry, letter: bytes) -> bool:
    """Whether a file may have records of this row that count."""
    inside = entry.min_row <= letter <= entry.max_row
    return inside and (not entry.ranges or any(rows.contains(letter) for rows in entry.ranges))


def ends_of(rows: Sequence[Row]) -> list[bytes | None]:
    """The end rows of tablets."""
    return [keys.parse_tablet_row(row.key)[1] for row in rows if keys.is_tablet(row)]


# ---- a store in memory that is read one row at a time


@dataclass
class ModelTable:
    """The part of :class:`MetadataTable` that scans and changes need. ``between`` is called before each row is read."""

    model: MetadataModel = field(default_factory=MetadataModel)
    between: Callable[[], None] = lambda: None

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        self.model.put(rows, rank)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        self.model.delete(cells, rank)

    def rows(self) -> list[Row]:
        """Everything at one moment."""
        found: dict[bytes, dict[Column, Cell]] = {}
        for name, cell in sorted(self.model.visible().items()):
            found.setdefault(name.key, {})[name.column] = cell
        return [Row(key, cells) for key, cells in sorted(found.items())]

    def scan(self, start: bytes, stop: bytes, families: Collection[str]) -> Iterator[Row]:
        """As a scan that is not atomic meets them: one row after the other, each as it is then."""
        while True:
            self.between()
            ahead = (row for row in self.rows() if start <= row.key < stop)
            found = next((row for row in map(_only(families), ahead) if row.cells), None)
            if found is None:
                return
            start = found.key + b"\x00"
            yield found


def _only(families: Collection[str]) -> Callable[[Row], Row]:
    return lambda row: Row(row.key, {c: cell for c, cell in row.cells.items() if c.family in families})


def elements(table: ModelTable, change: Change, backwards: bool) -> list[Callable[[], None]]:
    """The smallest writes that a store may make of a change, call after call; within a call in either order."""
    done: list[Callable[[], None]] = []
    for write in split_rules.in_order(change):
        puts = [_put_one(table, put, write.rank) for put in write.puts]
        deletes = [_delete_one(table, cell, write.rank) for cell in write.deletes]
        done += [*puts, *deletes][:: -1 if backwards else 1]
    return done


def _put_one(table: ModelTable, put: RowPut, rank: int) -> Callable[[], None]:
    return lambda: table.put([put], rank)


def _delete_one(table: ModelTable, cell: CellKey, rank: int) -> Callable[[], None]:
    return lambda: table.delete([cell], rank)


def new_rows(table: ModelTable, ends: Sequence[bytes]) -> None:
    """The rows of table 1, split at ``ends``."""
    for number, (start, end) in enumerate(pairwise([None, *ends, None])):
        cells = {keys.PREV_ROW: values.encode_prev_row(start), keys.DIR: values.encode_dir(f"t-{number}")}
        table.put([RowPut(keys.tablet_row("1", end), cells)], keys.ONCE_RANK)
