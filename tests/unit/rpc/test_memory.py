"""Memory is taken when bytes have come, within a budget; a call is judged by its head."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import IncompatibleError, InvalidInputError, OverloadedError, UnauthorizedError
from bookkeeper.rpc import connection
from bookkeeper.rpc.contract.tables import SERVICES
from bookkeeper.rpc.dispatch import CallerState, Dispatcher, ServedService
from bookkeeper.rpc.frames.budget import Budget, MemoryLimits
from bookkeeper.rpc.frames.call_sizes import HELLO_BYTES_MAX, call_bytes_max
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, HEAD_BYTES_MAX, method_codec
from bookkeeper.rpc.frames.partial_frame import SCRATCH_BYTES, FrameBuffers, PartialFrame, grown_bytes
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust.admission import Admitted
from bookkeeper.security.secret import Kind, new_secret
from tests.support.faults import fault
from tests.support.rpc_peer import SERVER_HELLO, Echo, RawPeer, pooled, serving
from tests.support.time_limit import TimeLimit

MIB = 1 << 20
FRAME = 32 * MIB
LIMIT_S = 30


def frame_of(method: str, *arguments: object, service: str = "Replay") -> bytes:
    return b"".join(method_codec(service, method).call(1, arguments, 1 << 30))


def grown(work: Callable[[], None]) -> int:
    """How many bytes the memory of this process grew."""
    own = psutil.Process()
    before = own.memory_info().rss
    work()
    return int(own.memory_info().rss) - before


@contextmanager
def raw_peers(address: str, count: int) -> Iterator[list[RawPeer]]:
    with ExitStack() as closes:
        peers = [RawPeer(address) for _ in range(count)]
        for peer in peers:
            closes.callback(peer.close)
            peer.greet()
        yield peers


# ---- announced


def announce(begin: bytes) -> int:
    """The memory of forty connections that announce the largest frame."""
    with serving(Echo()) as server, raw_peers(server.address, 40) as peers, pooled() as pool:

        def work() -> None:
            for peer in peers:
                peer.send(struct.pack(">i", FRAME) + begin)
            for _ in range(40):
                pool.replay(server.address).warm()

        return grown(work)


@pytest.mark.parametrize("begin", [b"", frame_of("run", bytes(1000))[4:-1]])
def test_a_length_that_is_announced_costs_nothing(begin: bytes) -> None:
    assert announce(begin) < 40 * MIB, "a length that is only announced takes memory"


def test_without_its_rule_a_length_that_is_announced_is_paid_for() -> None:
    with (
        fault("memory-for-what-is-announced"),
        pytest.raises(AssertionError, match="a length that is only announced takes memory"),
    ):
        test_a_length_that_is_announced_costs_nothing(frame_of("run", bytes(1000))[4:-1])


@given(st.lists(st.integers(1, 300_000), max_size=30), st.booleans())
def test_a_frame_never_has_more_than_twice_what_has_come(chunks: list[int], keeps: bool) -> None:
    size = SCRATCH_BYTES + sum(chunks)
    budget = Budget(MemoryLimits(1 << 30, 1 << 30, 1 << 30))
    account, buffers = budget.account("s"), FrameBuffers(2, 1 << 26)
    if keeps:
        buffers.give_back(bytearray(4 * MIB))
    raw = (b"0123456789" * (size // 10 + 1))[:size]
    frame = PartialFrame(size, bytearray(raw[:3]), buffers, account)
    came = 3
    while frame.missing_bytes:
        target = frame.target(memoryview(b""))
        assert keeps or budget.counted_bytes <= max(SCRATCH_BYTES, 2 * came)
        count = min(len(target), chunks[came % len(chunks)] if chunks else 1000)
        target[:count] = raw[came : came + count]
        frame.advance(count)
        came += count
    assert frame.content() == raw
    frame.release()
    assert budget.counted_bytes == 0


def test_a_frame_grows_by_doubling() -> None:
    assert [grown_bytes(n, FRAME) for n in (1, SCRATCH_BYTES, MIB, FRAME)] == [
        SCRATCH_BYTES,
        2 * SCRATCH_BYTES,
        2 * MIB,
        FRAME,
    ]


# ---- the budget


Deed = tuple[int, int]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-60, 60)), max_size=60))
def test_no_limit_is_ever_passed_and_nothing_is_lost(deeds: list[Deed]) -> None:
    """Six connections, of three secrets and one without."""
    limits = MemoryLimits(50, 70, 110)
    budget = Budget(limits)
    accounts = [budget.account(secret) for secret in ("a", "a", "b", "b", "c", None)]
    for number, size in deeds:
        account = accounts[number]
        if size < 0:
            account.give_back(-size)
            continue
        before = [one.counted_bytes for one in accounts]
        try:
            account.take(size)
        except OverloadedError:
            assert [one.counted_bytes for one in accounts] == before
        held = [one.counted_bytes for one in accounts]
        assert max(held) <= limits.connection_bytes
        assert max(held[0] + held[1], held[2] + held[3]) <= limits.secret_bytes
        assert sum(held) == budget.counted_bytes <= limits.process_bytes
    for account in accounts:
        account.close()
        account.close()
    assert budget.counted_bytes == 0


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        (MemoryLimits(10, 99, 99), "rpc.frame_bytes_max"),
        (MemoryLimits(99, 10, 99), "rpc.secret_memory_bytes"),
        (MemoryLimits(99, 99, 10), "rpc.memory_bytes"),
    ],
)
def test_an_error_about_missing_memory_names_the_setting(limits: MemoryLimits, setting: str) -> None:
    account = Budget(limits).account("a")
    account.take(10)
    with pytest.raises(OverloadedError, match=rf"\({setting}\): back off"):
        account.take(1)


def wait_for_counted_bytes(server: RpcServer, pool: RpcPool, size: int) -> None:
    """Make small calls until the server's budget counts ``size`` bytes: the server has read what a peer sent before,
    if each byte wakes it.
    """
    limit = TimeLimit(LIMIT_S)
    while server._budget.counted_bytes < size:
        assert not limit.is_over(), f"the server did not read {size} bytes in {LIMIT_S} s"
        pool.replay(server.address).warm()


@contextmanager
def each_byte_wakes_the_server() -> Iterator[None]:
    """It may leave up to half a mebibyte of a frame in the socket else, until more of the frame is there."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(connection, "LOW_WATER_BYTES", 1)
        yield


