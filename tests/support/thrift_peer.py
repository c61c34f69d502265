"""A receiving cluster behind real sockets: a master and a tserver that speak the contract, over a peer in memory.

It keeps the promises of the protocol (``memory_peer``) and shows every call. Its ``trouble`` lets a test expire
streams, move away, hang, or answer as another cluster.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import (
    NO_TSERVER,
    NotFoundError,
    NotLeaderError,
    PermanentError,
    StreamExpiredError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.peers.protocol import Message, MessageBlock
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, ReplicateRequest, ReplicateResult, SourceBlock
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from tests.support.memory_peer import MemoryPeer


class Contract:
    """Answers every method that a subclass lacks with an error."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*_: object) -> object:
            raise PermanentError(f"{name} is not part of this test peer")

        return refuse

    def status(self) -> dict[str, str]:
        return {}


class _Master(Contract):
    def __init__(self, peer: ThriftPeer) -> None:
        self._peer = peer

    def leader(self) -> str:
        if not self._peer.leads:
            raise NotLeaderError("no master leads")
        return self._peer.master.address

    def pick_tserver(self, table_id: str) -> str:
        self._peer.miss("pick_tserver", table_id)
        if self._peer.lacks_tserver:
            raise UnavailableError("no tserver of this cluster is alive", {NO_TSERVER: "1"})
        self._peer.picked.append(table_id)
        return self._peer.tservers[next(self._peer.turn) % len(self._peer.tservers)].address


class _TServer(Contract):
    def __init__(self, peer: ThriftPeer) -> None:
        self._peer = peer

    def open_stream(self, stream: StreamKey) -> str:
        self._peer.miss("open_stream", stream.target_table_id)
        return self._peer.open_stream(stream)

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        self._peer.miss("replicate", request.stream.target_table_id)
        return self._peer.replicate(request)


def message_block(block: SourceBlock) -> MessageBlock:
    """A block of the wire as the sender had it."""
    return MessageBlock(
        block.first_offset,
        block.last_offset,
        block.records,
        block.record_count,
        block.min_row,
        block.max_row,
        block.block_origins,
    )


def nothing_special(_request: ReplicateRequest) -> None:
    """Take the request as it comes."""


@dataclass(slots=True)
class ThriftPeer:
    """Use as a context manager; ``quorum`` is where a sender starts. One or more tservers share what was received."""

    memory: MemoryPeer
    tserver_count: int = 1
    leads: bool = True
    before: Callable[[ReplicateRequest], None] = nothing_special
    master_port: int = 0
    tserver_port: int = 0
    """Of the first tserver; 0 = any."""
    picked: list[str] = field(default_factory=list)
    missing: str = ""
    """The call that does not find the table."""
    lacks_tserver: bool = False
    """Its master answers, and knows no tserver."""
    tokens: dict[str, StreamKey] = field(default_factory=dict)
    turn: itertools.count[int] = field(default_factory=itertools.count)
    master: RpcServer = field(init=False)
    tservers: list[RpcServer] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        """Start to listen."""
        settings = RpcSettings(threads_max=8)
        master, tserver = ServedService("Master", _Master(self)), ServedService("TServer", _TServer(self))
        self.master = RpcServer(master, self._hello("master"), settings, binding=Binding(port=self.master_port))
        ports = [self.tserver_port, *[0] * (self.tserver_count - 1)]
        self.tservers = [
            RpcServer(tserver, self._hello("tserver"), settings, binding=Binding(port=port)) for port in ports
        ]
        for server in (self.master, *self.tservers):
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        for server in (self.master, *self.tservers):
            server.stop(grace_ms=100)

    @property
    def quorum(self) -> str:
        """Address of the master."""
        return self.master.address

    def _hello(self, role: str) -> Hello:
        return Hello(PROTOCOL_VERSION, self.memory.instance_id, "test-peer", role)

    def miss(self, call: str, table_id: str) -> None:
        """Raise NotFoundError in the call that does not find the table."""
        if call == self.missing:
            raise NotFoundError(f"there is no table with id {table_id} here (any more)")

    def expire(self) -> None:
        """Forget every open stream."""
        with self._lock:
            self.tokens.clear()

    def open_stream(self, stream: StreamKey) -> str:
        """A new token."""
        with self._lock:
            self.memory.opened += 1
            token = f"token-{self.memory.opened}"
            self.tokens[token] = stream
            return token

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        """Take one message."""
        self.before(request)
        with self._lock:
            if self.tokens.get(request.stream_session) != request.stream:
                raise StreamExpiredError(f"no stream {request.stream_session}")
            acked = self.memory.apply(
                request.stream,
                Message(
                    request.provenance,
                    request.acked_offset,
                    request.after_offset,
                    request.to_offset,
                    tuple(map(message_block, request.blocks)),
                ),
            )
        return ReplicateResult(acked.offset, acked.applied, acked.dropped)
