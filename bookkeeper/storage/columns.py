"""Binary columns as their bytes lie in memory: offsets, lengths, words of eight bytes, least and greatest value.

Arrow arrays of binary values go in, views and numbers come out; a value becomes a Python object only where a caller
requests it. Pure. Used by both rooms of ``storage``, and to ship blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WORD_BYTES = 8
FEW_VALUES = 8
"""Up to so many values are searched one by one."""

_FIRST_BYTES_MASK = np.array([0] + [(1 << 64) - (1 << (64 - 8 * n)) for n in range(1, 9)], dtype=np.uint64)


def binary_offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """The ``len + 1`` offsets of a binary array into its data buffer, as a view."""
    raw = array.buffers()[1]
    if raw is None or raw.size == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(raw, np.int32, len(array) + 1, array.offset * 4)


def binary_data(array: pa.Array) -> memoryview:
    """The data buffer of a binary array, all of it."""
    raw = array.buffers()[2]
    return memoryview(b"") if raw is None else memoryview(raw)


def content_bytes(array: pa.Array) -> int:
    """Bytes of all values together."""
    offsets = binary_offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def record_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """For each record the bytes of the batch up to its end: those of binary values, and 8 for each column."""
    ends: npt.NDArray[np.int64] = WORD_BYTES * batch.num_columns * np.arange(1, batch.num_rows + 1, dtype=np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type):
            offsets = binary_offsets(column).astype(np.int64)
            ends += offsets[1:] - offsets[0]
    return ends


def slices_within(
    batch: pa.RecordBatch, ends: npt.NDArray[np.int64], bytes_max: int, records_max: int
) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most ``bytes_max`` and ``records_max``; one record may have more bytes. ``ends``: for
    each record the bytes up to its end. Each record counts with its own: large ones come in runs.
    """
    first = 0
    while first < batch.num_rows:
        begin = int(ends[first - 1]) if first else 0
        within = int(np.searchsorted(ends, begin + bytes_max, side="right"))
        stop = min(max(first + 1, within), first + records_max)
        yield batch.slice(first, stop - first)
        first = stop


def common_length(array: pa.Array) -> int | None:
    """The length of each value of a binary column, None when they differ, or when it is no such column."""
    if not pa.types.is_binary(array.type) or array.null_count or not len(array):
        return None
    offsets = binary_offsets(array)
    length = int(offsets[1] - offsets[0])
    if int(offsets[-1] - offsets[0]) != length * len(array):  # most columns with several lengths end here
        return None
    return length if bool((np.diff(offsets) == length).all()) else None


def is_constant(array: pa.Array) -> bool:
    """Whether all values of a binary column, at least one, are the same."""
    length = common_length(array)
    if length is None:
        return False
    first = int(binary_offsets(array)[0])
    content = np.frombuffer(binary_data(array)[first : first + length * len(array)], np.uint8)
    return bool((content[length:] == content[: content.size - length]).all())


def distinct(array: pa.Array) -> list[bytes]:
    """The values of a binary column, each once; most columns have one."""
    found: list[bytes] = (array.slice(0, 1) if is_constant(array) else pc.unique(array)).to_pylist()
    return found


def indices_of(array: pa.Array, values: Collection[bytes]) -> npt.NDArray[np.int64]:
    """The indices of these values in a binary column; compares words where all values have the same short length."""
    reader = WordReader(array)
    if reader.width and reader.width <= WORD_BYTES and len(values) <= FEW_VALUES:
        words, found = reader.words(0), np.zeros(len(array), np.bool_)
        for value in values:
            if len(value) == reader.width:
                found |= words == int.from_bytes(value.ljust(WORD_BYTES, b"\0"))
    else:
        found = pc.is_in(array, value_set=pa.array(sorted(values), pa.binary())).to_numpy(zero_copy_only=False)
    return np.flatnonzero(found)


