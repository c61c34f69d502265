"""Random bytes on a connection, from the first one on: only the declared errors come out, memory is bounded."""

from __future__ import annotations

import logging
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, FileMark, Hello
from bookkeeper.rpc.contract.tables import SERVICES
from bookkeeper.rpc.dispatch import CallerState, Dispatcher, ServedService
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.admission import Admission, Admitted, HandshakeRefusedError
from bookkeeper.rpc.trust.handshake import HEAD, Kind, Message
from bookkeeper.security.access import Entrance
from bookkeeper.security.secret import new_secret
from tests.support.faults import fault
from tests.support.rpc_peer import greeting
from tests.unit.rpc.frames.test_wire import values

NAMES = ("Master", "TServer", "Replay")
OWN = new_secret("cluster", "west", "i-west", "processes", 0)
ENTRANCE = Entrance(lambda: {OWN.id: OWN})
WEST = Hello(PROTOCOL_VERSION, "i-west", "west", "master")
LIMIT = 1 << 20
METHODS = [(service, name) for service in NAMES for name in SERVICES[service]]


class Anything:
    """A handler with every method; it answers nothing, which is an error that is foreseen."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


DISPATCHERS = {service: Dispatcher(ServedService(service, Anything()), WEST, LIMIT) for service in NAMES}

GREETING = greeting(OWN, target="i-west")
STARTS = (
    b"",
    GREETING,
    GREETING + handshake.pack(Kind.PROOF, bytes(32)),
    greeting(target="i-west"),
    greeting(),
    greeting() + GREETING + handshake.pack(Kind.PROOF, bytes(32)),
    greeting(target="i-east"),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"\x00\x00\x00\x20\x80\x01\x00\x01\x00\x00\x00\x05hello",
)


@st.composite
def mangled(draw: st.DrawFn, raw: bytes) -> bytes:
    """Some bytes replaced by others, cut out, or put in."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        cut = draw(st.integers(0, 8))
        raw = raw[:at] + draw(st.binary(max_size=8)) + raw[at + cut :]
    return raw


@given(st.sampled_from(STARTS).flatmap(mangled), st.binary(max_size=100), st.lists(st.integers(1, 40), max_size=8))
def test_whatever_a_connection_begins_with_lets_nobody_in(start: bytes, rest: bytes, chunks: list[int]) -> None:
    admission, received, raw = Admission(ENTRANCE, WEST), bytearray(), start + rest
    sent = 0
    for size in [*chunks, len(raw)]:
        received += raw[:size]
        raw = raw[size:]
        said, is_over = _hear(admission, received)
        sent += len(said)
        if is_over:
            break
    assert admission.admitted is None
    instance, challenge = HEAD.size + 1 + len("i-west"), HEAD.size + 72
    limit = instance + challenge + HEAD.size + handshake.BODY_BYTES_MAX
    assert sent <= limit, "an instance, a challenge and a refusal at most"


def _hear(admission: Admission, received: bytearray) -> tuple[bytes, bool]:
    """The answer to the received bytes, and whether the handshake is over."""
    if not received:
        return b"", False
    refusal = admission.foreign_protocol(received)
    if refusal is not None:
        return refusal.answer, True
    try:
        return admission.feed(received), False
    except HandshakeRefusedError as refused:
        return refused.answer, True


@given(st.sampled_from(list(Kind)), st.integers(0, 65_535), st.binary(max_size=200))
def test_whatever_a_server_answers_a_caller_knows_what_it_is(kind: Kind, version: int, body: bytes) -> None:
    received = bytearray(handshake.pack(kind, body, version))
    message = handshake.take_message(received)
    assert message == Message(version, kind, body, handshake.pack(kind, body, version))
    assert not received
    for read in (handshake.read_challenge, handshake.read_refusal, handshake.read_greeting):
        try:
            found = read(message)
        except CorruptionError:
            continue
        if isinstance(found, tuple):
            assert all("\n" not in part for part in found[:2])


@given(st.binary(max_size=40))
def test_a_message_is_taken_whole_or_not_at_all(raw: bytes) -> None:
    received = bytearray(raw)
    try:
        taken = handshake.take_message(received)
    except CorruptionError:
        return
    assert taken is None or len(taken.raw) + len(received) == len(raw)
    assert taken is not None or received == raw


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, bytes]:
    """A service, and the frame of a call of it, or something like one."""
    service, name = draw(st.sampled_from(METHODS))
    codec = method_codec(service, name)
    arguments = tuple(draw(values(spec.type)) for spec in codec.spec.arguments)
    frame = b"".join(codec.call(1, arguments, LIMIT))[FRAME_HEADER.size :]
    return service, draw(mangled(frame))


def _respond(service: str, frame: bytes) -> None:
    state = CallerState("1.2.3.4:5", WEST, Admitted("master", "i-west", OWN))
    try:
        answer = DISPATCHERS[service].respond(memoryview(frame), state)
    except CorruptionError:
        return
    assert answer.buffers is None or sum(map(len, answer.buffers)) <= LIMIT


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@given(calls())
@settings(max_examples=150)
def test_a_mangled_call_is_a_call_or_is_refused_and_surprises_nobody(call: tuple[str, bytes]) -> None:
    heard, log = _Heard(), logging.getLogger("bookkeeper.rpc.dispatch")
    log.addHandler(heard)
    try:
        _respond(*call)
    finally:
        log.removeHandler(heard)
    assert not heard.said, "an error that nobody foresaw is logged with its traceback"


@given(st.sampled_from(NAMES), st.binary(max_size=200))
def test_a_frame_of_garbage_is_refused(service: str, raw: bytes) -> None:
    _respond(service, raw)


@given(st.sampled_from(METHODS), st.binary(max_size=100), st.data())
def test_a_mangled_answer_is_an_answer_or_is_refused(method: tuple[str, str], garbage: bytes, data: Any) -> None:
    codec = method_codec(*method)
    if codec.oneway:
        return
    result = None if codec.spec.result is None else data.draw(values(codec.spec.result))
    whole = b"".join(codec.success(1, result, LIMIT))[FRAME_HEADER.size :]
    for raw in (garbage, data.draw(mangled(whole))):
        try:
            codec.read_answer(memoryview(raw), 1)
        except CorruptionError:
            continue


@given(calls(), st.integers(0, 255))
@settings(max_examples=40)
def test_a_frame_costs_no_more_memory_than_its_bytes_allow(call: tuple[str, bytes], filler: int) -> None:
    service, frame = call
    frame += bytes([filler]) * 2_000
    tracemalloc.start()
    try:
        _respond(service, frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000 + 100 * len(frame)


def test_a_call_that_is_cut_anywhere_is_refused() -> None:
    marks = (FileMark("a.wal", 7), FileMark("b.wal", 8))
    whole = b"".join(method_codec("Master", "replication_pending").call(1, (marks, "t", ""), LIMIT))[
        FRAME_HEADER.size :
    ]
    for end in range(len(whole)):
        try:
            _respond("Master", whole[:end])
        except (IndexError, struct.error) as error:
            raise AssertionError(f"a call that is cut at byte {end} is read beyond its end") from error


def test_without_its_rule_a_length_is_believed() -> None:
    with fault("lengths-are-believed"), pytest.raises(AssertionError, match="is read beyond its end"):
        test_a_call_that_is_cut_anywhere_is_refused()