def taken_in_time(peer: RawPeer, raw: bytes) -> bool:
    """Whether a call is made once another one's memory is given back: that is a moment behind its answer."""
    for _ in range(100):
        peer.send(raw)
        answer = peer.receive_answer("run")
        if answer.error is None:
            return bool(answer.result == bytes(900_000))
    return False


def test_a_frame_that_finds_no_memory_is_thrown_away_and_its_caller_told_to_back_off() -> None:
    with (
        each_byte_wakes_the_server(),
        serving(Echo(), frame_bytes_max=MIB, memory_bytes=MIB) as server,
        raw_peers(server.address, 2) as peers,
    ):
        first, second = peers
        raw = frame_of("run", bytes(900_000))
        first.send(raw[:800_000])
        with pooled() as pool:
            wait_for_counted_bytes(server, pool, 800_000)
            second.send(raw)
            error = second.receive_answer("run").error
            assert isinstance(error, OverloadedError), "a frame beyond the budget is taken"
            assert "rpc.memory_bytes" in error.message
            second.send_call("run", b"still here")
            assert second.receive_answer("run").result == b"still here"
            first.send(raw[800_000:])
            assert first.receive_answer("run").result == bytes(900_000)
            assert taken_in_time(second, raw)


def test_without_its_rule_a_budget_is_passed() -> None:
    with fault("budgets-are-words"), pytest.raises(AssertionError, match="a frame beyond the budget is taken"):
        test_a_frame_that_finds_no_memory_is_thrown_away_and_its_caller_told_to_back_off()


def test_a_connection_that_ends_in_the_middle_of_a_frame_gives_its_memory_back() -> None:
    with serving(Echo(), frame_bytes_max=MIB, memory_bytes=MIB) as server, pooled() as pool:
        raw = frame_of("run", bytes(900_000))
        for _ in range(5):
            with raw_peers(server.address, 1) as (peer,):
                peer.send(raw[:800_000])
                pool.replay(server.address).warm()
        with raw_peers(server.address, 1) as (peer,):
            assert taken_in_time(peer, raw)


