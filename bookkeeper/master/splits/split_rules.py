"""Splits and merges of tablets: which tablets change, and what is written of them, in which order.

Arrives: the rows of tablets that nobody holds, borders that go or come. Leaves: a :class:`Change`: puts and deletes at
one rank, in the order in which they may be made. Survives a crash: the cells; every write is a function of facts that
the operation has written down before, so whoever goes on after a cut writes the same (rule R1). Pure.
``operations.borders`` executes; it parks the tablets first. Rules: R1, R16, R18 and R24.

**Nobody writes.** The tablets are let go with a flush, so no log is needed for them (no `log:` cell), and parked: their
location names nobody, so no tserver loads them. What is left of a tablet is its row.

**Which rows.** A split of ``(p, e]`` at ``s`` makes the row of ``s``, a copy of that of ``e``, and then lets the row of
``e`` begin at ``s``. A merge puts everything into the last tablet's row, which begins where the first one did, and then
takes the others' borders away. What stays of such a row is a *remnant*: no tablet, for it has no `tablet:prev_row`.

**Rule R16.** `repl:` cells never move: they are facts about files, whichever row they stand in, and whoever still has
news of a file (its tserver, a master that closes it) puts them where they always were. They keep counting in remnants,
and go when their file is complete. So a late put can neither be lost nor bring a tablet back. `segment:` cells move to
a later row (merge), or are *copied* to an earlier one (split): the later row keeps its own until it has begun to start
at the split, in one row put. A scan that read the later row before that saw them there; one that read it afterwards
demands the earlier row of its chain, and has seen the copies there or starts over. Between the two puts the chain is
broken, never wrong: two tablets begin at one row.

**Rule R1.** The change takes a serial in all rows it touches, above all of theirs, as a holder does, and writes at the
first flush id of that serial: above all that earlier holders may write, below all that later ones will. A remnant keeps
its serial, so a row that comes back by a later split goes on from there. `tablet:flush` is written by each change and
names the segments that count: what a former holder flushes late is never read.

**One file, several tablets.** A `segment:` cell says which rows of its file count (none said: all). Without that, what
one half has compacted away would come back with the other half's reference when they are merged.

**Rule R18.** A tablet that was split leaves its high-waters to both. Of merged tablets each may have another one: the
highest would hide a gap of one, the lowest would let records of another in twice. So the merged tablet has the lowest,
and remembers which rows are ahead of it, up to which offset (``FlushState.partial_high_waters``).

**Rule R24.** A tablet's next record comes after the last ones of all tablets that it was made of
(``FlushState.last_wals``); sequence numbers and server times go on above the highest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from bookkeeper.bulk import part_of_segment
from bookkeeper.errors import CorruptionError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent, PartialHighWater, RowRange, StreamKey, join_ranges
from bookkeeper.origins import joined_roots

NOTHING_YET = FlushState(1, {}, 0, 0, {}, ())
"""What a tablet knows that was never flushed."""

FACTS_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of facts of one change; what is written of them fits in one row put."""


@dataclass(frozen=True, slots=True)
class TabletFacts:
    """What the row of a parked tablet says. ``segments`` are those that count; ``dead`` are other `segment:` cells,
    which whoever holds the row deletes.
    """

    extent: Extent
    flush: FlushState | None
    segments: Mapping[str, SegmentEntry]
    dead: tuple[str, ...]

    @property
    def row(self) -> bytes:
        """The row's key."""
        return keys.tablet_row(self.extent.table_id, self.extent.end_row)


