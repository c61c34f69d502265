"""The values of cells: frozen classes, each with its encoding.

A replication status is protobuf, all others are compact UTF-8 JSON with sorted keys. Decoding is strict: a missing,
unknown, repeated or mistyped field raises CorruptionError, because a process that rewrites a value must not drop fields
that it does not support. Encoding raises InvalidInputError for a value that decoding would refuse.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct, field

import combiners
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata.origin_intervals_json import decode_origin_intervals, encode_origin_intervals
from bookkeeper.model import BlockRange, PartialHighWater, RowRange, StreamKey, TargetShare
from bookkeeper.origins import Root, RootIntervals
from bookkeeper.strict_json import (
    check_names,
    encode_json,
    mapping,
    number,
    offsets,
    raw_bytes,
    read_fields,
    read_object,
    text,
    texts,
    tuples,
    typed,
)
from combiners import ReplicationStatus

ReplicaRole: TypeAlias = Literal["voter", "joining"]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
LOG = b"{}"
"""Value of a ``log:`` cell: its column has all information."""

EMPTY = b""
"""Value of a ``del:`` cell: its row has all information."""


class Owner(Struct, frozen=True):
    """``owner:instance``: the owner of the books, and the version of their format."""

    instance_id: str
    format_version: int

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return encode_json(self.decode, {"instance_id": self.instance_id, "format_version": self.format_version})

    @classmethod
    def decode(cls, raw: bytes) -> Owner:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_fields(raw, "an owner", "instance_id", "format_version")
        return cls(text(fields, "instance_id"), number(fields, "format_version", 1))


class Location(Struct, frozen=True):
    """``location:assigned``: the tserver session of a tablet, and the address of that tserver. Without an address the
    tablet is parked: no tserver may load it, and ``session`` is the last one that had it.
    """

    session: str
    address: str

    @property
    def is_parked(self) -> bool:
        """Whether no tserver may load the tablet."""
        return not self.address

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return encode_json(self.decode, {"session": self.session, "address": self.address})

    @classmethod
    def decode(cls, raw: bytes) -> Location:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_fields(raw, "a location", "session", "address")
        return cls(text(fields, "session"), text(fields, "address"))


VOTER: ReplicaRole = "voter"
"""The replica counts as a copy, and its host may lead."""
JOINING: ReplicaRole = "joining"
"""The replica gets the tablet's segments; it does not count as a copy and never leads."""


class ReplicaCell(Struct, frozen=True):
    """``replica:<host>``: one replica of a tablet. ``placement`` names this assignment and is unique for ever; with
    another ``incarnation`` of the host's disk the replica is gone. ``role`` is voter or joining. ``in_place_of`` is the
    placement that leaves in the end, because this one came for the balance; empty (and not in the JSON) otherwise.
    """

    placement: str
    incarnation: str
    role: ReplicaRole
    in_place_of: str = ""

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        fields: dict[str, Json] = {"placement": self.placement, "incarnation": self.incarnation, "role": self.role}
        return encode_json(self.decode, fields | ({"in_place_of": self.in_place_of} if self.in_place_of else {}))

    @classmethod
    def decode(cls, raw: bytes) -> ReplicaCell:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_object(raw, "a replica")
        names = {"incarnation", "placement", "role"}
        if fields.keys() not in (names, names | {"in_place_of"}) or fields.get("in_place_of", True) == "":
            raise CorruptionError(f"a replica has {', '.join(sorted(names))}, optionally in_place_of: {raw[:200]!r}")
        role = text(fields, "role")
        if role not in (VOTER, JOINING):
            raise CorruptionError(f"a replica is {VOTER} or {JOINING}: {raw[:200]!r}")
        in_place_of = text(fields, "in_place_of") if "in_place_of" in fields else ""
        return cls(text(fields, "placement"), text(fields, "incarnation"), role, in_place_of)


class LogHome(Struct, frozen=True):
    """``location:home``: the host whose disk has the logs of a session, and the incarnation of that disk. With another
    incarnation the logs are gone.
    """

    host: str
    incarnation: str

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return encode_json(self.decode, {"host": self.host, "incarnation": self.incarnation})

    @classmethod
    def decode(cls, raw: bytes) -> LogHome:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_fields(raw, "the home of logs", "host", "incarnation")
        return cls(text(fields, "host"), text(fields, "incarnation"))


