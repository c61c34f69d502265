"""The writes of splits and merges of tablets, and their order.

Arrives: the rows of parked tablets, new or removed end rows. Leaves: a :class:`Change`: puts and deletes at one rank,
in the order in which they may be made. Pure. Each write is a function of facts that the operation has persisted before,
so the next master repeats the same writes after a crash (rule R1). ``operations.split_merge`` parks the tablets and
executes the change. Rules: R1, R16, R18 and R24.

**No tserver writes.** A flush unloads the tablets, so they need no log (no `log:` cell). They are parked: their
location names no session, so no tserver loads them.

**Rows.** A split of ``(p, e]`` at ``s`` puts the row of ``s``, a copy of the row of ``e``, and then moves the start of
the row of ``e`` to ``s``. A merge puts everything into the last tablet's row, which then starts where the first tablet
did, and deletes the `tablet:` cells of the other rows. Such a row is a *remnant*: it has no `tablet:prev_row`, so it is
no tablet.

**Hosts.** A merged tablet with replicas gets a directory of its own, in which hosts link the files of its parts. Its
row names the directories of the parts (`tablet:parts`) until enough hosts have done so: no host deletes a part before.

**Rule R16.** `repl:` cells never move. They are facts about files in any row, and a late writer (the file's tserver, a
master that closes it) puts them into the same row as before. They count in remnants until their file is complete. So a
late put is not lost, and does not restore a tablet. `segment:` cells move to a later row (merge), or are *copied* to an
earlier one (split). The later row keeps its own until one put moves its start to the split. A scan that read the later
row before that put found them there. A scan that read it afterwards requires the earlier row in its chain: it has found
the copies there, or starts over. Between the two puts, two tablets start at one row, so a scan finds a broken chain.

**Rule R1.** The change takes a serial above those of all its rows, as a tserver does that loads a tablet. It writes at
the first flush id of that serial: above all writes of earlier holders, below those of later ones. A remnant keeps its
serial, so a later split that restores the row continues from it. Each change writes `tablet:flush`, which names the
valid segments: readers ignore late flushes of a former holder.

**One file, several tablets.** A `segment:` cell names the valid rows of its file (no rows: all). Without them, a merge
would bring back records that one half has compacted away, by the other half's reference.

**Rule R18.** A split gives the tablet's high-waters to each part. Merged tablets may have different ones: the highest
would hide a gap of one tablet, and the lowest would store records of another one twice. So the merged tablet has the
lowest, and the rows beyond it with their offsets (``FlushState.partial_high_waters``).

**Rule R24.** A tablet's next record comes after the last records of all tablets that it was made of
(``FlushState.last_wals``); sequence numbers and server times continue above the highest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import part_of_segment
from bookkeeper.errors import CorruptionError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.lost_logs import given_up
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.metadata.values import VOTER, FlushState, ReplicaCell, SegmentEntry
from bookkeeper.model import Extent, PartialHighWater, RowRange, StreamKey, join_ranges
from bookkeeper.origins import joined_roots
from bookkeeper.storage.volume.names import tablet_directory

EMPTY_FLUSH_STATE = FlushState(1, {}, 0, 0, {}, ())
"""The state of a tablet without any flush."""

FACTS_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of facts in one change, so that the operation's record fits in one row put."""


class TabletFacts(Struct, frozen=True):
    """The content of the row of a parked tablet. ``segments`` are the valid ones; ``dead`` are other `segment:` cells,
    which the next holder of the row deletes.
    """

    extent: Extent
    flush: FlushState | None
    segments: Mapping[str, SegmentEntry]
    dead: tuple[str, ...]
    voters: Mapping[str, ReplicaCell] = field(default_factory=dict)
    """The replicas by host that count as copies; none for a tablet on the cluster's Volume."""

    @property
    def row(self) -> bytes:
        """The row's key."""
        return keys.tablet_row(self.extent.table_id, self.extent.end_row)


class Write(Struct, frozen=True):
    """One call of the store: puts or deletes that share a rank."""

    puts: tuple[RowPut, ...]
    deletes: tuple[CellKey, ...]
    rank: int


