"""The codec: it decodes its own frames, it is Thrift's, and it trusts nothing in a frame."""

from __future__ import annotations

import importlib
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError, InvalidInputError, NotFoundError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import (
    Fault,
    FileMark,
    Hello,
    ReplicaPlacement,
    ScanRequest,
    SegmentTransit,
    SourceBlock,
    TabletLocation,
    WriteBatch,
)
from bookkeeper.rpc.contract.specs import TypeSpec, WireType
from bookkeeper.rpc.contract.tables import STRUCTS
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, MessageKind, method_codec, read_start
from bookkeeper.rpc.frames.wire import LARGE_BYTES, Buffers, skip_value, struct_reader, struct_writer
from tests.support.faults import fault
from tests.support.thrift_contract import thriftpy2_contract

LIMIT = 1 << 20
PROTOCOL: Any = importlib.import_module("thriftpy2.protocol.binary").TBinaryProtocol
BUFFER: Any = importlib.import_module("thriftpy2.transport.memory").TMemoryBuffer

_SCALARS: dict[WireType, st.SearchStrategy[Any]] = {
    WireType.BOOL: st.booleans(),
    WireType.I32: st.integers(-(2**31), 2**31 - 1),
    WireType.I64: st.integers(-(2**63), 2**63 - 1),
    WireType.DOUBLE: st.floats(allow_nan=False),
}


def values(spec: TypeSpec) -> st.SearchStrategy[Any]:
    if spec.wire is WireType.STRING:
        return st.binary(max_size=20) if spec.binary else st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if spec.wire is WireType.STRUCT:
        assert spec.struct is not None
        return structs(spec.struct)
    if spec.wire is WireType.LIST:
        assert spec.element is not None
        return st.lists(values(spec.element), max_size=3).map(tuple)
    if spec.wire is WireType.MAP:
        assert spec.key is not None
        assert spec.element is not None
        return st.dictionaries(values(spec.key), values(spec.element), max_size=3)
    return _SCALARS[spec.wire]


def structs(cls: Any) -> st.SearchStrategy[Any]:
    fields = STRUCTS[cls]
    return st.builds(cls, **{f.name: values(f.type) if f.required else st.none() | values(f.type) for f in fields})


CLASSES = tuple(STRUCTS)
anything = st.sampled_from(CLASSES).flatmap(structs)


def written(value: Any) -> bytes:
    out: Buffers = []
    struct_writer(value.__class__)(out, value)
    return b"".join(out)


@given(anything)
def test_a_struct_reads_back(value: Any) -> None:
    raw = written(value)
    assert struct_reader(value.__class__)(memoryview(raw), 0) == (value, len(raw))


def _theirs(module: Any, value: Any) -> Any:
    """The same value in thriftpy2's own class."""
    if type(value) in STRUCTS:
        theirs = getattr(module, type(value).__name__)()
        for field in STRUCTS[type(value)]:
            setattr(theirs, field.name, _theirs(module, getattr(value, field.name)))
        return theirs
    if isinstance(value, tuple):
        return [_theirs(module, element) for element in value]
    return value


@settings(max_examples=60)
@given(anything)
def test_the_bytes_are_those_of_thrifts_own_protocol(value: Any) -> None:
    module = thriftpy2_contract()
    out = BUFFER()
    PROTOCOL(out).write_struct(_theirs(module, value))
    assert written(value) == out.getvalue()
    back = getattr(module, type(value).__name__)()
    PROTOCOL(BUFFER(written(value))).read_struct(back)
    assert vars(back) == vars(_theirs(module, value))


@settings(max_examples=200)
@given(anything, st.data())
def test_a_mangled_struct_is_refused_or_is_another_struct_but_nothing_else_happens(value: Any, data: Any) -> None:
    raw = bytearray(written(value))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = memoryview(raw)[: data.draw(st.integers(0, len(raw)))]
    try:
        back, end = struct_reader(value.__class__)(cut, 0)
    except CorruptionError:
        return
    assert isinstance(back, type(value))
    assert end <= len(cut)


@given(st.sampled_from(CLASSES), st.binary(max_size=200))
def test_garbage_is_refused(cls: Any, raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        struct_reader(cls)(memoryview(b"\x0b\x7f\x7f" + raw.replace(b"\x00", b"\x01")), 0)


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, -1, -(2**31)])
def test_an_announced_size_is_never_allocated(count: int) -> None:
    field = struct.pack(">bh", WireType.LIST, 1) + struct.pack(">bi", WireType.STRUCT, count)
    text = struct.pack(">bh", WireType.STRING, 1) + struct.pack(">i", count)
    padding = bytes(1000)
    tracemalloc.start()
    for raw, method in ((field, "assign_work"), (text, "wal_positions")):
        codec = method_codec("TServer", method)
        frame = memoryview(raw + padding)
        with pytest.raises(CorruptionError):
            codec._read_arguments(frame, 0)
        with pytest.raises(CorruptionError):
            skip_value(frame, 3, raw[0], 16)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_an_unknown_field_of_any_type_is_skipped() -> None:
    mark = FileMark("f", 7)
    unknown: list[tuple[WireType, bytes]] = [
        (WireType.BOOL, b"\x01"),
        (WireType.I16, bytes(2)),
        (WireType.DOUBLE, bytes(8)),
        (WireType.STRING, struct.pack(">i", 3) + b"abc"),
        (WireType.STRUCT, written(Hello(1, "i", "n", "r"))),
        (WireType.LIST, struct.pack(">bi", WireType.I32, 2) + bytes(8)),
        (WireType.SET, struct.pack(">bi", WireType.STRING, 1) + struct.pack(">i", 1) + b"x"),
        (WireType.MAP, struct.pack(">bbi", WireType.BOOL, WireType.I64, 1) + bytes(9)),
        (WireType.MAP, struct.pack(">bbi", 0, 0, 0)),
    ]
    extra = b"".join(struct.pack(">bh", wire, 100 + n) + raw for n, (wire, raw) in enumerate(unknown))
    assert struct_reader(FileMark)(memoryview(extra + written(mark)), 0)[0] == mark


