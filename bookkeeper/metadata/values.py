"""What the cells hold: frozen values, each beside its encoding.

Arrives: values to write, bytes that were read. Leaves: bytes (JSON is UTF-8, sorted keys, compact; a replication
status is protobuf), or a value. Decoding is strict: a missing, unknown, repeated or mistyped field raises
CorruptionError, because a process that rewrites a value must not drop what it does not understand. Encoding
refuses, with InvalidInputError, what decoding would refuse. Source: design section 4.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import StreamKey
from combiners import ReplicationStatus

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_T = TypeVar("_T")

INT_MAX = 2**63 - 1
"""Highest integer a typed field may hold."""

LOG = b"{}"
"""Value of a ``log:`` cell: the column says everything."""

EMPTY = b""
"""Value of a ``del:`` cell: the row says everything."""


@dataclass(frozen=True, slots=True)
class Location:
    """``location:assigned``: the tserver session a tablet is given to, and where it answers."""

    session: str
    address: str

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return _encode(self.decode, {"session": self.session, "address": self.address})

    @classmethod
    def decode(cls, raw: bytes) -> Location:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = _fields(raw, "a location", "session", "address")
        return cls(_str(fields, "session"), _str(fields, "address"))


@dataclass(frozen=True, slots=True)
class FlushState:
    """``tablet:flush``: which segments a tablet consists of and what they hold, in one row put with new ones' cells.

    ``flush_id`` counts these states: flushes and compactions. ``through`` WAL to the offset from which on recovery
    replays (exclusive), ``last_seq`` and ``last_time_ms`` the tablet's sequence number and server time, ``high_water``
    what is held of each received stream, ``last_wal`` the tablet's last record in any WAL (rules R18 and R24).
    ``segments`` are the URIs that count: a ``segment:`` cell that the newest state does not name is dead, whoever wrote
    it and however late. ``compacted`` is the state of the last compaction of everything, 0 = none.
    """

    flush_id: int
    through: Mapping[str, int]
    last_seq: int
    last_time_ms: int
    high_water: Mapping[StreamKey, int]
    last_wal: tuple[str, int] | None
    segments: tuple[str, ...] = ()
    compacted: int = 0

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return _encode(
            self.decode,
            {
                "flush_id": self.flush_id,
                "through": dict(self.through),
                "last_seq": self.last_seq,
                "last_time_ms": self.last_time_ms,
                "high_water": {stream.encode(): offset for stream, offset in self.high_water.items()},
                "last_wal": self.last_wal,
                "segments": list(self.segments),
                "compacted": self.compacted,
            },
        )

    @classmethod
    def decode(cls, raw: bytes) -> FlushState:
        """Parse :meth:`encode`; raises CorruptionError."""
        what = "a flush state"
        names = ("flush_id", "through", "last_seq", "last_time_ms", "high_water", "last_wal", "segments", "compacted")
        fields = _fields(raw, what, *names)
        last = fields["last_wal"]
        if last is not None and not (isinstance(last, list) and len(last) == 2):
            raise CorruptionError(f"{what}: last_wal is neither null nor a pair")
        return cls(
            flush_id=_int(fields, "flush_id", 1),
            through=_offsets(fields, "through"),
            last_seq=_int(fields, "last_seq"),
            last_time_ms=_int(fields, "last_time_ms"),
            high_water={_stream(key): offset for key, offset in _offsets(fields, "high_water").items()},
            last_wal=None if last is None else (_str(dict(enumerate(last)), 0), _int(dict(enumerate(last)), 1)),
            segments=_texts(fields, "segments"),
            compacted=_int(fields, "compacted"),
        )


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """``segment:<uri>``: one locality group's file of one flush. Rows and sequence numbers are inclusive."""

    group: str
    records: int
    size_bytes: int
    min_row: bytes
    max_row: bytes
    first_seq: int
    last_seq: int
    flush_id: int

    def encode(self) -> bytes:
        """JSON bytes, rows in base64; raises InvalidInputError."""
        return _encode(
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
            },
        )

    @classmethod
    def decode(cls, raw: bytes) -> SegmentEntry:
        """Parse :meth:`encode`; raises CorruptionError."""
        names = ("group", "records", "bytes", "min_row", "max_row", "first_seq", "last_seq", "flush_id")
        fields = _fields(raw, "a segment entry", *names)
        return cls(
            group=_str(fields, "group"),
            records=_int(fields, "records"),
            size_bytes=_int(fields, "bytes"),
            min_row=_base64(fields, "min_row"),
            max_row=_base64(fields, "max_row"),
            first_seq=_int(fields, "first_seq"),
            last_seq=_int(fields, "last_seq"),
            flush_id=_int(fields, "flush_id"),
        )