class Change(Struct, frozen=True):
    """The writes of a split or merge: puts ``first``, puts ``then``, at last ``deletes``; see :func:`in_order`.

    ``replicas`` are the puts that place the replicas of new tablets. They come before all others, at a rank of the
    master as each `replica:` cell, and a row without borders is no tablet yet.
    """

    serial: int
    rows: tuple[bytes, ...]
    first: tuple[RowPut, ...]
    then: tuple[RowPut, ...]
    deletes: tuple[CellKey, ...]
    replicas: tuple[RowPut, ...] = ()

    @property
    def rank(self) -> int:
        """Rule R1: above all ranks of earlier holders of these rows, below those of later ones."""
        return keys.first_flush_id(self.serial)


def in_order(change: Change) -> list[Write]:
    """The calls that make a change. Each may be repeated, and a crash may come between any two. Rule R16: the put of a
    reference in its new row comes before the delete in the old one.
    """
    serials = tuple(RowPut(row, {keys.SERIAL: keys.SERIAL_VALUE}) for row in change.rows)
    writes = [
        Write(serials, (), change.serial),
        Write(change.first, (), change.rank),
        Write(change.then, (), change.rank),
        Write((), change.deletes, change.rank),
    ]
    return [write for write in writes if write.puts or write.deletes]


# ---- the tablets of a change


def to_merge(extents: Iterable[Extent], rows: RowRange) -> list[Extent]:
    """The tablets with rows in ``rows``, which a merge joins; fewer than two need no merge."""
    return [extent for extent in extents if extent.rows.part_in(rows) is not None]


def is_quiet(row: Row) -> bool:
    """Whether the tablet needs no log: its last holder has flushed all records, and none is to come with a given-up
    log.
    """
    return not row.family("log") and not given_up(row)


def shares_files(row: Row) -> bool:
    """Whether the named state of a tablet has a file with rows of other tablets."""
    flush = row.cells.get(keys.FLUSH)
    named = set(() if flush is None else FlushState.decode(flush.value).segments)
    return any(
        SegmentEntry.decode(cell.value).ranges
        for name, cell in row.family("segment").items()
        if keys.parse_file(name) in named
    )


def stale_uses(rows: Iterable[Row]) -> list[CellKey]:
    """The `log:` cells of remnants whose rows become tablets again. They are void: a row that becomes a remnant has
    none, so a dead tserver wrote them late.
    """
    return [CellKey(row.key, column) for row in rows for column in row.cells if column.family == "log"]


# ---- facts


def facts_of(row: Row) -> TabletFacts:
    """The facts in a row read with the families tablet and segment, and replica for the voters. Raises
    CorruptionError.
    """
    if not keys.is_tablet(row):
        raise CorruptionError(f"metadata row {row.key!r} is no tablet: it has no tablet:prev_row cell")
    table_id, end_row = keys.parse_tablet_row(row.key)
    flush_cell = row.cells.get(keys.FLUSH)
    flush = None if flush_cell is None else FlushState.decode(flush_cell.value)
    cells = {keys.parse_file(name): cell for name, cell in row.family("segment").items()}
    named = () if flush is None else flush.segments
    missing = [name for name in named if name not in cells]
    if missing:
        raise CorruptionError(f"tablet {row.key!r} has no segment: cell of {missing[0]}, which its flush state names")
    return TabletFacts(
        Extent(table_id, end_row, values.decode_prev_row(row.cells[keys.PREV_ROW].value)),
        flush,
        {name: SegmentEntry.decode(cells[name].value) for name in sorted(named)},
        tuple(sorted(set(cells) - set(named))),
        {host: cell for host, cell in replica_cells(row).items() if cell.role == VOTER},
    )


def replica_cells(row: Row) -> dict[str, ReplicaCell]:
    """The replicas in a row by host. Raises CorruptionError."""
    return {keys.parse_replica(host): ReplicaCell.decode(cell.value) for host, cell in row.family("replica").items()}


def serial_of(row: Row | None) -> int:
    """The number of holders and changes that a row had; 0 for a missing row."""
    cell = None if row is None else row.cells.get(keys.SERIAL)
    return 0 if cell is None else cell.rank


def next_serial(rows: Iterable[Row | None]) -> int:
    """One serial for all rows of a change: above those of all, remnants included (rule R1)."""
    return 1 + max(map(serial_of, rows), default=0)


