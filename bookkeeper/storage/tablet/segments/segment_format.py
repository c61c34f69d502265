"""The segment file: a plain Parquet file with a tail of our own that lets a reader check every byte.

::

    PAR1 | row groups | filter | index | trailer | Parquet footer | footer length | PAR1

Any Parquet reader finds the footer from the end and never sees the tail. ``index`` has one line a row group: the keys
of its first and last entry, its byte range and the CRC-32C of that range (see ``segment_index``). ``trailer`` is
fixed-size and holds the CRC-32C of filter and index and of the footer, so a reader checks bytes before it parses them.
Segments are immutable: a file has its final name only when all of it is durable.
"""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import CorruptionError
from bookkeeper.model import RowRange

FORMAT_VERSION = 2
PARQUET_MAGIC = b"PAR1"
TRAILER = struct.Struct("<4s4I")
"""Magic, bytes of the filter, bytes of the index, CRC-32C of both, CRC-32C of the Parquet footer."""
TRAILER_MAGIC = b"BKS1"
FOOTER_END = struct.Struct("<I4s")
"""Length of the Parquet footer, magic: the last eight bytes of the file."""

VERSION_KEY = b"bookkeeper.format_version"
GROUP_KEY = b"bookkeeper.group"
FAMILIES_KEY = b"bookkeeper.families"
"""JSON list of the base64 families present; absent when there are more than FAMILIES_MAX."""
FAMILIES_MAX = 256

ENDING = ".parquet"

_MERGED = "c"


def merged_prefix(holder: int) -> str:
    """The beginning of the names of a compaction's segments. ``holder``: the first flush id of the tablet's holder. The
    names of a flush's segments begin with its id.
    """
    return f"{_MERGED}{holder:010d}"


def parse_name(name: str) -> tuple[int, bool] | None:
    """Flush id, and False; or a holder's first flush id, and True for a compaction; None for a foreign file."""
    number, dash, _ = name.removeprefix(_MERGED).partition("-")
    if not (dash and number.isascii() and number.isdecimal()):
        return None
    return int(number), name.startswith(_MERGED)


DICTIONARY_COLUMNS = ["family", "qualifier", "visibility"]


_Row = bytes


class SegmentRef(Struct, frozen=True):
    """A segment in the books. ``name``: where it is on the Volume. ``first_seq`` and ``last_seq`` bound the sequence
    numbers of its entries. ``ranges``: the rows of the file that count in this tablet, () = all; several tablets may
    share a file. ``shift`` is added to each sequence number in the file, the same for each tablet that names the file.
    """

    name: str
    group: str
    records: int
    bytes: int
    min_row: _Row
    max_row: _Row
    first_seq: int
    last_seq: int
    flush_id: int
    ranges: tuple[RowRange, ...] = ()
    shift: int = 0


NewSegment = SegmentRef
"""A segment that is durable and not yet in the books."""


def crc32c(content: bytes | pa.Buffer) -> int:
    """CRC-32C of a buffer."""
    return int(google_crc32c.value(content))


def corrupt(name: str, reason: str) -> CorruptionError:
    """The error that names the file, the reason and the next step."""
    return CorruptionError(
        f"segment {name} is corrupt: {reason}; restore the file from a copy or a peer",
        {"name": name, "reason": reason},
    )