def common_prefix_bytes(low: bytes, high: bytes) -> int:
    """Length of the prefix that every value between ``low`` and ``high`` has."""
    for index, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return index
    return min(len(low), len(high))


def column_of(value: bytes | bool, count: int) -> pa.Array:
    """``count`` times the same value."""
    if isinstance(value, bool):
        bits = (b"\xff" if value else b"\x00") * ((count + 7) // 8)
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])
    size = len(value)
    offsets = np.arange(0, size * count + 1, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)])


class WordReader:
    """Reads eight bytes of each value of a binary column at once; at a stride where all have the same length."""

    def __init__(self, array: pa.Array) -> None:
        offsets = binary_offsets(array)
        self._count = len(array)
        self._first, self._last = int(offsets[0]), int(offsets[-1])
        self._content = np.frombuffer(binary_data(array)[self._first : self._last], np.uint8)
        lengths = np.diff(offsets)
        self.width = int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else None
        """The length that all values have, None when they differ."""
        self._offsets = offsets
        self._lengths = lengths

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each value."""
        return self._lengths.astype(np.int64)

    def words(self, skip: int | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Bytes ``[skip, skip + 8)`` of each value as a big-endian number, zeros where a value has ended."""
        if isinstance(skip, int) and self.width:
            return self._words_of_one_length(skip, self.width)
        starts = np.minimum(self._starts + skip, self._ends)
        length = np.minimum(self._ends - starts, WORD_BYTES)
        words: npt.NDArray[np.uint64] = self._word_at[starts].astype(np.uint64)
        words &= _FIRST_BYTES_MASK[length]
        return words

    def _words_of_one_length(self, skip: int, width: int) -> npt.NDArray[np.uint64]:
        if skip >= width:
            return np.zeros(self._count, np.uint64)
        if width < WORD_BYTES:
            padded = np.zeros((self._count, WORD_BYTES), np.uint8)
            padded[:, : width - skip] = self._content.reshape(-1, width)[:, skip:]
            short: npt.NDArray[np.uint64] = padded.view(">u8").reshape(-1).astype(np.uint64)
            return short
        start = min(skip, width - WORD_BYTES)
        every = np.ndarray((self._count,), ">u8", self._content.data, start, (width,))
        words: npt.NDArray[np.uint64] = every.astype(np.uint64)
        if start < skip:
            words <<= np.uint64(8 * (skip - start))
        return words

    @functools.cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return self._offsets[:-1].astype(np.int64) - self._first

    @functools.cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return self._offsets[1:].astype(np.int64) - self._first

    @functools.cached_property
    def _word_at(self) -> npt.NDArray[np.uint64]:
        """The eight bytes at every position; padded at the end, so that no word lies beyond the column."""
        data = np.zeros(self._last - self._first + WORD_BYTES, np.uint8)
        data[: self._content.size] = self._content
        return np.ndarray((self._content.size + 1,), dtype=">u8", buffer=data.data, strides=(1,))


def extremes(array: pa.Array) -> tuple[bytes, bytes]:
    """Least and greatest value of a binary column that is not empty; compares words where all have the same length."""
    reader = WordReader(array)
    candidates = array
    for skip in range(0, reader.width or 0, WORD_BYTES):
        words = reader.words(skip)
        low_at, high_at = int(words.argmin()), int(words.argmax())
        low, high = words[low_at], words[high_at]
        if low < high:
            lowest, highest = words == low, words == high
            if np.count_nonzero(lowest) == np.count_nonzero(highest) == 1:
                return array[low_at].as_py(), array[high_at].as_py()
            candidates = array.take(pa.array(np.flatnonzero(lowest | highest)))
            break
    found = pc.min_max(candidates)
    return found["min"].as_py(), found["max"].as_py()


def min_max_row(batch: pa.RecordBatch) -> tuple[bytes, bytes]:
    """Least and greatest row of a batch of at least one record."""
    return extremes(batch.column("row"))
