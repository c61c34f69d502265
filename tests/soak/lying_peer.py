"""A peer that was trusted before and lies now: its answers are wrong, or garbage, behind a handshake that is right.

Arrives: a cluster that replicates to it. Leaves: the calls that it answered, each with what it did, and the count of
lies. The answers are those of :class:`_Master` and :class:`_TServer`; a part of them is changed as the calls of an
:class:`~tests.soak.fuzz.Attacker` are, or an error with a hostile text takes their place.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.config.sections import RpcSettings
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.faults import ERRORS_BY_CODE, INTERNAL_CODE
from bookkeeper.rpc.contract.messages import (
    PROTOCOL_VERSION,
    Fault,
    Hello,
    OfferAnswer,
    ReplicateRequest,
    ReplicateResult,
    RootQuestion,
    RootStanding,
    SegmentPart,
    SegmentsOffer,
)
from bookkeeper.rpc.contract.tables import PEER_METHODS
from bookkeeper.rpc.dispatch import HELLO, CallerState, Dispatcher, ServedService
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec, read_start
from bookkeeper.rpc.frames.partial_frame import Answer
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.security.access import Entrance
from bookkeeper.security.secret_store import SecretStore
from tests.soak.fuzz import Attacker, Names
from tests.support.thrift_peer import Contract

INSTANCE = "i-liar"
TABLE_ID = "7"
FRAME_BYTES = 32 << 20
TEXTS = ("", "no\x1b[2J\x1b[31m", "x" * 300_000, "\x00", "ü" * 2_000, "%s{}", "a\nb\r\nc")
DETAILS: Sequence[dict[str, str] | None] = (
    None,
    {},
    {"high_water": "-1"},
    {"high_water": "x"},
    {"high_water": str(1 << 70)},
    {"retry_ms": "nan"},
)
SILENT_IN = 200
"""One of so many lies is no answer at all. More of them, and a run would mostly wait for time-outs."""


@dataclass(slots=True)
class Lies:
    """What the liar does with each answer. Thread-safe. It is honest until ``share`` is above 0."""

    seed: int
    share: float = 0.0
    told: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rng: random.Random = field(init=False)
    _attacker: Attacker = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.seed}:liar")
        extent = Extent(TABLE_ID, None, None)
        names = Names([TABLE_ID], [extent], [extent], frozenset({INSTANCE, "1"}))
        self._attacker = Attacker(f"{self.seed}:answers", names, PEER_METHODS, may_harm=False)

    @property
    def count(self) -> int:
        """Lies so far."""
        return self.told.total()

    def instead_of(self, service: str, frame: bytes, answer: Answer, right: Any) -> Answer:
        """The answer that is sent to the call in ``frame``. ``right``: the result in ``answer``."""
        with self._lock:
            if answer.buffers is None or self._rng.random() >= self.share:
                return answer
            start = read_start(memoryview(frame))
            self.told[start.method] += 1
            if self._rng.randrange(SILENT_IN) == 0:
                return Answer(None)
            if self._rng.random() < 0.1:
                return Answer(answer.buffers, close=True)
            codec = method_codec(service, start.method)
            if self._rng.random() < 0.3:
                buffers = codec.fault(start.sequence, self._fault(), FRAME_BYTES)
            elif right is None or codec.spec.result is None:
                buffers = answer.buffers
            else:
                buffers = codec.success(
                    start.sequence, self._attacker.changed_result(right, codec.spec.result), FRAME_BYTES
                )
            message = self._attacker.broken(service, start.method, b"".join(buffers)[FRAME_HEADER.size :]).message
            return Answer([FRAME_HEADER.pack(len(message)) + message])

    def _fault(self) -> Fault:
        code = self._rng.choice([*sorted(ERRORS_BY_CODE), INTERNAL_CODE, "", "nothing"])
        return Fault(self._rng.random() < 0.5, code, self._rng.choice(TEXTS), self._rng.choice(DETAILS))


class LyingDispatcher(Dispatcher):
    """Answers as its handler does, and lets the lies take their part."""

    def __init__(self, service: ServedService, hello: Hello, lies: Lies) -> None:
        super().__init__(service, hello, FRAME_BYTES)
        self._lies = lies
        self._results = threading.local()

    def respond(self, frame: memoryview, state: CallerState) -> Answer:
        """See the class. ``hello`` is lied about as any call is."""
        call = bytes(frame)
        self._results.right = self._hello if read_start(frame).method == HELLO else None
        return self._lies.instead_of(self._service, call, super().respond(frame, state), self._results.right)

    def _call_limited(self, method: str, arguments: Sequence[Any]) -> Any:
        self._results.right = super()._call_limited(method, arguments)
        return self._results.right


class _Master(Contract):
    def __init__(self, peer: LyingPeer) -> None:
        self._peer = peer

    def leader(self) -> str:
        return self._peer.master.address

    def resolve_table(self, _name: str) -> str:
        return TABLE_ID

    def pick_tserver(self, _table_id: str) -> str:
        return self._peer.tserver.address

    def stream_done(self, _streams: Sequence[StreamKey]) -> None: ...

    def check_in(self, known: int, _number: int) -> int:
        return known

    def root_standings(self, _route: Sequence[str], questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        return tuple(RootStanding(owed=False, under_way=False, handed=()) for _ in questions)

    def roots_over(self, _route: Sequence[str], _logs: Sequence[RootLog]) -> None: ...


class _TServer(Contract):
    def __init__(self) -> None:
        self._tokens = itertools.count(1)

    def open_stream(self, _stream: StreamKey) -> str:
        return f"token-{next(self._tokens)}"

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        return ReplicateResult(request.to_offset, 1, 0)

    def offer_segments(self, offer: SegmentsOffer) -> OfferAnswer:
        return OfferAnswer("WANTED", "", tuple(0 for _ in offer.segments))

    def put_segment(self, _part: SegmentPart) -> None: ...

    def take_segments(self, _token: str, _stream: StreamKey) -> OfferAnswer:
        return OfferAnswer("TAKEN", "", ())


@dataclass(slots=True)
class LyingPeer:
    """Use as a context manager. ``home``: a directory of its own, for the secret that it gives away."""

    home: Path
    seed: int
    secret_file: Path = field(init=False)
    lies: Lies = field(init=False)
    master: RpcServer = field(init=False)
    tserver: RpcServer = field(init=False)

    def __enter__(self) -> Self:
        """Start to listen."""
        self.lies = Lies(self.seed)
        store = SecretStore(self.home)
        store.complete("liar", INSTANCE)
        self.secret_file = store.make_for_peer("anybody", "liar", INSTANCE, all_tables=True).path
        self.tserver = self._server("TServer", _TServer(), store)
        self.master = self._server("Master", _Master(self), store)
        return self

    def _server(self, service: str, handler: object, store: SecretStore) -> RpcServer:
        served, hello = ServedService(service, handler), Hello(PROTOCOL_VERSION, INSTANCE, "liar", service.lower())
        server = RpcServer(served, hello, RpcSettings(threads_max=8), entrance=Entrance(store.accepted))
        server._dispatcher = LyingDispatcher(served, hello, self.lies)  # the product has no place for lies
        server.start()
        return server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        for server in (self.master, self.tserver):
            server.stop(grace_ms=100)