@dataclass(frozen=True, slots=True)
class Received:
    """``recv:``: what is durable here of one stream without a gap; ``done`` once the source will never send more."""

    offset: int
    done: bool = False

    def encode(self) -> bytes:
        """JSON bytes, ``done`` only when it is true; raises InvalidInputError."""
        return _encode(self.decode, {"offset": self.offset} | ({"done": True} if self.done else {}))

    @classmethod
    def decode(cls, raw: bytes) -> Received:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = _object(raw, "a recv value")
        if fields.keys() not in ({"offset"}, {"offset", "done"}) or fields.get("done", True) is not True:
            raise CorruptionError(f"a recv value has an offset and perhaps done: {raw[:200]!r}")
        return cls(_int(fields, "offset"), "done" in fields)


@dataclass(frozen=True, slots=True)
class FateOp:
    """``fate:op``: what a FATE operation is to do; written once."""

    type: str
    args: Mapping[str, Json]
    created_ms: int

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return _encode(self.decode, {"type": self.type, "args": dict(self.args), "created_ms": self.created_ms})

    @classmethod
    def decode(cls, raw: bytes) -> FateOp:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = _fields(raw, "a FATE operation", "type", "args", "created_ms")
        return cls(_str(fields, "type"), _mapping(fields, "args"), _int(fields, "created_ms"))


@dataclass(frozen=True, slots=True)
class FateStep:
    """``fate:step``: how far a FATE operation is, by the name of the step, and what it needs to go on."""

    step: str
    state: Mapping[str, Json]

    def encode(self) -> bytes:
        """JSON bytes; raises InvalidInputError."""
        return _encode(self.decode, {"step": self.step, "state": dict(self.state)})

    @classmethod
    def decode(cls, raw: bytes) -> FateStep:
        """Parse :meth:`encode`; raises CorruptionError."""
        fields = _fields(raw, "a FATE step", "step", "state")
        return cls(_str(fields, "step"), _mapping(fields, "state"))


def encode_status(status: ReplicationStatus) -> bytes:
    """Bytes of a ``repl:`` or ``done:`` cell. Compare messages, never bytes."""
    return status.SerializeToString(deterministic=True)


def decode_status(raw: bytes) -> ReplicationStatus:
    """Parse :func:`encode_status`, unknown fields kept; raises CorruptionError."""
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


# ---- strict JSON


def _encode(decode: Callable[[bytes], object], fields: dict[str, Any]) -> bytes:
    try:
        raw = json.dumps(fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
        decode(raw)
    except (ValueError, TypeError, RecursionError, CorruptionError) as error:
        raise InvalidInputError(f"can't be written to the metadata table: {error}") from error
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _object(raw: bytes, what: str) -> dict[str, Any]:
    try:
        parsed = json.loads(raw.decode(), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
        json.dumps(parsed, ensure_ascii=False).encode()  # a lone surrogate can't be written again
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{what} is not JSON: {raw[:200]!r} ({error})") from error
    if not isinstance(parsed, dict):
        raise CorruptionError(f"{what} is not a JSON object: {raw[:200]!r}")
    return parsed


def _fields(raw: bytes, what: str, *names: str) -> dict[str, Any]:
    fields = _object(raw, what)
    if fields.keys() != set(names):
        raise CorruptionError(f"{what} has {', '.join(sorted(names))}, and nothing else: {raw[:200]!r}")
    return fields


def _typed(fields: Mapping[Any, Any], name: object, kind: type[_T]) -> _T:
    value = fields[name]
    if type(value) is not kind:
        raise CorruptionError(f"field {name} is {value!r}, not of type {kind.__name__}")
    return value


def _str(fields: Mapping[Any, Any], name: object) -> str:
    return _typed(fields, name, str)


def _int(fields: Mapping[Any, Any], name: object, least: int = 0) -> int:
    value = _typed(fields, name, int)
    if not least <= value <= INT_MAX:
        raise CorruptionError(f"field {name} is {value}, outside {least} to {INT_MAX}")
    return value


def _mapping(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return _typed(fields, name, dict)


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = dict(enumerate(_typed(fields, name, list)))
    return tuple(_str(texts, index) for index in texts)


def _offsets(fields: Mapping[str, Any], name: str) -> dict[str, int]:
    offsets = _mapping(fields, name)
    return {key: _int(offsets, key) for key in offsets}


def _base64(fields: Mapping[str, Any], name: str) -> bytes:
    text = _str(fields, name)
    try:
        raw = b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptionError(f"field {name} is not base64: {text!r}") from error
    if b64encode(raw).decode() != text:
        raise CorruptionError(f"field {name} is not canonical base64: {text!r}")
    return raw


def _stream(text: str) -> StreamKey:
    try:
        stream = StreamKey.decode(text)
        exact = stream.encode() == text
    except ValueError as error:
        raise CorruptionError(f"not a stream: {text!r} ({error})") from error
    if not exact:
        raise CorruptionError(f"not a stream: {text!r} (it would be written {stream.encode()!r})")
    return stream