class FlushState(Struct, frozen=True):
    """``tablet:flush``: the segments of a tablet and the progress that they contain, in one put with new segments'
    cells.

    ``flush_id`` counts these states: flushes and compactions. ``through`` maps a WAL to the offset after which recovery
    replays, for each WAL that the row names or may name once more (``tserver.flushed_logs``). ``last_seq`` and
    ``last_time_ms`` are the tablet's sequence number and server time. ``high_water`` is that of each received stream
    for all rows, and ``partial_high_waters`` (JSON field ``ahead``) are those of rows with a higher one, from a tablet
    that was merged into this one (rule R18). ``last_wals`` are the records before the tablet's next one (rule R24), as
    WAL and offset: its last record, or the last records of the tablets that were merged into it. ``segments`` are the
    valid files: a ``segment:`` cell that the newest state does not name is dead, also when a late write added it.
    ``compacted`` is the state of the last full compaction, 0 = none. ``origin_intervals`` are the records of each root
    that the tablet has, from all paths (rule R22); the JSON field is ``held``.
    """

    flush_id: int
    through: Mapping[str, int]
    last_seq: int
    last_time_ms: int
    high_water: Mapping[StreamKey, int]
    last_wals: tuple[tuple[str, int], ...]
    segments: tuple[str, ...] = ()
    compacted: int = 0
    partial_high_waters: Mapping[StreamKey, tuple[PartialHighWater, ...]] = field(default_factory=dict)
    origin_intervals: Mapping[Root, RootIntervals] = field(default_factory=dict)

    def encode(self) -> bytes:
        """JSON bytes, ``held`` only with at least one root; raises InvalidInputError."""
        return encode_json(
            self.decode,
            {
                "flush_id": self.flush_id,
                "through": dict(self.through),
                "last_seq": self.last_seq,
                "last_time_ms": self.last_time_ms,
                "high_water": {stream.encode(): offset for stream, offset in self.high_water.items()},
                "last_wals": self.last_wals,
                "segments": list(self.segments),
                "compacted": self.compacted,
                "ahead": {
                    stream.encode(): [[*_encode_range(part.rows), part.offset] for part in parts]
                    for stream, parts in self.partial_high_waters.items()
                },
            }
            | ({"held": encode_origin_intervals(self.origin_intervals)} if self.origin_intervals else {}),
        )

    @classmethod
    def decode(cls, raw: bytes) -> FlushState:
        """Parse :meth:`encode`; raises CorruptionError."""
        what = "a flush state"
        names = ("flush_id", "through", "last_seq", "last_time_ms", "high_water", "last_wals", "segments", "compacted")
        fields = {"held": {}} | read_object(raw, what)
        check_names(fields, raw, what, *names, "ahead", "held")
        return cls(
            flush_id=number(fields, "flush_id", 1),
            through=offsets(fields, "through"),
            last_seq=number(fields, "last_seq"),
            last_time_ms=number(fields, "last_time_ms"),
            high_water={_stream(key): offset for key, offset in offsets(fields, "high_water").items()},
            last_wals=tuple((text(pair, 0), number(pair, 1)) for pair in tuples(fields, "last_wals", 2)),
            segments=texts(fields, "segments"),
            compacted=number(fields, "compacted"),
            partial_high_waters=_ahead(mapping(fields, "ahead")),
            origin_intervals=decode_origin_intervals(mapping(fields, "held")),
        )


