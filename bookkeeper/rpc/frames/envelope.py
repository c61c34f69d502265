"""Messages: a call, its answer or its refusal, each in one frame (four bytes of length, then the message).

Both sides refuse frames above the size limit. Source: the Thrift strict binary protocol and framed transport.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from msgspec import Struct

from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError, InvalidInputError, NotFoundError
from bookkeeper.rpc.contract.faults import from_fault
from bookkeeper.rpc.contract.messages import Fault
from bookkeeper.rpc.contract.specs import I32, TEXT, FieldSpec, MethodSpec, optional, struct_of
from bookkeeper.rpc.contract.tables import SERVICES
from bookkeeper.rpc.frames.wire import Buffers, Reader, Writer, fields_reader, fields_writer

FRAME_HEADER = struct.Struct(">i")
NAME_BYTES_MAX = 128

_VERSION_1 = 0x80010000
_START = struct.Struct(">Ii")
_SEQUENCE = struct.Struct(">i")

HEAD_BYTES_MAX = _START.size + NAME_BYTES_MAX + _SEQUENCE.size
"""Most bytes of a message's head, for any method."""

_JOIN_BELOW_BYTES = 32 * 1024
_BUFFERS_MAX = 512
"""Well below the kernel's limit for one gathering send."""

_UNKNOWN_METHOD = 1
_INVALID_PROTOCOL = 9
_REFUSAL_FIELDS = (optional(1, "message", TEXT), optional(2, "kind", I32))


class MessageKind(IntEnum):
    """The kind of a message."""

    CALL = 1
    REPLY = 2
    EXCEPTION = 3
    ONEWAY = 4


class MessageStart(Struct, frozen=True):
    """The head of a message; ``body_at`` is the position of its struct in the frame."""

    method: str
    kind: MessageKind
    sequence: int
    body_at: int


class Answered(Struct, frozen=True):
    """The outcome of a call: a result, or an error to raise."""

    result: Any
    error: BookkeeperError | None


class MethodCodec:
    """Messages of one method."""

    def __init__(self, service: str, spec: MethodSpec) -> None:
        self.service = service
        self.spec = spec
        self.name = spec.name
        self.oneway = spec.oneway
        fault = optional(1, "fault", struct_of(Fault))
        success = () if spec.result is None else (optional(0, "success", spec.result),)
        self._returns = spec.result is not None
        self._write_arguments = _tuple_writer(spec.arguments)
        self._write_success = _tuple_writer(success)
        self._write_fault = _tuple_writer((fault,))
        self._read_arguments: Reader = fields_reader(spec.arguments, f"{service}.{spec.name}", _values)
        self._read_result: Reader = fields_reader((*success, fault), f"{service}.{spec.name}", dict)

    def call(self, sequence: int, arguments: Sequence[Any], frame_bytes_max: int) -> Buffers:
        """The frame of a call; raises InvalidInputError."""
        if len(arguments) != len(self.spec.arguments) or any(argument is None for argument in arguments):
            names = ", ".join(argument.name for argument in self.spec.arguments)
            raise InvalidInputError(f"{self.service}.{self.name} takes ({names}), none of them None")
        kind = MessageKind.ONEWAY if self.oneway else MessageKind.CALL
        return _frame(self.name, kind, sequence, self._write_arguments, tuple(arguments), frame_bytes_max)

    def read_call(self, frame: memoryview, start: MessageStart) -> tuple[Any, ...]:
        """The arguments of a call; raises CorruptionError."""
        arguments, _ = self._read_arguments(frame, start.body_at)
        for spec, value in zip(self.spec.arguments, arguments, strict=True):
            if value is None:
                raise CorruptionError(f"{spec.name} is missing in a call of {self.service}.{self.name}")
        return tuple(arguments)

    def success(self, sequence: int, result: Any, frame_bytes_max: int) -> Buffers:
        """The frame of an answer; raises InvalidInputError."""
        if self._returns and result is None:
            raise InvalidInputError(f"{self.service}.{self.name} returned nothing")
        values = (result,) if self._returns else ()
        return _frame(self.name, MessageKind.REPLY, sequence, self._write_success, values, frame_bytes_max)

    def fault(self, sequence: int, fault: Fault, frame_bytes_max: int) -> Buffers:
        """The frame of an answer with an error."""
        return _frame(self.name, MessageKind.REPLY, sequence, self._write_fault, (fault,), frame_bytes_max)

    def read_answer(self, frame: memoryview, sequence: int) -> Answered:
        """The outcome of a call; raises CorruptionError when the frame is no answer to it."""
        start = read_start(frame)
        if start.sequence != sequence or start.method != self.name:
            raise CorruptionError(f"an answer to {start.method} {start.sequence}, expected {self.name} {sequence}")
        if start.kind is MessageKind.EXCEPTION:
            return Answered(None, _read_refusal(frame, start, self))
        if start.kind is not MessageKind.REPLY:
            raise CorruptionError(f"a {start.kind.name} in place of an answer to {self.name}")
        result, _ = self._read_result(frame, start.body_at)
        if result["fault"] is not None:
            return Answered(None, from_fault(result["fault"]))
        if self._returns and result["success"] is None:
            raise CorruptionError(f"the answer to {self.name} holds neither a result nor a fault")
        return Answered(result.get("success"), None)


