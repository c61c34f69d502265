"""The segments in a tablet's row: the puts of flushes and compactions, and the dead cells.

Pure; ``flusher`` and ``compactor`` read and write the row. A row put is in the books wholly or not at all.

The newest ``tablet:flush`` of a row decides which of its ``segment:`` cells count (``load_plan.is_live``); it is put
with the cells of new segments in one row put. A cell that does not count is dead for ever: names of files are not used
again, and ranks of states rise. So the holder whose state it is may delete dead cells at any later time. Rules: R1, R3,
R16 and R17.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.load_plan import first_flush_id

SEGMENT_FAMILIES = ("tablet", "segment")
"""The families of a tablet's row that :func:`dead_segments` reads."""

NEVER_FLUSHED = FlushState(1, {}, 0, 0, {}, ())
"""The state of a tablet that was never flushed."""


def segments_put(row: bytes, state: FlushState, new: Sequence[SegmentRef]) -> RowPut:
    """New segments and the state that names them, visible together."""
    cells: dict[Column, bytes] = {keys.segment_column(ref.name): segment_entry(ref).encode() for ref in new}
    cells[keys.FLUSH] = state.encode()
    return RowPut(row, cells)


def named_state(state: FlushState, flush_id: int, segments: Sequence[SegmentRef], compacted: int) -> FlushState:
    """A state that names these segments, the new ones among them."""
    return replace(state, flush_id=flush_id, segments=tuple(ref.name for ref in segments), compacted=compacted)


def merged_state(
    before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], compacted: int
) -> FlushState:
    """The state after a compaction: other segments have the same records, so nothing else changes (R18)."""
    return named_state(before or NEVER_FLUSHED, flush_id, segments, compacted)


class DeadSegments(Struct, frozen=True):
    """Files that a tablet's row names and that do not count, their cells, and a rank that hides all of these."""

    names: tuple[str, ...]
    cells: tuple[CellKey, ...]
    rank: int

    def marks(self) -> list[RowPut]:
        """Deletion candidates for the collector, which checks whether another tablet needs a file."""
        return [RowPut(keys.del_row(name), {keys.DEL: values.EMPTY}) for name in self.names]


def dead_segments(row: Row | None, serial: int) -> DeadSegments | None:
    """The cells that may be deleted of a row read with :data:`SEGMENT_FAMILIES`; None when there are none.

    Uses only a state of the holder of this ``serial``: one that another holder wrote late may not name the files that
    this one reads. Raises CorruptionError.
    """
    cell = None if row is None else row.cells.get(keys.FLUSH)
    if row is None or cell is None or not is_own(cell.rank, serial):
        return None
    state = FlushState.decode(cell.value)
    found = {column: keys.parse_file(column.qualifier) for column in row.cells if column.family == "segment"}
    dead = {column: name for column, name in sorted(found.items()) if not load_plan.is_live(name, state)}
    if not dead:
        return None
    rank = max(cell.rank, *(row.cells[column].rank for column in dead))
    return DeadSegments(tuple(dead.values()), tuple(CellKey(row.key, column) for column in dead), rank)


def has_cells_of_others(row: Row | None, serial: int, own: Collection[str]) -> bool:
    """Whether the row has cells of segments that are not the ``own`` ones of the holder of this serial, under a state
    of an earlier holder. That state may not decide which cells are dead, and perhaps no flush follows: so this holder
    has to put a state.
    """
    cell = None if row is None else row.cells.get(keys.FLUSH)
    if row is None or cell is None or cell.rank >= first_flush_id(serial):
        return False
    return any(keys.parse_file(name) not in own for name in row.family("segment"))


def is_own(flush_id: int, serial: int) -> bool:
    """Whether a state is of the holder of this serial."""
    return first_flush_id(serial) <= flush_id < first_flush_id(serial + 1)