@dataclass(frozen=True, slots=True)
class Write:
    """One call of the store: puts or deletes that share a rank."""

    puts: tuple[RowPut, ...]
    deletes: tuple[CellKey, ...]
    rank: int


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of some rows: ``first`` before ``then`` is put, and ``deletes`` after both; see :func:`in_order`."""

    serial: int
    rows: tuple[bytes, ...]
    first: tuple[RowPut, ...]
    then: tuple[RowPut, ...]
    deletes: tuple[CellKey, ...]

    @property
    def rank(self) -> int:
        """Rule R1: above all that earlier holders of these rows may write, below what later ones will."""
        return keys.first_flush_id(self.serial)


def in_order(change: Change) -> list[Write]:
    """The calls that make a change, any of which may be repeated, or be cut from the next one. Rule R16: a reference is
    put where it is needed from now on before it goes where it was.
    """
    serials = tuple(RowPut(row, {keys.SERIAL: keys.SERIAL_VALUE}) for row in change.rows)
    writes = [
        Write(serials, (), change.serial),
        Write(change.first, (), change.rank),
        Write(change.then, (), change.rank),
        Write((), change.deletes, change.rank),
    ]
    return [write for write in writes if write.puts or write.deletes]


# ---- which tablets


def to_merge(extents: Iterable[Extent], rows: RowRange) -> list[Extent]:
    """The tablets with rows in ``rows``, which are one tablet afterwards; nothing to do for less than two."""
    return [extent for extent in extents if extent.rows.part_in(rows) is not None]


def is_quiet(row: Row) -> bool:
    """Nobody needs a log to know what the tablet holds: whoever held it last has flushed everything."""
    return not row.family("log")


def stale_uses(rows: Iterable[Row]) -> list[CellKey]:
    """Uses of logs that remnants show when their rows become tablets again. Nobody needs them: a tablet's row becomes a
    remnant without any, so their writers were dead before.
    """
    return [CellKey(row.key, column) for row in rows for column in row.cells if column.family == "log"]


# ---- facts


def facts_of(row: Row) -> TabletFacts:
    """The facts in a row read with the families tablet and segment. Raises CorruptionError."""
    if not keys.is_tablet(row):
        raise CorruptionError(f"{row.key!r} is no tablet")
    table_id, end_row = keys.parse_tablet_row(row.key)
    flush_cell = row.cells.get(keys.FLUSH)
    flush = None if flush_cell is None else FlushState.decode(flush_cell.value)
    cells = {keys.parse_file(uri): cell for uri, cell in row.family("segment").items()}
    named = () if flush is None else flush.segments
    missing = [uri for uri in named if uri not in cells]
    if missing:
        raise CorruptionError(f"tablet {row.key!r} consists of {missing[0]} and others, and has no cell of it")
    return TabletFacts(
        Extent(table_id, end_row, values.decode_prev_row(row.cells[keys.PREV_ROW].value)),
        flush,
        {uri: SegmentEntry.decode(cells[uri].value) for uri in sorted(named)},
        tuple(sorted(set(cells) - set(named))),
    )


def serial_of(row: Row | None) -> int:
    """How many holders and changes a row had; 0 for one that never was."""
    cell = None if row is None else row.cells.get(keys.SERIAL)
    return 0 if cell is None else cell.rank


def next_serial(rows: Iterable[Row | None]) -> int:
    """One serial for all rows of a change: above those of all, remnants included (rule R1)."""
    return 1 + max(map(serial_of, rows), default=0)


def encode_facts(facts: Sequence[TabletFacts]) -> list[values.Json]:
    """Facts as an operation writes them down before it acts on them. Raises RefusedError when they are too many."""
    encoded: list[values.Json] = [
        {
            "table_id": found.extent.table_id,
            "end_row": values.encode_row(found.extent.end_row),
            "prev_row": values.encode_row(found.extent.prev_row),
            "flush": None if found.flush is None else found.flush.encode().decode(),
            "segments": {uri: entry.encode().decode() for uri, entry in found.segments.items()},
            "dead": [*found.dead],
        }
        for found in facts
    ]
    size = sum(len(repr(found)) for found in encoded)
    if size > FACTS_BYTES_MAX:
        raise RefusedError(
            f"{len(facts)} tablets with {sum(len(found.segments) for found in facts)} segments are too many for one "
            "change; compact them first, or merge fewer at once"
        )
    return encoded


def decode_facts(encoded: Sequence[Mapping[str, values.Json]]) -> list[TabletFacts]:
    """Inverse of :func:`encode_facts`."""
    return [_decoded(cast("Mapping[str, Any]", found)) for found in encoded]


def _decoded(found: Mapping[str, Any]) -> TabletFacts:
    extent = Extent(found["table_id"], values.decode_row(found["end_row"]), values.decode_row(found["prev_row"]))
    flush = None if found["flush"] is None else FlushState.decode(found["flush"].encode())
    segments = {uri: SegmentEntry.decode(raw.encode()) for uri, raw in found["segments"].items()}
    return TabletFacts(extent, flush, segments, tuple(found["dead"]))


# ---- what is written


def split_change(facts: TabletFacts, splits: Sequence[bytes], serial: int, directory: str) -> Change:
    """Part a tablet at these rows (inside of it, ascending). ``directory`` is where the names of the new tablets'
    directories begin; never used before.
    """
    starts = [facts.extent.prev_row, *splits]
    *made, left = [
        replace(facts.extent, prev_row=start, end_row=end)
        for start, end in zip(starts, [*splits, facts.extent.end_row], strict=True)
    ]
    first = tuple(
        _row_put(extent, part_state(facts, extent, serial), _parts(facts, extent), f"{directory}-{number}")
        for number, extent in enumerate(made)
    )
    kept = _parts(facts, left)
    return Change(
        serial,
        (*(put.key for put in first), facts.row),
        first,
        (_row_put(left, part_state(facts, left, serial), kept),),
        tuple(CellKey(facts.row, keys.segment_column(uri)) for uri in facts.segments if uri not in kept),
    )


def one_change(changes: Sequence[Change]) -> Change:
    """Changes of several tablets, of one serial, as one: what is first in any comes before what is then in any."""
    return Change(
        changes[0].serial,
        tuple(row for change in changes for row in change.rows),
        tuple(put for change in changes for put in change.first),
        tuple(put for change in changes for put in change.then),
        tuple(cell for change in changes for cell in change.deletes),
    )


def merge_change(parts: Sequence[TabletFacts], serial: int) -> Change:
    """Make one tablet of several that follow each other, in the last one's row."""
    last = parts[-1]
    extent = replace(last.extent, prev_row=parts[0].extent.prev_row)
    segments = joined_segments(parts)
    put = _row_put(extent, joined_state(parts, segments, serial), segments)
    return Change(
        serial,
        tuple(part.row for part in parts),
        (put,),
        (),
        tuple(cell for part in parts[:-1] for cell in _ended(part)),
    )


