"""Retries of a message's slices whose tablets are away for a moment, so that the peer need not send the message again.

A tablet is away while its tserver was killed, while it moves, or while it loads. The other slices of the message are
durable by then, so a peer that sends the whole message again sends most of it for nothing. The message therefore waits
in its call until the tablets are back. Two bounds leave threads for other messages: the time that a message waits, and
the number of messages that wait at once. A message beyond either bound is answered with its error,
and the peer sends it again. A slice may come twice, as a message may: the tablet drops the repeat (R18).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, NoSpaceError, NotServingError, UnavailableError
from bookkeeper.tserver.receive.tablet_slice import Applied, FailedSlice

WAIT_MS = 5_000
"""ms that a message waits for its tablets: longer than a killed tserver's tablets are away, far less than a peer waits
for an answer (``replay.message_timeout_ms``).
"""

PAUSE_MS = 100
"""ms between two tries."""


Tried = tuple[list[Applied], list[FailedSlice]]
"""The outcomes of applied slices, and the failed slices."""


def is_away(error: BookkeeperError) -> bool:
    """Whether a tablet with this error may take the same slice in a moment. A full disk takes longer than that."""
    return isinstance(error, NotServingError | UnavailableError) and not isinstance(error, NoSpaceError)


def waits_for_tablets(failed: Sequence[FailedSlice]) -> bool:
    """Whether every failed slice is of a tablet that is away: any other error decides the answer at once."""
    return bool(failed) and all(is_away(one.error) for one in failed)


class SliceRetry:
    """Retries slices. Thread-safe. ``messages_max``: messages that wait at once; 0 lets none wait."""

    def __init__(self, clock: Clock, messages_max: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._free = messages_max
        self._closed = threading.Event()

    def close(self) -> None:
        """End all waiting: messages that wait are answered with their errors."""
        self._closed.set()

    def now_ns(self) -> int:
        """The boot clock, for ``began_ns`` of :meth:`until_taken`."""
        return self._clock.boot_ns()

    def until_taken(
        self, began_ns: int, failed: list[FailedSlice], again: Callable[[Sequence[FailedSlice]], Tried]
    ) -> Tried:
        """Try ``failed`` with ``again`` until every slice is applied, an error decides, or the message, which is here
        since ``began_ns``, has waited for :data:`WAIT_MS`.
        """
        results: list[Applied] = []
        if not waits_for_tablets(failed) or not self._may_wait():
            return results, failed
        try:
            while waits_for_tablets(failed) and not self._is_over(began_ns):
                found, failed = again(failed)
                results += found
        finally:
            with self._lock:
                self._free += 1
        return results, failed

    def _may_wait(self) -> bool:
        """Take one of the slots for waiting messages, if one is free."""
        with self._lock:
            if self._free < 1:
                return False
            self._free -= 1
            return True

    def _is_over(self, began_ns: int) -> bool:
        """Pause, and return whether no further try may begin."""
        if self._clock.boot_ns() >= began_ns + WAIT_MS * 1_000_000:
            return True
        return self._clock.wait(self._closed, PAUSE_MS)