def encode_facts(facts: Sequence[TabletFacts]) -> list[values.Json]:
    """Facts in the form of an operation's record. Raises RefusedError when they are too large."""
    encoded: list[values.Json] = [
        {
            "table_id": found.extent.table_id,
            "end_row": values.encode_row(found.extent.end_row),
            "prev_row": values.encode_row(found.extent.prev_row),
            "flush": None if found.flush is None else found.flush.encode().decode(),
            "segments": {name: entry.encode().decode() for name, entry in found.segments.items()},
            "dead": [*found.dead],
            "voters": {host: cell.encode().decode() for host, cell in found.voters.items()},
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
    segments = {name: SegmentEntry.decode(raw.encode()) for name, raw in found["segments"].items()}
    voters = {host: ReplicaCell.decode(raw.encode()) for host, raw in found["voters"].items()}
    return TabletFacts(extent, flush, segments, tuple(found["dead"]), voters)


# ---- the writes


def split_change(facts: TabletFacts, splits: Sequence[bytes], serial: int, directory: str) -> Change:
    """Split a tablet at these rows (inside it, ascending). ``directory`` is the prefix of the new tablets' directory
    names; it must be unused. Each new tablet gets the tablet's voters under new placements, named for its directory and
    the host.
    """
    starts = [facts.extent.prev_row, *splits]
    *made, left = [
        replace(facts.extent, prev_row=start, end_row=end)
        for start, end in zip(starts, [*splits, facts.extent.end_row], strict=True)
    ]
    names = [f"{directory}-{number}" for number in range(len(made))]
    first = tuple(_new_row(facts, extent, serial, name) for extent, name in zip(made, names, strict=True))
    kept = _parts(facts, left)
    return Change(
        serial,
        (*(put.key for put in first), facts.row),
        first,
        (_row_put(left, part_state(facts, left, serial), kept),),
        tuple(CellKey(facts.row, keys.segment_column(name)) for name in facts.segments if name not in kept),
        tuple(_placed(put.key, facts.voters, name) for put, name in zip(first, names, strict=True) if facts.voters),
    )


def _new_row(facts: TabletFacts, extent: Extent, serial: int, directory: str) -> RowPut:
    """The row of a new part. On the Volume it shares the files under their names. On hosts each file of the part is a
    hard link in the part's own directory, so that each replica deletes its files without regard to other tablets.
    """
    if facts.voters:
        facts = _in_directory(facts, directory)
    return _row_put(extent, part_state(facts, extent, serial), _parts(facts, extent), directory)


def _placed(row: bytes, voters: Mapping[str, ReplicaCell], placement: str) -> RowPut:
    cells = {host: replace(cell, placement=f"{placement}-{host}") for host, cell in voters.items()}
    return RowPut(row, {keys.replica_column(host): cell.encode() for host, cell in cells.items()})


def one_change(changes: Sequence[Change]) -> Change:
    """Joins changes of several tablets with one serial: all ``first`` puts come before all ``then`` puts."""
    return Change(
        changes[0].serial,
        tuple(row for change in changes for row in change.rows),
        tuple(put for change in changes for put in change.first),
        tuple(put for change in changes for put in change.then),
        tuple(cell for change in changes for cell in change.deletes),
        tuple(put for change in changes for put in change.replicas),
    )


def store_change(facts: TabletFacts, serial: int, directory: str | None) -> Change:
    """Name the state of a tablet again, with ``directory`` each file under a name in that directory, its own: a host
    has no other names, and on the Volume a tablet may share files of others. The names of before go by the deletes.
    """
    parts = _parts(facts, facts.extent)
    segments = {name if directory is None else own_name(name, directory): entry for name, entry in parts.items()}
    state = replace(part_state(facts, facts.extent, serial), segments=tuple(segments))
    gone = sorted({*facts.segments, *facts.dead} - segments.keys())
    return Change(
        serial,
        (facts.row,),
        (_row_put(facts.extent, state, segments),),
        (),
        tuple(CellKey(facts.row, keys.segment_column(name)) for name in gone),
    )


def store_change_back(facts: TabletFacts, serial: int, directory: str) -> Change:
    """Name the files under their names of before again, after a :func:`store_change` with ``directory`` whose deletes
    have not been made. The names in that directory go.
    """
    tried = (own_name(name, directory) for name in facts.segments)
    return store_change(replace(facts, dead=(*facts.dead, *tried)), serial, None)


def own_name(name: str, directory: str) -> str:
    """The name of a file in a tablet's own directory. The last part of a file's name is unique in its table."""
    return f"{directory}/{name.rpartition('/')[2]}"


def merge_change(parts: Sequence[TabletFacts], serial: int) -> Change:
    """Merge adjacent tablets on the Volume into one, in the last one's row."""
    segments = joined_segments(parts)
    return _merged(parts, serial, _row_put(_joined_extent(parts), joined_state(parts, segments, serial), segments))


def merge_on_hosts(parts: Sequence[TabletFacts], serial: int, directory: str) -> Change:
    """Merge adjacent tablets with replicas on the same hosts, in the last one's row. The tablet has the placements of
    this row, and its files are in ``directory``, which must be unused.
    """
    last = parts[-1]
    segments = joined_segments(_in_directory(part, directory) for part in parts)
    put = _row_put(_joined_extent(parts), joined_state(parts, segments, serial), segments, directory)
    put = RowPut(put.key, {**put.values, keys.PARTS: values.encode_parts(directories_of(parts))})
    change = _merged(parts, serial, put)
    gone = tuple(CellKey(last.row, keys.segment_column(name)) for name in sorted({*last.segments, *last.dead}))
    return replace(change, deletes=(*change.deletes, *gone))


def _joined_extent(parts: Sequence[TabletFacts]) -> Extent:
    return replace(parts[-1].extent, prev_row=parts[0].extent.prev_row)


def _merged(parts: Sequence[TabletFacts], serial: int, put: RowPut) -> Change:
    ended = tuple(cell for part in parts[:-1] for cell in _ended(part))
    return Change(serial, tuple(part.row for part in parts), (put,), (), ended)


def _in_directory(facts: TabletFacts, directory: str) -> TabletFacts:
    """The tablet with its files under their names in another directory of the table."""
    own = tablet_directory(facts.extent.table_id, directory)
    segments = {f"{own}/{name.rpartition('/')[2]}": entry for name, entry in facts.segments.items()}
    return replace(facts, segments=segments)


def directories_of(parts: Iterable[TabletFacts]) -> list[str]:
    """The directories with the files of tablets on hosts."""
    return sorted({name.split("/")[-2] for part in parts for name in part.segments})


def replicas_of_remnants(rows: Iterable[Row]) -> list[CellKey]:
    """The replicas in rows that are no tablets any more. A rank of the master deletes them, as it has put them."""
    return [
        CellKey(row.key, column)
        for row in rows
        if not keys.is_tablet(row)
        for column in row.cells
        if column.family == keys.REPLICA_FAMILY
    ]


def parts_linked(row: bytes, serial: int) -> Write:
    """Enough hosts have the files of a merged tablet, so its parts may go."""
    return Write((), (CellKey(row, keys.PARTS),), keys.first_flush_id(serial) + 1)


def _ended(facts: TabletFacts) -> list[CellKey]:
    """The cells whose deletion makes a row a remnant. Its serial and its `repl:` cells stay."""
    columns: list[Column] = [keys.PREV_ROW, keys.DIR, keys.FLUSH]
    columns += [keys.segment_column(name) for name in sorted({*facts.segments, *facts.dead})]
    return [CellKey(facts.row, column) for column in columns]


def _row_put(
    extent: Extent, state: FlushState, segments: Mapping[str, SegmentEntry], directory: str | None = None
) -> RowPut:
    cells = {keys.segment_column(name): entry.encode() for name, entry in segments.items()}
    cells[keys.PREV_ROW] = values.encode_prev_row(extent.prev_row)
    cells[keys.FLUSH] = state.encode()
    if directory is not None:
        cells[keys.DIR] = values.encode_dir(directory)
    return RowPut(keys.tablet_row(extent.table_id, extent.end_row), cells)


# ---- segments with some valid rows


def _parts(facts: TabletFacts, extent: Extent) -> dict[str, SegmentEntry]:
    """The segments of a tablet with rows in a part of it, as references of that part."""
    found = {name: part_of_segment(entry, extent.rows) for name, entry in facts.segments.items()}
    return {name: entry for name, entry in found.items() if entry is not None}


def joined_segments(parts: Iterable[TabletFacts]) -> dict[str, SegmentEntry]:
    """All segments of some tablets; a file's valid rows are those that are valid for any of them."""
    joined: dict[str, SegmentEntry] = {}
    for facts in parts:
        for name, entry in facts.segments.items():
            part = part_of_segment(entry, facts.extent.rows)
            if part is not None:
                known = joined.get(name)
                joined[name] = part if known is None else _both(known, part)
    return joined


def _both(one: SegmentEntry, two: SegmentEntry) -> SegmentEntry:
    if not one.ranges or not two.ranges:
        return replace(one, ranges=())
    ranges = join_ranges((*one.ranges, *two.ranges))
    whole = any(known.contains(one.min_row) and known.contains(one.max_row) for known in ranges)
    return replace(one, ranges=() if whole else ranges)


# ---- flush states


def part_state(facts: TabletFacts, extent: Extent, serial: int) -> FlushState:
    """The flush state of a part of a tablet: that of the tablet, with the part's own segments."""
    flush = facts.flush or EMPTY_FLUSH_STATE
    ahead = {stream: clip_ahead(parts, extent.rows) for stream, parts in flush.partial_high_waters.items()}
    return replace(
        flush,
        flush_id=keys.first_flush_id(serial),
        segments=tuple(_parts(facts, extent)),
        partial_high_waters={stream: parts for stream, parts in ahead.items() if parts},
        origin_intervals={root: held.inside(extent.rows) for root, held in flush.origin_intervals.items()},
    )


def clip_ahead(parts: Iterable[PartialHighWater], rows: RowRange) -> tuple[PartialHighWater, ...]:
    """The parts of partial high-waters within ``rows``."""
    found = ((part.rows.part_in(rows), part.offset) for part in parts)
    return tuple(PartialHighWater(common, offset) for common, offset in found if common is not None)


def joined_state(parts: Sequence[TabletFacts], segments: Iterable[str], serial: int) -> FlushState:
    """The flush state of a merged tablet."""
    states = [(facts.extent.rows, facts.flush or EMPTY_FLUSH_STATE) for facts in parts]
    high_water, ahead = joined_high_waters(states)
    return FlushState(
        flush_id=keys.first_flush_id(serial),
        through=highest((wal, offset) for _, state in states for wal, offset in state.through.items()),
        last_seq=max(state.last_seq for _, state in states),
        last_time_ms=max(state.last_time_ms for _, state in states),
        high_water=high_water,
        # R24: the next record comes after the last one of every tablet, in each log.
        last_wals=tuple(sorted(highest(place for _, state in states for place in state.last_wals).items())),
        segments=tuple(segments),
        compacted=min(state.compacted for _, state in states),
        partial_high_waters=ahead,
        origin_intervals=joined_roots(state.origin_intervals for _, state in states),
    )


def joined_high_waters(
    states: Sequence[tuple[RowRange, FlushState]],
) -> tuple[dict[StreamKey, int], dict[StreamKey, tuple[PartialHighWater, ...]]]:
    """Rule R18, for merged tablets: the offset of each stream that all of them have, and the rows with more."""
    streams = sorted({stream for _, state in states for stream in state.high_water})
    # The lowest offset: beyond it, one of the tablets may lack records.
    common = {stream: min(state.high_water.get(stream, 0) for _, state in states) for stream in streams}
    ahead = {stream: rows_ahead(states, stream, common[stream]) for stream in streams}
    return common, {stream: parts for stream, parts in ahead.items() if parts}


def rows_ahead(
    states: Iterable[tuple[RowRange, FlushState]], stream: StreamKey, common: int
) -> tuple[PartialHighWater, ...]:
    """Rows with more of a stream than the common high-water: their records up to there must not be stored again."""
    found = [PartialHighWater(rows, state.high_water.get(stream, 0)) for rows, state in states]
    found += [part for _, state in states for part in state.partial_high_waters.get(stream, ())]
    return tuple(part for part in found if part.offset > common)


def highest(offsets: Iterable[tuple[str, int]]) -> dict[str, int]:
    """File to the highest of its offsets."""
    found: dict[str, int] = {}
    for file, offset in offsets:
        found[file] = max(found.get(file, 0), offset)
    return found