def _ended(facts: TabletFacts) -> list[CellKey]:
    """What makes a row a tablet's. Its serial and its `repl:` cells stay."""
    columns: list[Column] = [keys.PREV_ROW, keys.DIR, keys.FLUSH]
    columns += [keys.segment_column(uri) for uri in sorted({*facts.segments, *facts.dead})]
    return [CellKey(facts.row, column) for column in columns]


def _row_put(
    extent: Extent, state: FlushState, segments: Mapping[str, SegmentEntry], directory: str | None = None
) -> RowPut:
    cells = {keys.segment_column(uri): entry.encode() for uri, entry in segments.items()}
    cells[keys.PREV_ROW] = values.encode_prev_row(extent.prev_row)
    cells[keys.FLUSH] = state.encode()
    if directory is not None:
        cells[keys.DIR] = values.encode_dir(directory)
    return RowPut(keys.tablet_row(extent.table_id, extent.end_row), cells)


# ---- segments of which some rows count


def _parts(facts: TabletFacts, extent: Extent) -> dict[str, SegmentEntry]:
    """The segments of a tablet that reach a part of it, as that part refers to them."""
    found = {uri: part_of_segment(entry, extent.rows) for uri, entry in facts.segments.items()}
    return {uri: entry for uri, entry in found.items() if entry is not None}


def joined_segments(parts: Iterable[TabletFacts]) -> dict[str, SegmentEntry]:
    """All segments of some tablets; of a file, the rows that count are those that count for one of them."""
    joined: dict[str, SegmentEntry] = {}
    for facts in parts:
        for uri, entry in facts.segments.items():
            part = part_of_segment(entry, facts.extent.rows)
            if part is not None:
                known = joined.get(uri)
                joined[uri] = part if known is None else _both(known, part)
    return joined