class SegmentEntry(Struct, frozen=True):
    """``segment:<file>``: one locality group's file of one flush. Rows and sequence numbers are those of the complete
    file, inclusive. ``ranges`` are its rows that belong to this tablet, () = all: several tablets may share a file.
    ``shift`` is added to each sequence number in the file: a tablet assigns those of an import when it takes the file.
    """

    group: str
    records: int
    size_bytes: int
    min_row: bytes
    max_row: bytes
    first_seq: int
    last_seq: int
    flush_id: int
    ranges: tuple[RowRange, ...] = ()
    shift: int = 0

    def encode(self) -> bytes:
        """JSON bytes, rows in base64, ``ranges`` and ``shift`` unless they are empty; raises InvalidInputError."""
        return encode_json(
            self.decode,
            {
                "group": self.group,
                "records": self.records,
                "bytes": self.size_bytes,
                "min_row": b64encode(self.min_row).decode(),
                "max_row": b64encode(self.max_row).decode(),
                "first_seq": self.first_seq,
                "last_seq": self.last_seq,
                "flush_id": self.flush_id,
            }
            | ({"ranges": [_encode_range(rows) for rows in self.ranges]} if self.ranges else {})
            | ({"shift": self.shift} if self.shift else {}),
        )

    @classmethod
    def decode(cls, raw: bytes) -> SegmentEntry:
        """Parse :meth:`encode`; raises CorruptionError."""
        names = ("group", "records", "bytes", "min_row", "max_row", "first_seq", "last_seq", "flush_id")
        fields = read_object(raw, "a segment entry")
        optional = fields.keys() - set(names)
        if not (fields.keys() >= set(names) and optional <= {"ranges", "shift"} and all(map(fields.get, optional))):
            raise CorruptionError(f"a segment entry has {', '.join(names)}, optionally ranges and shift: {raw[:200]!r}")
        return cls(
            group=text(fields, "group"),
            records=number(fields, "records"),
            size_bytes=number(fields, "bytes"),
            min_row=raw_bytes(fields, "min_row"),
            max_row=raw_bytes(fields, "max_row"),
            first_seq=number(fields, "first_seq"),
            last_seq=number(fields, "last_seq"),
            flush_id=number(fields, "flush_id"),
            ranges=tuple(_range(pair) for pair in tuples(fields, "ranges", 2)) if "ranges" in fields else (),
            shift=number(fields, "shift") if "shift" in fields else 0,
        )


class Received(Struct, frozen=True):
    """``recv:``: the offset up to which one stream is durable here; ``done`` once the source sends no more of it."""

    offset: int
    done: bool = False

    def encode(self) -> bytes:
        """JSON bytes, ``done`` only when it is true; raises InvalidInputError."""
        return encode_json(self.decode, {"offset": self.offset} | ({"done": True} if self.done else {}))

    @classmethod
    def decode(cls, raw: bytes) -> Received:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_object(raw, "a recv value")
        if fields.keys() not in ({"offset"}, {"offset", "done"}) or fields.get("done", True) is not True:
            raise CorruptionError(f"a recv value has an offset and optionally done: {raw[:200]!r}")
        return cls(number(fields, "offset"), "done" in fields)


class FateOp(Struct, frozen=True):
    """``fate:op``: the type and arguments of a FATE operation; written once."""

    type: str
    args: Mapping[str, Json]
    created_ms: int

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return encode_json(self.decode, {"type": self.type, "args": dict(self.args), "created_ms": self.created_ms})

    @classmethod
    def decode(cls, raw: bytes) -> FateOp:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_fields(raw, "a FATE operation", "type", "args", "created_ms")
        return cls(text(fields, "type"), mapping(fields, "args"), number(fields, "created_ms"))


class FateStep(Struct, frozen=True):
    """``fate:step``: the current step of a FATE operation, and its state for the next one."""

    step: str
    state: Mapping[str, Json]

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return encode_json(self.decode, {"step": self.step, "state": dict(self.state)})

    @classmethod
    def decode(cls, raw: bytes) -> FateStep:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = read_fields(raw, "a FATE step", "step", "state")
        return cls(text(fields, "step"), mapping(fields, "state"))


_BLOCK_FIELDS = ("first", "last", "start_position", "end_position")


