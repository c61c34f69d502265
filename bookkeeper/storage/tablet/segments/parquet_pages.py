"""The sizes of a Parquet column chunk, by the headers of its pages, before anything is decoded.

A decoder allocates the memory that a page header announces, and some encodings turn a kilobyte into gigabytes. So only
the two encodings of a segment's writer are accepted: plain values, and a dictionary of plain values with indices. Pure.
Layout: the Parquet format, ``PageHeader`` in ``parquet.thrift``, in Thrift's compact protocol.
"""

from __future__ import annotations

from msgspec import Struct

Fields = dict[int, "int | Fields | None"]
"""Fields of a Thrift struct by their ids; None: a value that no caller uses."""

PAGES_MAX = 64
"""Most pages of a column chunk. A writer makes one or two; each costs as much as thousands of values."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY = range(1, 9)
_STRUCT = 12
_DOUBLE_BYTES = 8
_VARINT_BYTES_MAX = 10
_DEPTH_MAX = 3
"""A page header holds the header of its kind, which holds statistics."""

_TYPE, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_DATA_HEADER, _DICTIONARY_HEADER = 5, 7
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_VALUES, _ENCODING = 1, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8


class ChunkSize(Struct, frozen=True):
    """Values of a column chunk, and the bytes of its pages after decompression."""

    values: int
    page_bytes: int


def size_of_chunk(chunk: memoryview, *, has_dictionary: bool) -> ChunkSize:
    """The sizes that the pages of a column chunk announce. ``has_dictionary``: the chunk begins with a dictionary page.
    Raises ValueError unless the chunk consists of such pages, from its first byte to its last.
    """
    at = values = size = pages = 0
    while at < len(chunk):
        if pages == PAGES_MAX:
            raise ValueError(f"more than {PAGES_MAX} pages")
        header, at = _read_struct(chunk, at, _DEPTH_MAX)
        if has_dictionary and not pages:
            _check_page(header, _DICTIONARY_PAGE, _DICTIONARY_HEADER, (_PLAIN, _PLAIN_DICTIONARY))
        else:
            encodings = (_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY) if has_dictionary else (_PLAIN,)
            values += _check_page(header, _DATA_PAGE, _DATA_HEADER, encodings)
        pages += 1
        size += _number(header, _UNCOMPRESSED)
        at += _number(header, _COMPRESSED)
    if at != len(chunk):
        raise ValueError("its last page goes on behind its column")
    return ChunkSize(values, size)


def _check_page(header: Fields, kind: int, field: int, encodings: tuple[int, ...]) -> int:
    """The number of values of a page of this kind, in one of these encodings."""
    about = header.get(field)
    if header.get(_TYPE) != kind or not isinstance(about, dict):
        raise ValueError(f"a page of type {header.get(_TYPE)} in place of one of type {kind}")
    encoding = about.get(_ENCODING)
    if encoding not in encodings:
        raise ValueError(f"a page in encoding {encoding}, which no segment has here")
    return _number(about, _VALUES)


def _number(fields: Fields, name: int) -> int:
    found = fields.get(name)
    if not isinstance(found, int) or found < 0:
        raise ValueError(f"field {name} of a page header is {found!r}, not a size")
    return found


# ---- Thrift's compact protocol


def _read_struct(content: memoryview, at: int, depth: int) -> tuple[Fields, int]:
    """The struct at ``at``, and the position behind it."""
    if not depth:
        raise ValueError("a page header of too many levels")
    fields: Fields = {}
    last = 0
    while True:
        byte, at = _byte(content, at)
        if not byte:
            return fields, at
        step, kind = byte >> 4, byte & 15
        if not step:
            raise ValueError("the fields of a page header do not ascend by small steps")
        last += step
        fields[last], at = _read_value(content, at, kind, depth)


def _read_value(content: memoryview, at: int, kind: int, depth: int) -> tuple[int | Fields | None, int]:
    if kind in (_TRUE, _FALSE):
        return int(kind == _TRUE), at
    if kind == _BYTE:
        return _byte(content, at)
    if kind in (_I16, _I32, _I64):
        raw, at = _varint(content, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind == _STRUCT:
        return _read_struct(content, at, depth - 1)
    if kind == _DOUBLE:
        return None, at + _DOUBLE_BYTES
    if kind == _BINARY:
        length, at = _varint(content, at)
        return None, at + length
    raise ValueError(f"a page header with a field of type {kind}")


def _byte(content: memoryview, at: int) -> tuple[int, int]:
    if at >= len(content):
        raise ValueError("a page header goes on behind its column")
    return content[at], at + 1


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte, at = _byte(content, at)
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at
    raise ValueError("a number of too many bytes in a page header")
