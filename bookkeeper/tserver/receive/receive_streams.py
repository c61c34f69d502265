"""Receiving sessions of streams: tokens that a sender gets, and loses when it is idle for too long.

Arrives: the streams that other clusters open, and the tokens that their messages carry. Leaves: a verdict, and for a
message that was sent before the one in front of it was answered, that one. Survives a crash: nothing; a sender that
meets an unknown token opens its stream again. A message whose token has expired is dead for ever, which bounds how late
one can arrive (rule R20). Time is the boot clock: a suspended machine counts.

Whether a message may be applied is judged by each tablet and nowhere else (R19). To wait here for the one in front of
it only spares a message that would be declined, for it often comes first: the two are on connections of their own.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError, StreamExpiredError
from bookkeeper.model import Extent, StreamKey

IN_FRONT_WAIT_MS = 2_000
"""A message waits so long for the one in front of it to be handed over, then it goes on alone."""


@dataclass(slots=True)
class Turn:
    """A message that was handed to the tablets. ``extents``: those of this server that may have it first now.

    ``proven``: up to there everything is durable at every tablet, once that is known; what the sender said when the
    message failed.
    """

    to_offset: int
    extents: Collection[Extent]
    proven: Future[int] = field(default_factory=lambda: Future())


@dataclass(slots=True)
class _OpenStream:
    stream: StreamKey
    peer: str
    used_ns: int
    last: Turn | None = None


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Open streams of one tserver; a source file for one target is one stream."""

    streams_max: int = 20_000
    peer_streams_max: int = 5_000


def refuse_more(open_count: int, peer_count: int, limits: StreamLimits) -> None:
    """Raise OverloadedError when so many streams are open that no other one may be."""
    if peer_count >= limits.peer_streams_max:
        raise OverloadedError(
            f"{peer_count} streams of one peer are open here (tserver.peer_streams_max): back off, or ask another "
            "tserver"
        )
    if open_count >= limits.streams_max:
        raise OverloadedError(
            f"{open_count} streams are open here (tserver.streams_max): back off, or ask another tserver"
        )


def is_expired(used_ns: int, now_ns: int, idle_timeout_ms: int) -> bool:
    """Rule R20: idle for longer than the timeout."""
    return now_ns - used_ns > idle_timeout_ms * 1_000_000


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_hex(16)


class Streams:
    """Open receiving sessions, by token. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        idle_timeout_ms: int,
        limits: StreamLimits = StreamLimits(),
        make_token: Callable[[], str] = new_token,
        waiting_max: int = 8,
    ) -> None:
        """``waiting_max``: threads that may wait for the message in front of theirs, fewer than may take that one."""
        self._clock = clock
        self._idle_timeout_ms = idle_timeout_ms
        self._limits = limits
        self._make_token = make_token
        self._waiting_max = waiting_max
        self._waiting = 0
        self._changed = threading.Condition()
        self._open: dict[str, _OpenStream] = {}
        """In order of last use."""
        self._by_peer: Counter[str] = Counter()

    def open(self, stream: StreamKey, peer: str | None = None) -> str:
        """A new session of a stream; others of the same stream stay. ``peer``: who has its place; None = its source.
        Raises OverloadedError.
        """
        with self._changed:
            now_ns = self._clock.boot_ns()
            self._expire(now_ns)
            peer = peer or stream.source_instance_id
            refuse_more(len(self._open), self._by_peer[peer], self._limits)
            token = self._make_token()
            self._open[token] = _OpenStream(stream, peer, now_ns)
            self._by_peer[peer] += 1
            return token

    def close(self, token: str) -> None:
        """End a session, if there is one."""
        with self._changed:
            self._drop(token)

    def _drop(self, token: str) -> None:
        session = self._open.pop(token, None)
        if session is not None:
            self._by_peer[session.peer] -= 1
            if not self._by_peer[session.peer]:
                del self._by_peer[session.peer]

    def check(self, token: str, stream: StreamKey) -> None:
        """A message of ``stream`` came with ``token``. Raises StreamExpiredError."""
        with self._changed:
            now_ns = self._clock.boot_ns()
            self._expire(now_ns)
            session = self._open.get(token)
            if session is None or session.stream != stream:
                self._drop(token)
                raise StreamExpiredError(f"no open stream for {stream.file} has this token (any more): open it again")
            session.used_ns = now_ns
            self._open[token] = self._open.pop(token)

    def in_front(self, token: str, after: int) -> Turn | None:
        """The message that ends at ``after``, once it is handed over. None: it was not in time, or too many others wait
        already.
        """
        with self._changed:
            if self._turn_at(token, after) is None and self._waiting < self._waiting_max:
                self._waiting += 1
                try:
                    self._changed.wait_for(lambda: self._turn_at(token, after), IN_FRONT_WAIT_MS / 1000)
                finally:
                    self._waiting -= 1
            return self._turn_at(token, after)

    def hand_over(self, token: str, turn: Turn) -> None:
        """A message went to its tablets: the next one may."""
        with self._changed:
            session = self._open.get(token)
            if session is not None:
                session.last = turn
                self._changed.notify_all()

    def _turn_at(self, token: str, after: int) -> Turn | None:
        session = self._open.get(token)
        turn = None if session is None else session.last
        return turn if turn is not None and turn.to_offset == after else None

    def forget(self, streams: Collection[StreamKey]) -> None:
        """End every session of these streams."""
        with self._changed:
            for token in [token for token, session in self._open.items() if session.stream in streams]:
                self._drop(token)

    def __len__(self) -> int:
        return len(self._open)

    def _expire(self, now_ns: int) -> None:
        while self._open:
            token, oldest = next(iter(self._open.items()))
            if not is_expired(oldest.used_ns, now_ns, self._idle_timeout_ms):
                return
            self._drop(token)