def test_answers_that_nobody_reads_are_counted() -> None:
    echo = Echo()
    echo.on_run = lambda _: bytes(8 * MIB)
    with serving(echo, frame_bytes_max=16 * MIB, memory_bytes=32 * MIB) as server, ExitStack() as closes:
        lazy = [RawPeer(server.address, receive_buffer_bytes=4096) for _ in range(6)]
        for peer in lazy:
            closes.callback(peer.close)
            peer.greet()
            peer.send_call("run", b"")
        answers = [peer.receive_answer("run") for peer in lazy]
        told = [answer.error for answer in answers if answer.error is not None]
        assert 1 <= len(told) <= 3, "four answers of 8 MiB have room, others may find room when those are read"
        assert all(isinstance(error, OverloadedError) for error in told)


# ---- judged by the head


def admitted(kind: Kind) -> CallerState:
    secret = new_secret(kind, "west", "i-west", kind, 0)
    return CallerState("1.2.3.4:5", plain_hello(), Admitted("client", "", secret))


class Anything:
    """Has every method."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_: {}


def refusal(state: CallerState, service: str, method: str, body: bytes, size: int = 0) -> object:
    """The error that a call is answered with; with a ``size``, by its head alone."""
    dispatcher = Dispatcher(ServedService(service, Anything()), SERVER_HELLO, FRAME)
    head = struct.pack(">Ii", 0x80010001, len(method)) + method.encode() + struct.pack(">i", 1)
    if size:
        answer = dispatcher.judge_head(memoryview(head), size, state)
        if answer is None:
            return None
    else:
        answer = dispatcher.respond(memoryview(head + body), state)
    assert answer.buffers is not None
    frame = memoryview(b"".join(answer.buffers))[FRAME_HEADER.size :]
    return method_codec(service, method).read_answer(frame, 1).error


GARBAGE = b"\x0f\x00\x01\xff\xff\xff\xff\xff"


def test_a_caller_without_the_right_is_refused_whatever_the_arguments_are() -> None:
    for size in (0, 5 * MIB):
        for kind, service, method in (
            ("peer", "TServer", "write"),
            ("peer", "Master", "delete_table"),
            ("client", "TServer", "replicate"),
            ("client", "Replay", "run"),
        ):
            error = refusal(admitted(kind), service, method, GARBAGE, size)  # type: ignore[arg-type]
            assert isinstance(error, UnauthorizedError), "who may not call has its arguments parsed"
    assert isinstance(refusal(admitted("client"), "TServer", "write", GARBAGE), InvalidInputError)
    assert refusal(admitted("client"), "TServer", "write", b"", 5 * MIB) is None


def test_without_its_rule_arguments_are_parsed_for_anybody() -> None:
    with fault("rights-come-last"), pytest.raises(AssertionError, match="who may not call has its arguments parsed"):
        test_a_caller_without_the_right_is_refused_whatever_the_arguments_are()


def test_before_hello_only_a_small_hello_is_heard() -> None:
    silent = CallerState("1.2.3.4:5", None, Admitted("client", "", None))
    assert isinstance(refusal(silent, "TServer", "write", b"", 5 * MIB), IncompatibleError)
    assert isinstance(refusal(silent, "TServer", "hello", b"", HELLO_BYTES_MAX + 1), InvalidInputError)
    assert refusal(silent, "TServer", "hello", b"", HELLO_BYTES_MAX) is None


def test_a_call_that_carries_no_records_stays_small() -> None:
    assert isinstance(refusal(admitted("client"), "Master", "locate", b"", 5 * MIB), InvalidInputError)
    assert refusal(admitted("client"), "Master", "locate", b"", 2 * MIB) is None
    assert call_bytes_max("Master", "locate", SCRATCH_BYTES) == SCRATCH_BYTES


@pytest.mark.parametrize("service", ["Master", "TServer", "Replay"])
def test_the_head_of_every_call_is_judged_before_its_arguments_come(service: str) -> None:
    assert all(len(name) <= HEAD_BYTES_MAX - 12 for name in SERVICES[service])


def test_a_large_call_that_is_refused_is_not_held() -> None:
    """It is thrown away as it comes, and answered then; the connection goes on."""
    with serving(Echo()) as server, raw_peers(server.address, 1) as (peer,):
        raw = struct.pack(">i", FRAME) + frame_of("warm")[4:-1]

        def work() -> None:
            peer.send(raw + bytes(FRAME + 4 - len(raw)))
            error = peer.receive_answer("warm").error
            assert isinstance(error, InvalidInputError)
            assert f"a call of warm has {FRAME} bytes, at most" in error.message

        bytes(FRAME)
        assert grown(work) < 48 * MIB, "the sent bytes are in memory, not the received ones"
        peer.send_call("run", b"on")
        assert peer.receive_answer("run").result == b"on"