@functools.cache
def method_codec(service: str, method: str) -> MethodCodec:
    """The codec of a method; raises NotFoundError."""
    methods = SERVICES.get(service, {})
    if method not in methods:
        raise NotFoundError(f"the contract has no method {service}.{method}")
    return MethodCodec(service, methods[method])


def unknown_method(start: MessageStart) -> Buffers:
    """The frame that refuses an unknown method, as Thrift does (TApplicationException)."""
    write = _tuple_writer(_REFUSAL_FIELDS)
    values = (f"no method {start.method} here", _UNKNOWN_METHOD)
    return _frame(start.method, MessageKind.EXCEPTION, start.sequence, write, values, 64 * 1024)


def foreign_protocol_answer(message: memoryview, text: str) -> bytes | None:
    """The refusal for a Thrift client of another protocol; None = the bytes are no call, or not all of its head."""
    try:
        start = read_start(message)
    except CorruptionError:
        return None
    write = _tuple_writer(_REFUSAL_FIELDS)
    values = (text, _INVALID_PROTOCOL)
    return b"".join(_frame(start.method, MessageKind.EXCEPTION, start.sequence, write, values, 64 * 1024))


def read_start(frame: memoryview) -> MessageStart:
    """The head of the message in a frame; raises CorruptionError."""
    if len(frame) < _START.size:
        raise CorruptionError(f"a frame of {len(frame)} bytes is too short for a message")
    head, name_bytes = _START.unpack_from(frame)
    name_end = _START.size + name_bytes
    if head & 0xFFFF0000 != _VERSION_1 or head & 0xFF not in MessageKind._value2member_map_:
        raise CorruptionError("a frame does not begin like a message of the strict binary protocol")
    if not 0 < name_bytes <= NAME_BYTES_MAX or name_end + _SEQUENCE.size > len(frame):
        raise CorruptionError("a message with an impossible method name")
    name = bytes(frame[_START.size : name_end]).decode("utf-8", "backslashreplace")
    sequence = _SEQUENCE.unpack_from(frame, name_end)[0]
    return MessageStart(name, MessageKind(head & 0xFF), sequence, name_end + _SEQUENCE.size)


def gather(buffers: Buffers) -> Buffers:
    """The same bytes in few buffers: joins small buffers and does not copy large ones."""
    large = [index for index, buffer in enumerate(buffers) if len(buffer) >= _JOIN_BELOW_BYTES]
    if len(large) * 2 > _BUFFERS_MAX:
        return [b"".join(buffers)]
    gathered: Buffers = []
    begin = 0
    for index in large:
        if begin < index:
            gathered.append(b"".join(buffers[begin:index]))
        gathered.append(buffers[index])
        begin = index + 1
    if begin < len(buffers):
        gathered.append(b"".join(buffers[begin:]))
    return gathered


def _frame(
    name: str, kind: MessageKind, sequence: int, write: Writer, values: tuple[Any, ...], frame_bytes_max: int
) -> Buffers:
    raw_name = name.encode()
    out: Buffers = [b"", _START.pack(_VERSION_1 | kind, len(raw_name)), raw_name, _SEQUENCE.pack(sequence)]
    write(out, values)
    size = sum(map(len, out))
    if size > frame_bytes_max:
        raise InvalidInputError(
            f"a message of {name} has {size} bytes, more than {frame_bytes_max}; send less at once or raise "
            "rpc.frame_bytes_max on both sides",
            {"bytes": str(size)},
        )
    out[0] = FRAME_HEADER.pack(size)
    return gather(out)


def _read_refusal(frame: memoryview, start: MessageStart, codec: MethodCodec) -> BookkeeperError:
    refusal, _ = fields_reader(_REFUSAL_FIELDS, "refusal", dict)(frame, start.body_at)
    return IncompatibleError(f"{codec.service}.{codec.name} was refused: {refusal['message']}")


def _tuple_writer(fields: Sequence[FieldSpec]) -> Writer:
    return fields_writer(fields, [operator.itemgetter(index) for index in range(len(fields))])


def _values(members: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(members.values())
