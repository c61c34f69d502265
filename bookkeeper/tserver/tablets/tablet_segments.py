"""The segments in a tablet's row: what a flush and a compaction put there, and which cells are dead.

Arrives: segments that are durable, the state that names them; a row. Leaves: row puts, and the dead cells of a row.
Survives a crash: a put is in the books wholly or not at all. Pure; ``flusher`` and ``compactor`` execute it.

The newest ``tablet:flush`` of a row decides which of its ``segment:`` cells count (``loading.is_live``); it is put with
the cells of new segments in one row put. A cell that does not count is dead for ever: names of files are not used
again, and ranks of states rise. So dead cells may be deleted at any time after, by the holder whose state it is.
Rules: R1, R3, R16 and R17.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bookkeeper.bulk import segment_entry
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.storage.tablet import SegmentRef
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.load_plan import first_flush_id

SEGMENT_FAMILIES = ("tablet", "segment")
"""What :func:`dead_segments` reads of a tablet's row."""

NEVER_FLUSHED = FlushState(1, {}, 0, 0, {}, ())
"""What a tablet consists of that was never flushed."""


def segments_put(row: bytes, state: FlushState, new: Sequence[SegmentRef]) -> RowPut:
    """New segments and the state that names them, visible together."""
    cells: dict[Column, bytes] = {keys.segment_column(ref.uri): segment_entry(ref).encode() for ref in new}
    cells[keys.FLUSH] = state.encode()
    return RowPut(row, cells)


def named_state(state: FlushState, flush_id: int, segments: Sequence[SegmentRef], compacted: int) -> FlushState:
    """A state with what it says of segments: which ones count, the new ones among them."""
    return replace(state, flush_id=flush_id, segments=tuple(ref.uri for ref in segments), compacted=compacted)


def merged_state(
    before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], compacted: int
) -> FlushState:
    """The state behind a compaction: other segments stand for the same records, so nothing else changes (R18)."""
    return named_state(before or NEVER_FLUSHED, flush_id, segments, compacted)


@dataclass(frozen=True, slots=True)
class DeadSegments:
    """Files that a tablet's row names and that do not count, their cells, and a rank that hides all of these."""

    uris: tuple[str, ...]
    cells: tuple[CellKey, ...]
    rank: int

    def marks(self) -> list[RowPut]:
        """Deletion candidates for the GC, which asks whether another tablet needs a file."""
        return [RowPut(keys.del_row(uri), {keys.DEL: values.EMPTY}) for uri in self.uris]


def dead_segments(row: Row | None, serial: int) -> DeadSegments | None:
    """What may be deleted of a row read with :data:`SEGMENT_FAMILIES`; None when nothing may.

    Only by the state of the holder of this ``serial``: one that another holder wrote late may not name what this one
    reads. Raises CorruptionError.
    """
    cell = None if row is None else row.cells.get(keys.FLUSH)
    if row is None or cell is None or not is_own(cell.rank, serial):
        return None
    state = FlushState.decode(cell.value)
    found = {column: keys.parse_file(column.qualifier) for column in row.cells if column.family == "segment"}
    dead = {column: uri for column, uri in sorted(found.items()) if not load_plan.is_live(uri, state)}
    if not dead:
        return None
    rank = max(cell.rank, *(row.cells[column].rank for column in dead))
    return DeadSegments(tuple(dead.values()), tuple(CellKey(row.key, column) for column in dead), rank)


def has_cells_of_others(row: Row | None, serial: int, held: Collection[str]) -> bool:
    """Whether the row has cells of segments that the holder of this serial does not read, under a state of an earlier
    holder. That state may not decide; the tablet may rest for ever now, so one of this holder's own has to.
    """
    cell = None if row is None else row.cells.get(keys.FLUSH)
    if row is None or cell is None or cell.rank >= first_flush_id(serial):
        return False
    return any(keys.parse_file(uri) not in held for uri in row.family("segment"))


def is_own(flush_id: int, serial: int) -> bool:
    """Whether a state is of the holder of this serial."""
    return first_flush_id(serial) <= flush_id < first_flush_id(serial + 1)
