"""Values that several rooms share: extents, targets, streams, and the Arrow schema of a mutation.

Pure values without IO. A *record* is one entry (one column of one row) of a WAL; offsets count records from 1.
Rules: R5, R13, R18 and R23.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote

import pyarrow as pa
from msgspec import Struct

DEFAULT_GROUP = "default"
"""Name of the locality group of all families that are in no other group."""

MUTATION_SCHEMA = pa.schema(
    [
        pa.field("row", pa.binary(), nullable=False),
        pa.field("family", pa.binary(), nullable=False),
        pa.field("qualifier", pa.binary(), nullable=False),
        pa.field("visibility", pa.binary(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=True),
        pa.field("delete", pa.bool_(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""Records in the WAL, on the wire and in a client's batch. The tserver sets a null timestamp."""


class HostIdentity(Struct, frozen=True):
    """A host of the cluster: its name, and the incarnation of its disk; a wiped disk gets a new incarnation. ``zone``:
    hosts with the same one may be lost together; empty: nothing is known.
    """

    name: str
    incarnation: str
    zone: str = ""


class LocalityGroup(Struct, frozen=True):
    """A named group of families that are stored together; a target may replicate some groups only."""

    name: str
    families: tuple[bytes, ...]


class Extent(Struct, frozen=True, order=True):
    """The rows of one tablet: after ``prev_row`` (None: from the start) through ``end_row`` (None: to the end)."""

    table_id: str
    end_row: bytes | None
    prev_row: bytes | None

    @property
    def rows(self) -> RowRange:
        """The rows without the table."""
        return RowRange(self.prev_row, self.end_row)

    def contains(self, row: bytes) -> bool:
        """Whether the tablet contains ``row``."""
        return (self.prev_row is None or row > self.prev_row) and (self.end_row is None or row <= self.end_row)


class RowRange(Struct, frozen=True):
    """Rows after ``prev_row`` (None: from the start) through ``end_row`` (None: to the end)."""

    prev_row: bytes | None
    end_row: bytes | None

    def contains(self, row: bytes) -> bool:
        """Whether the range contains ``row``."""
        return (self.prev_row is None or row > self.prev_row) and (self.end_row is None or row <= self.end_row)

    def part_in(self, other: RowRange) -> RowRange | None:
        """The intersection with another range; None when it is empty."""
        prev_row = max(self.prev_row or b"", other.prev_row or b"") or None
        end_row = min((end for end in (self.end_row, other.end_row) if end is not None), default=None)
        if prev_row is not None and end_row is not None and prev_row >= end_row:
            return None
        return RowRange(prev_row, end_row)


def chain_break(tablets: Sequence[Extent | RowRange]) -> int | None:
    """Rule R16: the first gap or overlap in the tablets of one table, in order; None when they cover each row once.

    Returns the index of the first tablet that does not begin at the end of its predecessor, or the number of tablets
    when the last rows are missing.
    """
    reached: bytes | None = None
    for index, tablet in enumerate(tablets):
        if tablet.prev_row != reached or (reached is None and index > 0):
            return index
        reached = tablet.end_row
    return None if tablets and reached is None else len(tablets)


def join_ranges(ranges: Iterable[RowRange]) -> tuple[RowRange, ...]:
    """The union of the ranges as the fewest ranges, in order."""
    joined: list[RowRange] = []
    for new in sorted(ranges, key=lambda found: (found.prev_row or b"", found.end_row is None, found.end_row or b"")):
        last = joined[-1] if joined else None
        if last is None or (last.end_row is not None and last.end_row < (new.prev_row or b"")):
            joined.append(new)
        elif last.end_row is not None and (new.end_row is None or new.end_row > last.end_row):
            joined[-1] = RowRange(last.prev_row, new.end_row)
    return tuple(joined)


class PartialHighWater(Struct, frozen=True):
    """Rows of a tablet that have a stream up to ``offset``, which is above the high-water of the tablet (rule R18)."""

    rows: RowRange
    offset: int


def _escape(part: str) -> str:
    return quote(part, safe="")


class TargetKey(Struct, frozen=True, order=True):
    """The destination of a file: cluster alias, table there, table here, and incarnation (rule R5)."""

    cluster: str
    remote_table_id: str
    source_table_id: str
    incarnation: int

    def encode(self) -> bytes:
        """Qualifier form ``cluster:remote:source:incarnation``, each part percent-escaped."""
        parts = (self.cluster, self.remote_table_id, self.source_table_id, str(self.incarnation))
        return ":".join(map(_escape, parts)).encode()

    @classmethod
    def decode(cls, raw: bytes) -> TargetKey:
        """Parse :meth:`encode`; raises ValueError on anything else."""
        cluster, remote, source, incarnation = map(unquote, raw.decode().split(":"))
        return cls(cluster, remote, source, int(incarnation))


class BlockTarget(Struct, frozen=True, order=True):
    """One target in force when a block was written (rule R13). ``groups`` None means every locality group."""

    target: TargetKey
    groups: tuple[str, ...] | None


class TargetShare(Struct, frozen=True, order=True):
    """The share of one target in a file, from its beginning up to some block: records, and the bytes of the blocks with
    these records, without headers.
    """

    target: TargetKey
    records: int
    bytes: int


class Target(Struct, frozen=True):
    """A configured target: its key, the groups that are replicated now, and the instance of the peer (rule R23)."""

    key: TargetKey
    groups: tuple[str, ...] | None
    peer_instance_id: str
    remote_table: str


class StreamKey(Struct, frozen=True, order=True):
    """The identity of a source file at a receiver, which records its high-water under it (rules R5 and R18)."""

    source_instance_id: str
    file: str
    source_table_id: str
    target_table_id: str
    incarnation: int
    run_id: str = ""

    def encode(self) -> str:
        """One string, parts percent-escaped and joined by ``|``."""
        parts: Iterable[str] = (
            self.source_instance_id,
            self.file,
            self.source_table_id,
            self.target_table_id,
            str(self.incarnation),
            self.run_id,
        )
        return "|".join(map(_escape, parts))

    @classmethod
    def decode(cls, raw: str) -> StreamKey:
        """Parse :meth:`encode`; raises ValueError on anything else."""
        instance, file, source, target, incarnation, run_id = map(unquote, raw.split("|"))
        return cls(instance, file, source, target, int(incarnation), run_id)


class BlockRange(Struct, frozen=True, order=True):
    """Complete blocks of a WAL: records ``first`` to ``last``, both inclusive, in the bytes ``[start_position,
    end_position)``; position 0 = unknown.
    """

    first: int
    last: int
    start_position: int
    end_position: int


class Origin(Struct, frozen=True):
    """The part of a stream in a received block: all records in ``(after_offset, to_offset]`` for its tablet."""

    stream: StreamKey
    after_offset: int
    to_offset: int


class Barrier(Struct, frozen=True, order=True):
    """Rule R24: records from ``offset`` on wait until ``file`` is finished up to ``until_offset``."""

    offset: int
    file: str
    until_offset: int
