"""The watch of the books' store: silent from the first probe without an answer on, until one succeeds."""

from __future__ import annotations

from bookkeeper.errors import UnavailableError
from bookkeeper.master.books.books_watch import BooksWatch, Silence
from tests.support.jumping_clock import StandingClock

S = 1_000_000_000


class Store:
    """A store whose probe takes a time, and fails while it has a reason to."""

    def __init__(self) -> None:
        self.clock = StandingClock(5 * S)
        self.watch = BooksWatch(self.probe, self.clock)
        self.reason = ""
        self.takes_ns = 0
        self.during: Silence | None = None

    def probe(self) -> None:
        self.clock.now_ns += self.takes_ns
        self.during = self.watch.silence()
        if self.reason:
            raise UnavailableError(self.reason)


def test_a_store_that_refuses_is_silent_after_two_seconds_and_not_after_one() -> None:
    store = Store()
    store.watch.run_once()
    assert store.watch.silence() is None
    store.reason = "process 7 keeps it locked"
    store.takes_ns = S
    store.watch.run_once()
    assert store.watch.silence() is None, "a transaction of this cluster may keep it for so long"
    store.watch.run_once()
    assert store.watch.silence() == Silence(5 * S, "process 7 keeps it locked")
    store.reason = ""
    store.watch.run_once()
    assert store.watch.silence() is None


def test_a_store_that_hangs_is_silent_before_its_call_ends() -> None:
    store = Store()
    store.takes_ns = 3 * S
    store.watch.run_once()
    assert store.during == Silence(5 * S, "its store has not answered for 3 s")
    assert store.watch.silence() is None, "it has answered at last"
