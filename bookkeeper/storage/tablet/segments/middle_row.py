"""The row near the middle of a tablet's bytes, from the indexes of its segments. Pure; no row is decoded.

An index has the first and the last row of each row group, and its bytes. A row group that begins below a row and ends
above it *straddles* this row: nobody knows its part below. So a split row is chosen by the bytes that certainly lie on
each of its two sides. Only last rows of row groups are candidates: of all rows with the same row groups below them, the
last row of the highest one leaves most bytes certainly above.

A segment of which several tablets count parts is clipped to the tablet's rows. A row group that reaches beyond these
rows counts half.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter

from msgspec import Struct

from bookkeeper.model import RowRange

CERTAIN_PART_MIN = 16
"""A split leaves at least one part in so many certainly on each side. With less, a row that has nearly all bytes would
be cut free of its neighbours in many splits that help no one.
"""

COMPACTED_BYTES_MIN = 8 << 20
"""From so many bytes on, a compaction makes row groups that divide them: two of the largest ones."""

RowGroup = tuple[bytes, bytes, int]
"""First row, last row, bytes in the file."""


class SegmentGroups(Struct, frozen=True):
    """The row groups of a segment file of ``size_bytes``, and its rows that count (``ranges``, () = all)."""

    size_bytes: int
    ranges: tuple[RowRange, ...]
    groups: Sequence[RowGroup]


class Piece(Struct, frozen=True):
    """The counted part of a row group: its first and last possible row, and its bytes."""

    low: bytes
    high: bytes
    size_bytes: int


class Middle(Struct, frozen=True):
    """The counted bytes of a tablet, and the row that splits it near their middle; None: ``reason`` says why no row
    does. ``shared_bytes``: the part of the bytes that lies in files of several tablets.
    """

    size_bytes: int
    shared_bytes: int
    row: bytes | None
    reason: str


def find_middle(segments: Iterable[SegmentGroups], rows: RowRange, row_bytes_max: int) -> Middle:
    """The middle of the tablet with these rows. ``row_bytes_max``: the longest row at which it may be split."""
    pieces: list[Piece] = []
    shared_bytes = 0
    for segment in segments:
        found = counted_pieces(segment, rows)
        pieces += found
        shared_bytes += sum(piece.size_bytes for piece in found) if segment.ranges else 0
    total = sum(piece.size_bytes for piece in pieces)
    row = middle_row(pieces, rows.end_row, row_bytes_max)
    return Middle(total, shared_bytes, row, "" if row is not None else why_whole(pieces, total))


def counted_pieces(segment: SegmentGroups, rows: RowRange) -> list[Piece]:
    """The parts of a segment's row groups that count in these rows. Their bytes include a share of the file's tail."""
    ranges = [part for counted in segment.ranges or (rows,) if (part := counted.part_in(rows)) is not None]
    groups_bytes = sum(size for _, _, size in segment.groups)
    found: list[Piece] = []
    for first, last, group_bytes in segment.groups:
        size_bytes = group_bytes * segment.size_bytes // groups_bytes
        if any(counted.contains(first) and counted.contains(last) for counted in ranges):
            found.append(Piece(first, last, size_bytes))
        else:
            clipped = [span for counted in ranges if (span := _clipped(first, last, counted)) is not None]
            found += [Piece(low, high, size_bytes // (2 * len(clipped))) for low, high in clipped]
    return found


def _clipped(first: bytes, last: bytes, rows: RowRange) -> tuple[bytes, bytes] | None:
    low = first if rows.prev_row is None else max(first, rows.prev_row + b"\x00")
    high = last if rows.end_row is None else min(last, rows.end_row)
    return (low, high) if low <= high else None


def middle_row(pieces: Collection[Piece], end_row: bytes | None, row_bytes_max: int) -> bytes | None:
    """The row with the most bytes certainly on its smaller side; of several such rows the one nearest to half of the
    bytes. None when each row has nearly all bytes on one side (:data:`CERTAIN_PART_MIN`).
    """
    total = sum(piece.size_bytes for piece in pieces)
    lows = sorted((piece.low, piece.size_bytes) for piece in pieces)
    below = begun = index = 0
    best: tuple[int, int, bytes] | None = None
    for row, ended in groupby(sorted(pieces, key=attrgetter("high")), key=attrgetter("high")):
        below += sum(piece.size_bytes for piece in ended)
        while index < len(lows) and lows[index][0] <= row:
            begun += lows[index][1]
            index += 1
        if not 0 < len(row) <= row_bytes_max or row == end_row:
            continue
        certain = min(below, total - begun)
        balance = -abs(below + begun - total)
        if best is None or (certain, balance) > best[:2]:
            best = certain, balance, row
    return best[2] if best is not None and best[0] * CERTAIN_PART_MIN >= total > 0 else None


def why_whole(pieces: Iterable[Piece], total: int) -> str:
    """Why a tablet has no split row."""
    single = sorted((piece.low, piece.size_bytes) for piece in pieces if piece.low == piece.high)
    sums = [(sum(size for _, size in same), row) for row, same in groupby(single, key=itemgetter(0))]
    size, row = max(sums, default=(0, b""))
    if 2 * size > total:
        return f"row {row[:100]!r} has {size} of its {total} bytes, and a row lies in one tablet"
    reason = f"the indexes of its segments have too few row groups to divide its {total} bytes"
    if total < COMPACTED_BYTES_MIN:
        return f"{reason}, and a compaction makes no more: a row group has up to {COMPACTED_BYTES_MIN >> 21} MiB"
    return f"{reason}; compact the table"