def test_a_field_of_another_type_counts_as_absent() -> None:
    raw = struct.pack(">bhi", WireType.I32, 1, 5) + written(FileMark("f", 7))[:-1] + b"\x00"
    assert struct_reader(FileMark)(memoryview(raw), 0)[0] == FileMark("f", 7)
    with pytest.raises(CorruptionError, match="file is missing in FileMark"):
        struct_reader(FileMark)(memoryview(struct.pack(">bhi", WireType.I32, 1, 5) + b"\x00"), 0)


def test_nesting_is_bounded() -> None:
    deep = struct.pack(">bi", WireType.LIST, 1) * 100_000
    with pytest.raises(CorruptionError, match="nested"):
        skip_value(memoryview(deep), 0, WireType.LIST, 16)


@pytest.mark.parametrize(
    "value",
    [
        Extent(None, None, None),  # type: ignore[arg-type]
        FileMark("f", 2**63),
        FileMark("f", "7"),  # type: ignore[arg-type]
        FileMark("\ud800", 7),
        FileMark(b"f", 7),  # type: ignore[arg-type]
        WriteBatch(Extent("t", None, None), "text"),  # type: ignore[arg-type]
        TabletLocation(("t", None, None), None),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_sent_is_named(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        written(value)


def test_a_call_and_its_answer_read_back() -> None:
    codec = method_codec("TServer", "scan")
    request = ScanRequest(Extent("t", b"\xff", None), None, b"", (b"f",), (), None, 100)
    frame = b"".join(codec.call(7, (request,), LIMIT))
    (size,) = FRAME_HEADER.unpack_from(frame)
    assert size == len(frame) - 4
    start = read_start(memoryview(frame)[4:])
    assert (start.method, start.kind, start.sequence) == ("scan", MessageKind.CALL, 7)
    assert codec.read_call(memoryview(frame)[4:], start) == (request,)
    fault = Fault(True, "overloaded", "later", {"a": "b"})
    answered = codec.read_answer(memoryview(b"".join(codec.fault(7, fault, LIMIT)))[4:], 7)
    assert (type(answered.error).__name__, str(answered.error)) == ("OverloadedError", "later")
    with pytest.raises(CorruptionError):
        codec.read_answer(memoryview(b"".join(codec.fault(8, fault, LIMIT)))[4:], 7)


def test_large_fields_are_sent_without_a_copy() -> None:
    records = bytes(1 << 18)
    block = SourceBlock(1, 2, records, 2, b"a", b"b")
    out: Buffers = []
    struct_writer(SourceBlock)(out, block)
    assert any(isinstance(part, memoryview) and part.obj is records for part in out)


@pytest.mark.parametrize("arguments", [(), (1, 2), (None,)])
def test_a_call_with_other_arguments_is_refused_before_anything_is_sent(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInputError, match=r"TServer.scan takes \(request\)"):
        method_codec("TServer", "scan").call(1, arguments, LIMIT)


def test_a_frame_beyond_the_limit_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInputError, match=r"rpc\.frame_bytes_max"):
        method_codec("Replay", "run").call(1, (bytes(LIMIT),), LIMIT)


def test_a_method_or_an_answer_that_is_not_in_the_contract_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        method_codec("TServer", "drop")
    with pytest.raises(InvalidInputError, match="returned nothing"):
        method_codec("TServer", "scan").success(1, None, LIMIT)


@given(st.binary(max_size=100))
def test_the_head_of_a_message_is_checked(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_start(memoryview(raw))


@pytest.mark.parametrize("key", [StreamKey("i", "f", "s", "t", 1, ""), StreamKey("", "", "", "", -1, "\x00|é")])
def test_a_stream_key_travels_as_it_is(key: StreamKey) -> None:
    assert struct_reader(StreamKey)(memoryview(written(key)), 0)[0] == key


def _read_back(batch: WriteBatch) -> tuple[bytearray, WriteBatch]:
    out: Buffers = []
    struct_writer(WriteBatch)(out, batch)
    frame = bytearray(b"".join(out))
    found: WriteBatch = struct_reader(WriteBatch)(memoryview(frame), 0)[0]
    return frame, found


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1])
def test_records_stay_what_they_are_when_the_memory_of_their_frame_is_used_again(size: int) -> None:
    records = bytes(number % 250 + 1 for number in range(size))
    sent = WriteBatch(Extent("1", None, None), records, None)
    frame, found = _read_back(sent)
    assert found == sent
    assert memoryview(found.records).readonly
    frame[:] = bytes(len(frame))
    assert found == sent
    if size:
        with fault("records-are-lent"):
            frame, found = _read_back(sent)
            frame[:] = bytes(len(frame))
        assert found != sent


def test_content_of_a_segment_is_a_view_of_its_frame() -> None:
    place = ReplicaPlacement("host1", "p", "d")
    sent = SegmentTransit("1", "t", place, place, 7, "f", 0, b"content" * LARGE_BYTES)
    out: Buffers = []
    struct_writer(SegmentTransit)(out, sent)
    frame = bytearray(b"".join(out))
    found: SegmentTransit = struct_reader(SegmentTransit)(memoryview(frame), 0)[0]
    assert found == sent
    content: object = found.content
    assert isinstance(content, memoryview)
    assert content.readonly
    frame[:] = bytes(len(frame))
    assert not any(content[:7]), "the content was copied"
