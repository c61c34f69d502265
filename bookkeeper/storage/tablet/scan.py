"""One page of a scan: what the merged entries of a range show a reader, cut at a number of bytes.

Arrives: cursors over everything a tablet holds, and what the reader wants. Leaves: records in order, the newest
version of each cell, none that a delete hides, and where to go on. Pure but for the blocks that sources read. The
token is the cell behind which the next page starts, so it means the same in any later state of the tablet, on any
tserver: a cell is given once, whatever was applied or flushed between two pages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.tablet.entries import (
    Cell,
    SortedBlock,
    binary_offsets,
    to_records,
)
from bookkeeper.storage.tablet.groups import family_mask
from bookkeeper.storage.tablet.merge import Cursor, Round, RoundSize, merge_rounds
from bookkeeper.storage.tablet.order import Mask
from bookkeeper.storage.tablet.settings import TabletSettings

TOKEN_VERSION = 1
_TOKEN_HEAD = struct.Struct("<B4I")
_TOKEN_CHECK = struct.Struct("<I")
_FIXED_BYTES = 8 + 1 + 5 * 4
"""Of a record: timestamp, delete and the lengths of five binary columns."""

_RECORD_BYTES_GUESS = 128
_ROUND_RECORDS_MIN = 64
_ROUND_RECORDS_MAX = 1 << 16
_ROUND_BYTES = 16 << 20


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


def visible(merged: Round, wanted: Wanted) -> pa.RecordBatch:
    """The entries a reader sees: the first of each cell, unless it is a delete.

    A delete hides entries of its cell with (timestamp, seq) <= its own. In this order these are all that follow it,
    and whatever precedes it is newer; so a cell shows its first entry, or nothing when that is a delete.
    """
    keep = merged.starts & ~merged.in_order(_as_mask(merged.entries.column("delete")))
    mask = wanted.mask(merged.entries)
    return merged.select(keep if mask is None else keep & merged.in_order(mask))


def sizes_through(entries: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of the first 1, 2, … records as a page counts them."""
    total = np.arange(1, entries.num_rows + 1, dtype=np.int64) * _FIXED_BYTES
    for field in MUTATION_SCHEMA:
        if pa.types.is_binary(field.type):
            offsets = binary_offsets(entries.column(field.name)).astype(np.int64)
            total += offsets[1:] - offsets[0]
    return total


def round_size(page_bytes: int) -> RoundSize:
    """Rounds that fill a page of ordinary records in one or two."""
    records = max(_ROUND_RECORDS_MIN, page_bytes // _RECORD_BYTES_GUESS)
    return RoundSize(min(records, _ROUND_RECORDS_MAX), _ROUND_RECORDS_MAX, max(_ROUND_BYTES, page_bytes))


def read_page(cursors: Sequence[Cursor], wanted: Wanted, page_bytes: int, settings: TabletSettings) -> ScanPage:
    """Fill one page. Raises CorruptionError when a source does."""
    parts: list[pa.RecordBatch] = []
    left = min(page_bytes, settings.page_bytes_max)
    examined = 0
    token: bytes | None = None
    for merged in merge_rounds(cursors, round_size(left), newest_only=True):
        found = visible(merged, wanted)
        examined += merged.records
        if found.num_rows:
            sizes = sizes_through(found)
            fitting = int(np.searchsorted(sizes, left, side="left")) + 1
            if fitting < found.num_rows or sizes[-1] >= left:
                parts.append(found.slice(0, fitting))
                token = encode_token(SortedBlock(found).cell(min(fitting, found.num_rows) - 1))
                break
            parts.append(found)
            left -= int(sizes[-1])
        if examined >= settings.page_examined_records_max:
            token = encode_token(merged.last)
            break
    if not parts:
        return ScanPage(pa.RecordBatch.from_pylist([], schema=MUTATION_SCHEMA), token)
    return ScanPage(to_records(parts[0] if len(parts) == 1 else pa.concat_batches(parts)), token)
