"""One page of a scan: what the merged entries of a range show a reader, cut at a number of bytes.

Arrives: cursors over everything a tablet holds, and what the reader wants. Leaves: records in order, the newest
version of each cell, none that a delete hides, and where to go on. Pure but for the blocks that sources read. The
token is the cell behind which the next page starts, so it means the same in any later state of the tablet, on any
tserver: a cell is given once, whatever was applied or flushed between two pages.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.tablet.entries import (
    Cell,
    binary_offsets,
    cell_at,
    to_records,
)
from bookkeeper.storage.tablet.groups import family_mask
from bookkeeper.storage.tablet.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.order import Mask
from bookkeeper.storage.tablet.settings import TabletSettings

TOKEN_VERSION = 1
_TOKEN_HEAD = struct.Struct("<B4I")
_TOKEN_CHECK = struct.Struct("<I")
_FIXED_BYTES = 8 + 1 + 5 * 4
"""Of a record: timestamp, delete and the lengths of five binary columns."""

_RECORD_BYTES_GUESS = 128
"""For the first round of a page; the rounds after it follow what the ones before gave."""
_ROUND_RECORDS_MIN = 64
_ROUND_BYTES = 16 << 20
_ROUND_MARGIN = 1.2
"""Rounds end a little before what they were asked for: at the shortest window."""


@dataclass(frozen=True, slots=True)
class ScanPage:
    """``records`` of MUTATION_SCHEMA, sorted, perhaps none; ``next`` resumes behind them, None = nothing is left."""

    records: pa.RecordBatch
    next: bytes | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Families and columns that a reader asks for; None = all. A record must be in both."""

    families: frozenset[bytes] | None
    columns: frozenset[tuple[bytes, bytes]] | None

    @classmethod
    def of(cls, families: Collection[bytes], columns: Collection[tuple[bytes, bytes]]) -> Wanted:
        """As in a request, where an empty collection means all."""
        return cls(frozenset(families) or None, frozenset(columns) or None)

    def all_families(self) -> frozenset[bytes] | None:
        """The families that a record shown can have; None = any."""
        if self.columns is None:
            return self.families
        named = frozenset(family for family, _ in self.columns)
        return named if self.families is None else named & self.families

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """Which entries are wanted; None = all."""
        families = self.all_families()
        if families is None:
            return None
        family = entries.column("family")
        if self.columns is None:
            return _as_mask(family_mask(family, families))
        qualifier = entries.column("qualifier")
        wanted = np.zeros(entries.num_rows, bool)
        for name in families:
            qualifiers = pa.array(sorted(q for f, q in self.columns if f == name), pa.binary())
            wanted |= _as_mask(pc.and_(pc.equal(family, pa.scalar(name, pa.binary())), pc.is_in(qualifier, qualifiers)))
        return wanted


def _as_mask(array: pa.BooleanArray) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def encode_token(cell: Cell) -> bytes:
    """The continuation behind ``cell``."""
    body = _TOKEN_HEAD.pack(TOKEN_VERSION, *map(len, cell)) + b"".join(cell)
    return body + _TOKEN_CHECK.pack(zlib.crc32(body))


def decode_token(token: bytes) -> Cell:
    """Inverse of :func:`encode_token`; raises InvalidInputError for anything that it did not make."""
    body = token[: -_TOKEN_CHECK.size]
    if len(body) < _TOKEN_HEAD.size or _TOKEN_CHECK.pack(zlib.crc32(body)) != token[-_TOKEN_CHECK.size :]:
        raise InvalidInputError("a scan can't go on from this token: it is damaged; start the scan again")
    version, *lengths = _TOKEN_HEAD.unpack_from(body)
    if version != TOKEN_VERSION or len(body) != _TOKEN_HEAD.size + sum(lengths):
        raise InvalidInputError(f"a scan can't go on from a token of version {version}; start the scan again")
    ends = np.cumsum([_TOKEN_HEAD.size, *lengths]).tolist()
    row, family, qualifier, visibility = (body[a:b] for a, b in pairwise(ends))
    return row, family, qualifier, visibility


def are_deletes(entries: pa.RecordBatch) -> Mask:
    """Which entries are deletes."""
    return _as_mask(entries.column("delete"))


def visible(merged: Round, wanted: Wanted) -> pa.RecordBatch:
    """The entries a reader sees: the first of each cell, unless it is a delete.

    A delete hides entries of its cell with (timestamp, seq) <= its own. In this order these are all that follow it,
    and whatever precedes it is newer; so a cell shows its first entry, or nothing when that is a delete.
    """
    keep = merged.starts & ~merged.in_order(are_deletes(merged.entries))
    mask = wanted.mask(merged.entries)
    return merged.select(keep if mask is None else keep & merged.in_order(mask))


def _sizes(entries: pa.RecordBatch) -> Callable[[int], int]:
    """A function that tells the bytes of the first n records as a page counts them."""
    names = [field.name for field in MUTATION_SCHEMA if pa.types.is_binary(field.type)]
    offsets = [memoryview(binary_offsets(entries.column(name)).data) for name in names]
    begin = sum(column[0] for column in offsets)
    return lambda records: records * _FIXED_BYTES + sum(column[records] for column in offsets) - begin


def read_page(cursors: list[Cursor], wanted: Wanted, page_bytes: int, settings: TabletSettings) -> ScanPage:
    """Fill one page. Raises CorruptionError when a source does."""
    parts: list[pa.RecordBatch] = []
    left = min(page_bytes, settings.page_bytes_max)
    examined = 0
    round_records = left // _RECORD_BYTES_GUESS
    while True:
        round_records = max(_ROUND_RECORDS_MIN, min(round_records, settings.page_examined_records_max - examined))
        merged = merge_round(cursors, round_records, max(_ROUND_BYTES, left), newest_only=True)
        if merged is None:
            return _page(parts, None)
        examined += merged.records
        found = visible(merged, wanted)
        if found.num_rows:
            size_of = _sizes(found)
            size = size_of(found.num_rows)
            if size >= left:
                fitting = bisect_left(range(1, found.num_rows), left, key=size_of) + 1
                parts.append(found.slice(0, fitting))
                for cursor in cursors:
                    cursor.read_ahead()
                return _page(parts, encode_token(cell_at(parts[-1], -1)))
            parts.append(found)
            left -= size
            round_records = int(left * merged.records / size * _ROUND_MARGIN)
        else:
            round_records *= 2
        if examined >= settings.page_examined_records_max:
            return _page(parts, encode_token(merged.last))


def _page(parts: list[pa.RecordBatch], token: bytes | None) -> ScanPage:
    if not parts:
        return ScanPage(pa.RecordBatch.from_pylist([], schema=MUTATION_SCHEMA), token)
    return ScanPage(to_records(parts[0] if len(parts) == 1 else pa.concat_batches(parts)), token)
