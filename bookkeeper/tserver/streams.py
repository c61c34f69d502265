"""Receiving sessions of streams: tokens that a sender gets, and loses when it is idle for too long.

Arrives: the streams that other clusters open, and the tokens that their messages carry. Leaves: a verdict. Survives a
crash: nothing; a sender that meets an unknown token opens its stream again. A message whose token has expired is dead
for ever, which bounds how late one can arrive (rule R20). Time is the boot clock: a suspended machine counts.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError, StreamExpiredError
from bookkeeper.model import StreamKey

STREAMS_MAX = 20_000
"""Open streams of one tserver; a source file for one target is one stream."""


@dataclass(slots=True)
class _OpenStream:
    stream: StreamKey
    used_ns: int


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
        streams_max: int = STREAMS_MAX,
        make_token: Callable[[], str] = new_token,
    ) -> None:
        self._clock = clock
        self._idle_timeout_ms = idle_timeout_ms
        self._streams_max = streams_max
        self._make_token = make_token
        self._lock = threading.Lock()
        self._open: dict[str, _OpenStream] = {}
        """In order of last use."""

    def open(self, stream: StreamKey) -> str:
        """A new session of a stream; others of the same stream stay. Raises OverloadedError."""
        with self._lock:
            now_ns = self._clock.boot_ns()
            self._expire(now_ns)
            if len(self._open) >= self._streams_max:
                raise OverloadedError(f"{len(self._open)} streams are open here: back off, or ask another tserver")
            token = self._make_token()
            self._open[token] = _OpenStream(stream, now_ns)
            return token

    def check(self, token: str, stream: StreamKey) -> None:
        """A message of ``stream`` came with ``token``. Raises StreamExpiredError."""
        with self._lock:
            now_ns = self._clock.boot_ns()
            self._expire(now_ns)
            session = self._open.pop(token, None)
            if session is None or session.stream != stream:
                raise StreamExpiredError(f"no open stream for {stream.file} has this token (any more): open it again")
            session.used_ns = now_ns
            self._open[token] = session

    def forget(self, streams: Collection[StreamKey]) -> None:
        """End every session of these streams."""
        with self._lock:
            for token in [token for token, session in self._open.items() if session.stream in streams]:
                del self._open[token]

    def __len__(self) -> int:
        return len(self._open)

    def _expire(self, now_ns: int) -> None:
        while self._open:
            token, oldest = next(iter(self._open.items()))
            if not is_expired(oldest.used_ns, now_ns, self._idle_timeout_ms):
                return
            del self._open[token]