def _both(one: SegmentEntry, two: SegmentEntry) -> SegmentEntry:
    if not one.ranges or not two.ranges:
        return replace(one, ranges=())
    ranges = join_ranges((*one.ranges, *two.ranges))
    whole = any(known.contains(one.min_row) and known.contains(one.max_row) for known in ranges)
    return replace(one, ranges=() if whole else ranges)


# ---- flush states


def part_state(facts: TabletFacts, extent: Extent, serial: int) -> FlushState:
    """What a part of a tablet knows: all that the tablet knew, and its own segments."""
    flush = facts.flush or NOTHING_YET
    ahead = {stream: clip_ahead(parts, extent.rows) for stream, parts in flush.partial_high_waters.items()}
    return replace(
        flush,
        flush_id=keys.first_flush_id(serial),
        segments=tuple(_parts(facts, extent)),
        partial_high_waters={stream: parts for stream, parts in ahead.items() if parts},
        origin_intervals={root: held.inside(extent.rows) for root, held in flush.origin_intervals.items()},
    )


def clip_ahead(parts: Iterable[PartialHighWater], rows: RowRange) -> tuple[PartialHighWater, ...]:
    """What lies ahead in ``rows``."""
    found = ((part.rows.part_in(rows), part.offset) for part in parts)
    return tuple(PartialHighWater(common, offset) for common, offset in found if common is not None)


def joined_state(parts: Sequence[TabletFacts], segments: Iterable[str], serial: int) -> FlushState:
    """What a tablet knows that some were merged into."""
    states = [(facts.extent.rows, facts.flush or NOTHING_YET) for facts in parts]
    high_water, ahead = joined_high_waters(states)
    return FlushState(
        flush_id=keys.first_flush_id(serial),
        through=highest((wal, offset) for _, state in states for wal, offset in state.through.items()),
        last_seq=max(state.last_seq for _, state in states),
        last_time_ms=max(state.last_time_ms for _, state in states),
        high_water=high_water,
        last_wals=joined_places(state for _, state in states),
        segments=tuple(segments),
        compacted=min(state.compacted for _, state in states),
        partial_high_waters=ahead,
        origin_intervals=joined_roots(state.origin_intervals for _, state in states),
    )


def joined_places(states: Iterable[FlushState]) -> tuple[tuple[str, int], ...]:
    """Rule R24: the next record comes after the last one of every tablet, in whichever logs those are."""
    return tuple(sorted(highest(place for state in states for place in state.last_wals).items()))


def joined_high_waters(
    states: Sequence[tuple[RowRange, FlushState]],
) -> tuple[dict[StreamKey, int], dict[StreamKey, tuple[PartialHighWater, ...]]]:
    """Rule R18, for tablets that become one: what all of them have of each stream, and which rows have more."""
    streams = sorted({stream for _, state in states for stream in state.high_water})
    common = {stream: common_high_water([state.high_water.get(stream, 0) for _, state in states]) for stream in streams}
    ahead = {stream: rows_ahead(states, stream, common[stream]) for stream in streams}
    return common, {stream: parts for stream, parts in ahead.items() if parts}


def common_high_water(offsets: Collection[int]) -> int:
    """Beyond the lowest one, some tablet may lack records."""
    return min(offsets)


def rows_ahead(
    states: Iterable[tuple[RowRange, FlushState]], stream: StreamKey, common: int
) -> tuple[PartialHighWater, ...]:
    """Rows that have more of a stream than all have: a record up to there must not be taken again."""
    found = [PartialHighWater(rows, state.high_water.get(stream, 0)) for rows, state in states]
    found += [part for _, state in states for part in state.partial_high_waters.get(stream, ())]
    return tuple(part for part in found if part.offset > common)


def highest(offsets: Iterable[tuple[str, int]]) -> dict[str, int]:
    """File to the highest of its offsets."""
    found: dict[str, int] = {}
    for file, offset in offsets:
        found[file] = max(found.get(file, 0), offset)
    return found
