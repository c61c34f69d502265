"""R20: a token that was idle for too long is dead for ever; nothing is unbounded."""

from __future__ import annotations

import itertools
import threading

import pytest

from bookkeeper.errors import OverloadedError, StreamExpiredError
from bookkeeper.model import StreamKey
from bookkeeper.tserver.receive.receive_streams import StreamLimits, Streams
from tests.support.must_raise import must_raise

STREAM = StreamKey("east", "1.wal", "7", "1", 1)
OTHER = StreamKey("east", "2.wal", "7", "1", 1)
IDLE_MS = 1_000


class HandClock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.now_ms += int(timeout_ms)
        return event.is_set()


def streams(clock: HandClock, streams_max: int = 100, peer_max: int = 100) -> Streams:
    numbers = itertools.count()
    return Streams(clock, IDLE_MS, StreamLimits(streams_max, peer_max), lambda: f"token{next(numbers)}")


def test_r20_an_idle_token_is_dead_for_ever() -> None:
    clock = HandClock()
    opened = streams(clock)
    token = opened.open(STREAM)
    clock.now_ms = IDLE_MS + 1
    for _ in range(2):
        with must_raise(StreamExpiredError, "R20: an expired token is taken"):
            opened.check(token, STREAM)


def test_a_token_in_use_stays() -> None:
    clock = HandClock()
    opened = streams(clock)
    token = opened.open(STREAM)
    for _ in range(5):
        clock.now_ms += IDLE_MS
        opened.check(token, STREAM)


def test_a_token_is_good_for_its_own_stream_only() -> None:
    opened = streams(HandClock())
    token = opened.open(STREAM)
    with pytest.raises(StreamExpiredError):
        opened.check(token, OTHER)
    with pytest.raises(StreamExpiredError):
        opened.check("guess", STREAM)


def test_a_stream_may_have_several_sessions_and_forgetting_ends_them_all() -> None:
    opened = streams(HandClock())
    tokens = [opened.open(STREAM), opened.open(STREAM)]
    kept = opened.open(OTHER)
    opened.forget({STREAM})
    for token in tokens:
        with pytest.raises(StreamExpiredError):
            opened.check(token, STREAM)
    opened.check(kept, OTHER)


def test_a_peer_has_its_own_bound_and_others_find_places() -> None:
    clock = HandClock()
    opened = streams(clock, streams_max=5, peer_max=2)
    first, second = opened.open(STREAM, "north"), opened.open(OTHER, "north")
    with pytest.raises(OverloadedError, match=r"2 streams of one peer are open here \(tserver\.peer_streams_max\)"):
        opened.open(STREAM, "north")
    south = [opened.open(STREAM, "south") for _ in range(2)]
    opened.close(first)
    opened.close(first)
    opened.check(second, OTHER)
    opened.open(STREAM, "north")
    opened.open(STREAM)
    with pytest.raises(OverloadedError, match=r"tserver\.streams_max"):
        opened.open(STREAM, "west")
    with pytest.raises(StreamExpiredError):
        opened.check(south[0], OTHER)
    opened.forget({STREAM, OTHER})
    assert len(opened) == 0
    assert [opened.open(STREAM, "north") for _ in range(2)]


def test_open_streams_are_bounded_and_expired_ones_make_room() -> None:
    clock = HandClock()
    opened = streams(clock, streams_max=2)
    opened.open(STREAM)
    opened.open(OTHER)
    with pytest.raises(OverloadedError):
        opened.open(STREAM)
    clock.now_ms = IDLE_MS + 1
    opened.open(STREAM)
    assert len(opened) == 1
