"""How far each row has each received stream, by the books: no row may fall back, also across splits and merges (R18).

A merged tablet has the lowest offset of its parts, and says which rows are further. So rows are compared, not tablets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.model import RowRange, StreamKey


class Reached(NamedTuple):
    """These rows have a stream up to ``offset``."""

    rows: RowRange
    offset: int


HighWaters = Mapping[tuple[str, StreamKey], list[Reached]]
"""By table and stream; of ranges that overlap, the highest offset counts."""


def high_waters(rows: Iterable[Row]) -> HighWaters:
    """The offsets in the named states of all tablets."""
    found: dict[tuple[str, StreamKey], list[Reached]] = defaultdict(list)
    for row in rows:
        if not keys.is_tablet(row) or keys.FLUSH not in row.cells:
            continue
        table_id, end_row = keys.parse_tablet_row(row.key)
        extent = RowRange(values.decode_prev_row(row.cells[keys.PREV_ROW].value), end_row)
        state = values.FlushState.decode(row.cells[keys.FLUSH].value)
        for stream, offset in state.high_water.items():
            found[table_id, stream].append(Reached(extent, offset))
        for stream, parts in state.partial_high_waters.items():
            found[table_id, stream] += [Reached(part.rows, part.offset) for part in parts]
    return found


def fell_back(before: HighWaters, now: HighWaters) -> list[str]:
    """Rows that have less of a stream than before. A stream that is missing was forgotten."""
    lines = []
    for place, reached in now.items():
        earlier = before.get(place, [])
        ends = {one.rows.end_row for one in (*earlier, *reached)}  # the offset changes at no other row
        for end in sorted(ends, key=lambda row: (row is None, row or b"")):
            was, is_now = _offset_at(end, earlier), _offset_at(end, reached)
            if was is not None and is_now is not None and is_now < was:
                lines.append(f"table {place[0]}, rows up to {end!r}: {place[1]} went back from {was} to {is_now}")
    return lines


def _offset_at(row: bytes | None, reached: Iterable[Reached]) -> int | None:
    """``row`` None: the end of the last tablet."""
    return max((one.offset for one in reached if _has(one.rows, row)), default=None)


def _has(rows: RowRange, row: bytes | None) -> bool:
    return rows.end_row is None if row is None else rows.contains(row)