class Quarantined(Struct, frozen=True):
    """``quar:``: blocks that a target lacks, the error, and the time; ``tried``: a separate run was started.
    ``first_seq``: the number in its tablet of the first record of an import's log; 0 for other logs.
    """

    blocks: BlockRange
    code: str
    error: str
    since_ms: int
    tried: bool = False
    first_seq: int = 0

    def encode(self) -> bytes:
        """JSON bytes, ``first_seq`` unless it is 0; raises InvalidInputError."""
        blocks = {name: getattr(self.blocks, name) for name in _BLOCK_FIELDS}
        others = {"code": self.code, "error": self.error, "since_ms": self.since_ms, "tried": self.tried}
        return encode_json(self.decode, blocks | others | ({"first_seq": self.first_seq} if self.first_seq else {}))

    @classmethod
    def decode(cls, raw: bytes) -> Quarantined:
        """Parse :meth:`encode`; raises CorruptionError."""
        what = "a quarantined range"
        fields = {"first_seq": 0} | read_object(raw, what)
        check_names(fields, raw, what, *_BLOCK_FIELDS, "code", "error", "since_ms", "tried", "first_seq")
        blocks = BlockRange(*(number(fields, name) for name in _BLOCK_FIELDS))
        code, error, tried = text(fields, "code"), text(fields, "error"), typed(fields, "tried", bool)
        return cls(blocks, code, error, number(fields, "since_ms"), tried, number(fields, "first_seq"))


def encode_shares(shares: Iterable[TargetShare]) -> list[combiners.Share]:
    """Shares in the form of a status: sorted, each target as in its column."""
    named = [(share.target.encode().decode(), share) for share in shares]
    return [combiners.Share(target=name, records=share.records, bytes=share.bytes) for name, share in sorted(named)]


def encode_status(status: ReplicationStatus) -> bytes:
    """Bytes of a ``repl:`` or ``done:`` cell. Compare messages, never bytes."""
    return status.SerializeToString(deterministic=True)


def decode_status(raw: bytes) -> ReplicationStatus:
    """Parse :func:`encode_status`, with unknown fields; raises CorruptionError."""
    try:
        return ReplicationStatus.FromString(raw)
    except DecodeError as error:
        raise CorruptionError(f"not a replication status: {raw[:200]!r} ({error})") from error


def encode_prev_row(prev_row: bytes | None) -> bytes:
    """``tablet:prev_row``: 0x00 for the first tablet, else 0x01 and the row."""
    return b"\x00" if prev_row is None else b"\x01" + prev_row


def decode_prev_row(raw: bytes) -> bytes | None:
    """Parse :func:`encode_prev_row`; raises CorruptionError."""
    if raw == b"\x00":
        return None
    if not raw.startswith(b"\x01"):
        raise CorruptionError(f"not a previous row: {raw[:200]!r}")
    return raw[1:]


def encode_row(row: bytes | None) -> str | None:
    """A row in JSON; None = no border."""
    return None if row is None else b64encode(row).decode()


def decode_row(encoded: str | None) -> bytes | None:
    """Inverse of :func:`encode_row`."""
    return None if encoded is None else b64decode(encoded)


def encode_dir(directory: str) -> bytes:
    """``tablet:dir`` in UTF-8; raises InvalidInputError."""
    try:
        return directory.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a directory is not valid text: {directory!r}") from error


def decode_dir(raw: bytes) -> str:
    """Parse :func:`encode_dir`; raises CorruptionError."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(f"a directory is not UTF-8: {raw[:200]!r}") from error


def encode_parts(directories: Sequence[str]) -> bytes:
    """``tablet:parts``; raises InvalidInputError."""
    return encode_json(decode_parts, {"directories": [*directories]})


def decode_parts(raw: bytes) -> tuple[str, ...]:
    """Parse :func:`encode_parts`; raises CorruptionError."""
    return texts(read_fields(raw, "the parts of a tablet", "directories"), "directories")


# ---- parts


def _encode_range(rows: RowRange) -> list[str | None]:
    return [encode_row(rows.prev_row), encode_row(rows.end_row)]


def _range(pair: Mapping[Any, Any]) -> RowRange:
    prev_row, end_row = (None if pair[index] is None else raw_bytes(pair, index) for index in (0, 1))
    return RowRange(prev_row, end_row)


def _ahead(fields: dict[str, Any]) -> dict[StreamKey, tuple[PartialHighWater, ...]]:
    return {
        _stream(key): tuple(PartialHighWater(_range(part), number(part, 2)) for part in tuples(fields, key, 3))
        for key in fields
    }


def _stream(text: str) -> StreamKey:
    try:
        stream = StreamKey.decode(text)
        exact = stream.encode() == text
    except ValueError as error:
        raise CorruptionError(f"not a stream: {text!r} ({error})") from error
    if not exact:
        raise CorruptionError(f"not a stream: {text!r} (its encoding is {stream.encode()!r})")
    return stream
