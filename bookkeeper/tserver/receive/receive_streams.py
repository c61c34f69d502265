"""The open streams of other clusters: a token for each sender, and the last message of each.

A sender that meets an unknown token opens its stream again. A message whose token has expired is dead for ever, which
bounds how late a message can arrive (R20). Time is the boot clock: a suspended machine counts.

Each tablet decides on its own whether it applies a message (R19). A message waits here for the one in front of it only
because the tablets would decline it otherwise. It often comes first, because each has a connection of its own.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError, StreamExpiredError
from bookkeeper.model import Extent, StreamKey

IN_FRONT_WAIT_MS = 2_000
"""ms that a message waits until the one in front of it is handed over; then it goes on alone."""


class Turn(Struct):
    """A message that was handed to its tablets. ``extents``: the tablets of this server that got a slice of it.

    ``durable_to``: the offset up to which every tablet is durable; the sender's own fact when the message failed.
    """

    to_offset: int
    extents: Collection[Extent]
    durable_to: Future[int] = field(default_factory=lambda: Future())


class _OpenStream:
    """One session of a stream. Used under the lock of :class:`Streams`."""

    def __init__(self, stream: StreamKey, peer: str, now_ns: int) -> None:
        self.stream = stream
        self.peer = peer
        self._used_ns = now_ns
        self._last: Turn | None = None

    @property
    def used_ns(self) -> int:
        """The time of the last message."""
        return self._used_ns

    def use(self, now_ns: int) -> None:
        """A message came."""
        self._used_ns = now_ns

    def hand_over(self, turn: Turn) -> None:
        """A message went to its tablets."""
        self._last = turn

    def turn_at(self, offset: int) -> Turn | None:
        """The last message that went to its tablets, if it ends at ``offset``."""
        return self._last if self._last is not None and self._last.to_offset == offset else None


class StreamLimits(Struct, frozen=True):
    """Open streams of one tserver; a source file for one target is one stream."""

    streams_max: int = 20_000
    peer_streams_max: int = 5_000


STREAM_LIMITS = StreamLimits()


def refuse_more(open_count: int, peer_count: int, limits: StreamLimits) -> None:
    """Raise OverloadedError when no more streams may be open."""
    if peer_count >= limits.peer_streams_max:
        raise OverloadedError(
            f"{peer_count} streams of one peer are open here (tserver.peer_streams_max): back off, or ask another "
            "tserver"
        )
    if open_count >= limits.streams_max:
        raise OverloadedError(
            f"{open_count} streams are open here (tserver.streams_max): back off, or ask another tserver"
        )


def new_token() -> str:
    """A token that can't be guessed."""
    return secrets.token_hex(16)


class Streams:
    """Open receiving sessions, by token. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        idle_timeout_ms: int,
        limits: StreamLimits = STREAM_LIMITS,
        make_token: Callable[[], str] = new_token,
        waiting_max: int = 8,
    ) -> None:
        """``waiting_max``: threads that may wait for the message in front of theirs; others stay free to take it."""
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
        """A new session of a stream; others of the same stream stay. ``peer``: the session counts against the limit of
        this peer; None = the source. Raises OverloadedError.
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
            session.use(now_ns)
            self._open[token] = self._open.pop(token)

    def in_front(self, token: str, after: int) -> Turn | None:
        """The message that ends at ``after``, once it is handed over. None: it was not handed over in time, or too many
        messages wait already.
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
                session.hand_over(turn)
                self._changed.notify_all()

    def _turn_at(self, token: str, after: int) -> Turn | None:
        session = self._open.get(token)
        return None if session is None else session.turn_at(after)

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
            # R20: a message that comes after its stream was forgotten finds no session, and is refused.
            if now_ns - oldest.used_ns <= self._idle_timeout_ms * 1_000_000:
                return
            self._drop(token)
