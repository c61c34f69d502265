"""A Bloom filter over the rows of a segment, in the segment's tail.

A read of one row skips the segments that certainly lack the row, so it seldom decodes a row group in vain. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bookkeeper.storage.columns import WORD_BYTES, WordReader

Hashes = npt.NDArray[np.uint64]

BITS_PER_ROW = 16
PROBES = 5
PROBE_BITS = 6
"""All bits of a row are in one 64-bit word: with 16 bits a row about 0.4 % of the answers are wrong."""

HASHED_WORDS = 3
"""Words that are hashed, from each end of a row."""

_MASK = (1 << 64) - 1
_SEED = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9
_SECOND_FACTOR = 0x94D049BB133111EB


def _mix(values: Hashes) -> Hashes:
    """The finaliser of splitmix64, on a column."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST_FACTOR)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND_FACTOR)
    return values ^ (values >> np.uint64(31))


def _mix_one(value: int) -> int:
    value = ((value ^ (value >> 30)) * _FIRST_FACTOR) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND_FACTOR) & _MASK
    return value ^ (value >> 31)


def hash_rows(rows: pa.Array) -> Hashes:
    """64-bit hashes of rows: of each row's length, and its first and last HASHED_WORDS words. Rows that differ only
    between these have the same hash. Part of the format, as is :func:`hash_row`, which hashes one row.
    """
    reader = WordReader(rows)
    hashes = _mix(reader.lengths.astype(np.uint64) + np.uint64(_SEED))
    for number in range(HASHED_WORDS):
        hashes = _mix(hashes ^ reader.words(number * WORD_BYTES))
    if rows and reader.lengths.max() > HASHED_WORDS * WORD_BYTES:
        for number in range(HASHED_WORDS):
            from_end = np.maximum(reader.lengths - (number + 1) * WORD_BYTES, 0)
            hashes = np.where(reader.lengths > HASHED_WORDS * WORD_BYTES, _mix(hashes ^ reader.words(from_end)), hashes)
    return hashes


def hash_row(row: bytes) -> int:
    """As :func:`hash_rows`, for one row."""
    value = _mix_one((len(row) + _SEED) & _MASK)
    starts = [number * WORD_BYTES for number in range(HASHED_WORDS)]
    if len(row) > HASHED_WORDS * WORD_BYTES:
        starts += [len(row) - (number + 1) * WORD_BYTES for number in range(HASHED_WORDS)]
    for start in starts:
        value = _mix_one(value ^ int.from_bytes(row[start : start + WORD_BYTES].ljust(WORD_BYTES, b"\x00"), "big"))
    return value


def _probe_bits(hashes: Hashes) -> Hashes:
    """The bits of its word that each row sets, from the low half of its hash."""
    bits = np.zeros(hashes.size, np.uint64)
    for probe in range(PROBES):
        bits |= np.uint64(1) << ((hashes >> np.uint64(probe * PROBE_BITS)) & np.uint64(63))
    return bits


def _word_indices(hashes: Hashes, size: int) -> npt.NDArray[np.int64]:
    """The word of each row in a filter of ``size`` words, from the high half of its hash."""
    indices: npt.NDArray[np.uint64] = ((hashes >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)
    return indices.astype(np.int64)


def _changes(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Hashes that differ from the one before: a row with many cells counts once."""
    changes = np.ones(hashes.size, bool)
    np.not_equal(hashes[1:], hashes[:-1], out=changes[1:])
    return changes


def build(parts: Sequence[Hashes]) -> bytes:
    """A filter for these rows, equal ones side by side; their hashes come in parts that fit the processor's cache."""
    once = [part[_changes(part)] for part in parts]
    size = -(-sum(part.size for part in once) * BITS_PER_ROW // 64)
    filled = np.zeros(size, np.uint64)
    for part in once:
        np.bitwise_or.at(filled, _word_indices(part, size), _probe_bits(part))
    return filled.astype("<u8").tobytes()


def holds_all(filter_bytes: bytes, hashes: Hashes) -> bool:
    """Whether :func:`may_hold` is true of each of these hashes."""
    words = np.frombuffer(filter_bytes, "<u8")
    if not words.size:
        return False
    bits = _probe_bits(hashes)
    return bool(((words[_word_indices(hashes, words.size)] & bits) == bits).all())


def may_hold(filter_bytes: bytes, value: int) -> bool:
    """False when no row of hash ``value`` is among those the filter was built for."""
    size = len(filter_bytes) // 8
    index = ((value >> 32) * size) >> 32
    word = int.from_bytes(filter_bytes[index * 8 : index * 8 + 8], "little")
    return all(word >> (value >> probe * PROBE_BITS & 63) & 1 for probe in range(PROBES))
