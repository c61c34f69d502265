"""The reader of segments: it compares the checksum of each part before it parses the part.

A reference from the books leads to the file. The reader is a source of a merge, with one block for each row group. It
opens the file for each read and closes it again, so open files do not limit the number of segments. A file that is
missing, or not exactly as it was written, is a CorruptionError that names the file and the reason.
"""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bookkeeper.errors import IncompatibleError, UnavailableError
from bookkeeper.storage.columns import column_of
from bookkeeper.storage.tablet.segments import bloom, segment_format
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.middle_row import SegmentGroups
from bookkeeper.storage.tablet.segments.segment_format import FOOTER_END, TRAILER, SegmentRef, corrupt, crc32c
from bookkeeper.storage.tablet.segments.segment_index import decode_index
from bookkeeper.storage.tablet.sorting.constant_columns import VALUE_BYTES_MAX as CONSTANT_BYTES_MAX
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, KEY_COLUMNS, SEQ, Position, SortedBlock
from bookkeeper.storage.volume.volume_protocol import Volume


def matches(content: bytes, check: int) -> bool:
    """Whether bytes have their checksum; only then may they be parsed (L7)."""
    return crc32c(content) == check


class _Window(io.RawIOBase):
    """A file of ``size`` bytes, of which only those of the last :meth:`show` can be read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._content = memoryview(b"")
        self._start = 0
        self._size = size
        self._position = 0

    def show(self, content: bytes, start: int) -> None:
        """Let ``[start, start + len(content))`` be read, and nothing else."""
        self._content = memoryview(content)
        self._start = start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> memoryview:
        low = self._position - self._start
        if low < 0 or size < 0:
            raise OSError("read outside of the checked range")
        part = self._content[low : low + size]
        self._position += len(part)
        return part


class _Decoder:
    """Decodes row groups of one segment from bytes that were checked. Used by one thread at a time."""

    def __init__(self, footer: pq.FileMetaData, size: int) -> None:
        self._window = _Window(size)
        self._file = pq.ParquetFile(
            self._window, metadata=footer, read_dictionary=segment_format.DICTIONARY_COLUMNS, pre_buffer=False
        )

    def decode(self, number: int, content: bytes, start: int) -> list[pa.Array]:
        """The columns of a row group, whose bytes lie from ``start`` on."""
        self._window.show(content, start)
        table = self._file.read_row_group(number, use_threads=False)
        self._window.show(b"", 0)
        return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]


class Tail(Struct, frozen=True):
    """The checked footer, filter and index of a segment. ``start``: end of the row groups; ``size``: of the file."""

    footer: pq.FileMetaData
    filter_bytes: bytes
    index: pa.RecordBatch
    first_keys: list[Position]
    last_keys: list[Position]
    families: frozenset[bytes] | None
    start: int
    size: int


Chunks = Mapping[str, pa.Array]
"""The columns of a row group as they are decoded: some have dictionaries."""


class Segment:
    """A segment file. Thread-safe; the first call that needs the file opens it."""

    def __init__(self, volume: Volume, ref: SegmentRef, cache: BlockCache, tail_bytes_max: int | None = None) -> None:
        """``tail_bytes_max``: more bytes behind the row groups are refused unread; None = no limit."""
        self.ref = ref
        self._volume = volume
        self._name = ""
        self._cache = cache
        self._tail_bytes_max = tail_bytes_max
        self._lock = threading.Lock()
        self._loaded: Tail | None = None
        self._idle: deque[_Decoder] = deque(maxlen=1)
        """A decoder that no thread uses: making one takes as long as decoding a fifth of a row group."""

    def may_hold(
        self, families: Collection[bytes] | None, low: bytes, high: bytes | None, only_row: int | None
    ) -> bool:
        """False when no entry of these families (None: any) lies in rows ``[low, high)``; ``only_row`` is the hash of
        the row when there is one in the range. May read the footer.
        """
        if self.ref.max_row < low or (high is not None and self.ref.min_row >= high):
            return False
        present = None if families is None else self.tail().families
        if families is not None and present is not None and present.isdisjoint(families):
            return False
        return only_row is None or bloom.may_hold(self.tail().filter_bytes, only_row)

    @property
    def families(self) -> frozenset[bytes] | None:
        """The families present; None when they are too many to be listed. Reads the footer."""
        return self.tail().families

    @property
    def records(self) -> int:
        """See :class:`Source`."""
        return self.ref.records

    @property
    def block_count(self) -> int:
        """See :class:`Source`."""
        return len(self.tail().last_keys)

    def seek(self, position: Position) -> int:
        """See :class:`Source`."""
        return bisect_right(self.tail().last_keys, position)

    def groups(self) -> SegmentGroups:
        """Its row groups as the index has them. Reads the footer."""
        tail = self.tail()
        sizes: list[int] = tail.index.column("bytes").to_pylist()
        rows = zip(tail.first_keys, tail.last_keys, sizes, strict=True)
        return SegmentGroups(self.ref.bytes, self.ref.ranges, [(first[0], last[0], size) for first, last, size in rows])

    def first_key(self, index: int) -> Position:
        """See :class:`Source`."""
        return self.tail().first_keys[index]

    def block(self, index: int) -> SortedBlock:
        """See :class:`Source`."""
        return self._cache.get((self.ref.name, index), lambda: self._read_block(index))

    def prefetch(self, index: int) -> None:
        """See :class:`Source`."""
        self._cache.prefetch((self.ref.name, index), lambda: self._read_block(index))

    def check(self) -> None:
        """Read and check the footer, index and filter; raises CorruptionError or IncompatibleError."""
        self.tail()

    def _read(self, start: int, length: int) -> bytes:
        try:
            content = self._volume.read_range(self.ref.name, start, length)
        except FileNotFoundError as error:
            raise corrupt(self.ref.name, "the file is missing") from error
        except OSError as error:
            raise UnavailableError(f"segment {self.ref.name} can't be read: {error}") from error
        if len(content) != length:
            raise corrupt(self.ref.name, f"truncated: bytes [{start}, {start + length}) are not all there")
        return content

    def tail(self) -> Tail:
        """The footer, filter and index, read once. Raises CorruptionError, IncompatibleError, UnavailableError."""
        tail = self._loaded
        if tail is None:
            with self._lock:
                tail = self._loaded = self._loaded or self._load_tail()
        return tail

    def _load_tail(self) -> Tail:
        size = self._check_size()
        footer_length, magic = FOOTER_END.unpack(self._read(size - FOOTER_END.size, FOOTER_END.size))
        if magic != segment_format.PARQUET_MAGIC:
            raise corrupt(self.ref.name, "it does not end as a Parquet file")
        footer_start = size - FOOTER_END.size - footer_length
        trailer_start = footer_start - TRAILER.size
        if trailer_start < len(segment_format.PARQUET_MAGIC):
            raise corrupt(self.ref.name, "its footer length is impossible")
        trailer = TRAILER.unpack(self._read(trailer_start, TRAILER.size))
        magic, filter_length, index_length, check, footer_check = trailer
        if magic != segment_format.TRAILER_MAGIC:
            raise corrupt(self.ref.name, "it has no segment trailer: a foreign or damaged file")
        tail_start = trailer_start - filter_length - index_length
        if tail_start < len(segment_format.PARQUET_MAGIC):
            raise corrupt(self.ref.name, "the lengths in its trailer are impossible")
        if self._tail_bytes_max is not None and size - tail_start > self._tail_bytes_max:
            raise corrupt(
                self.ref.name, f"{size - tail_start} bytes behind its row groups: at most {self._tail_bytes_max}"
            )
        tail = self._read(tail_start, filter_length + index_length)
        footer = self._read(footer_start, size - footer_start)
        if not (matches(tail, check) and matches(footer[:footer_length], footer_check)):
            raise corrupt(self.ref.name, "the checksum of its footer, filter or index does not match")
        if self._read(0, 4) != segment_format.PARQUET_MAGIC:
            raise corrupt(self.ref.name, "it does not start as a Parquet file")
        return self._parse_tail(tail[:filter_length], tail[filter_length:], footer, tail_start, size)

    def _check_size(self) -> int:
        try:
            size = self._volume.size(self.ref.name)
        except FileNotFoundError as error:
            raise corrupt(self.ref.name, "the file is missing") from error
        except OSError as error:
            raise UnavailableError(f"segment {self.ref.name} can't be read: {error}") from error
        if size != self.ref.bytes:
            raise corrupt(self.ref.name, f"it has {size} bytes, the books say {self.ref.bytes}")
        if size < len(segment_format.PARQUET_MAGIC) + TRAILER.size + FOOTER_END.size:
            raise corrupt(self.ref.name, f"{size} bytes are too few for a segment")
        return size

    def _parse_tail(self, filter_bytes: bytes, index_bytes: bytes, footer: bytes, start: int, size: int) -> Tail:
        """The checksums match: any other mismatch means other software, or another file than the one in the books."""
        try:
            metadata = pq.read_metadata(pa.BufferReader(segment_format.PARQUET_MAGIC + footer))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise corrupt(self.ref.name, f"its footer is not Parquet: {error}") from error
        named = metadata.metadata or {}
        version = named.get(segment_format.VERSION_KEY)
        if version != str(segment_format.FORMAT_VERSION).encode():
            known = segment_format.FORMAT_VERSION
            raise IncompatibleError(
                f"segment {self.ref.name} has format version {version!r}, this program reads {known}: use the "
                "program that wrote the segment"
            )
        if metadata.schema.names != ENTRY_SCHEMA.names:
            raise corrupt(self.ref.name, "its columns are not those of a segment")
        if named.get(segment_format.GROUP_KEY) != self.ref.group.encode():
            raise corrupt(self.ref.name, f"it belongs to another locality group than {self.ref.group!r}")
        if metadata.num_rows != self.ref.records:
            raise corrupt(self.ref.name, f"it has {metadata.num_rows} records, the books say {self.ref.records}")
        index = self._index(index_bytes)
        if index.num_rows != metadata.num_row_groups or not index.num_rows:
            raise corrupt(self.ref.name, "its index does not match its footer")
        if not lies_within(index, start):
            raise corrupt(self.ref.name, "its index names bytes that it does not have")
        first_keys, last_keys = (_keys(index, prefix, self.ref.shift) for prefix in ("first_", "last_"))
        if (first_keys[0][0], last_keys[-1][0]) != (self.ref.min_row, self.ref.max_row):
            raise corrupt(self.ref.name, "its first and last row differ from those in the books")
        families = self._families_in(named.get(segment_format.FAMILIES_KEY))
        return Tail(
            footer=metadata,
            filter_bytes=filter_bytes,
            index=index,
            first_keys=first_keys,
            last_keys=last_keys,
            families=families,
            start=start,
            size=size,
        )

    def _index(self, content: bytes) -> pa.RecordBatch:
        try:
            return decode_index(content)
        except (pa.ArrowException, ValueError) as error:
            raise corrupt(self.ref.name, f"its index does not parse: {error}") from error

    def _families_in(self, listed: bytes | None) -> frozenset[bytes] | None:
        if listed is None:
            return None
        try:
            return frozenset(base64.b64decode(text, validate=True) for text in _texts(listed))
        except (ValueError, RecursionError) as error:
            raise corrupt(self.ref.name, f"its list of families does not parse: {error}") from error

    def content(self, number: int) -> bytes:
        """The bytes of a row group, checked. Raises CorruptionError, UnavailableError."""
        index = self.tail().index
        start, length = (index.column(name)[number].as_py() for name in ("start", "bytes"))
        content = self._read(start, length)
        if not matches(content, index.column("crc")[number].as_py()):
            raise corrupt(self.ref.name, f"the checksum of row group {number} does not match")
        return content

    def chunks(self, number: int, content: bytes) -> Chunks:
        """The columns of a row group, decoded from :meth:`content`. Raises CorruptionError."""
        tail = self.tail()
        try:
            chunks = self._decode(tail, number, content, tail.index.column("start")[number].as_py())
        except (pa.ArrowException, OSError) as error:
            raise corrupt(self.ref.name, f"row group {number} can't be decoded: {error}") from error
        if any(len(chunk) != tail.index.column("records")[number].as_py() for chunk in chunks.values()):
            raise corrupt(self.ref.name, f"row group {number} has another number of records than in its index")
        return chunks

    def block_of(self, chunks: Chunks) -> SortedBlock:
        """The entries of a decoded row group."""
        constants = {name: value for name, chunk in chunks.items() if (value := only_value(chunk)) is not None}
        columns = [
            column_of(constants[name], len(chunk)) if name in constants else _plain(chunk)
            for name, chunk in chunks.items()
        ]
        columns[SEQ] = shifted(columns[SEQ], self.ref.shift)
        batch = pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
        return SortedBlock(batch, constants).ready_to_bisect()

    def _read_block(self, number: int) -> SortedBlock:
        chunks = self.chunks(number, self.content(number))
        try:
            return self.block_of(chunks)
        except pa.ArrowException as error:
            raise corrupt(self.ref.name, f"row group {number} can't be decoded: {error}") from error

    def _decode(self, tail: Tail, number: int, content: bytes, start: int) -> dict[str, pa.Array]:
        try:
            decoder = self._idle.pop()
        except IndexError:
            decoder = _Decoder(tail.footer, tail.size)
        columns = decoder.decode(number, content, start)
        self._idle.append(decoder)
        return dict(zip(ENTRY_SCHEMA.names, columns, strict=True))


def lies_within(index: pa.RecordBatch, size: int) -> bool:
    """Whether an index names only bytes of its file: a read allocates as many bytes as a line names."""
    starts, lengths = (index.column(name).to_pylist() for name in ("start", "bytes"))
    return all(start >= 0 and 0 < length <= size - start for start, length in zip(starts, lengths, strict=True))


def _texts(raw: bytes) -> list[str]:
    found = json.loads(raw)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"not a list of texts: {raw[:80]!r}")
    return found


def only_value(chunk: pa.Array) -> bytes | bool | None:
    """The one value of a column, as mostly in families; False for a column without deletes. None: the values differ, or
    only a check of each would show.
    """
    if pa.types.is_boolean(chunk.type):
        return None if chunk.true_count else False
    if pa.types.is_dictionary(chunk.type) and len(chunk.dictionary) == 1 and not chunk.null_count:
        value: bytes = chunk.dictionary[0].as_py()
        return value if len(value) <= CONSTANT_BYTES_MAX else None
    return None


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def shifted(seq: pa.Array, shift: int) -> pa.Array:
    """The tablet's sequence numbers: those of the file, plus the shift."""
    return pc.add(seq, shift) if shift else seq


def _keys(index: pa.RecordBatch, prefix: str, shift: int) -> list[Position]:
    columns = [index.column(prefix + name) for name in KEY_COLUMNS]
    columns[-1] = shifted(columns[-1], shift)
    keys = SortedBlock(pa.RecordBatch.from_arrays(columns, names=KEY_COLUMNS))
    return [keys.key(number) for number in range(keys.records)]
