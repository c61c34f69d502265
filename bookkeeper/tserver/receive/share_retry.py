"""Shares of a message whose tablet is away for a moment: they are tried again here, and the peer need not send again.

A tablet is away while its tserver was killed, while it moves, or while it loads. The other shares of the message are
durable by then, so a peer that sends the whole message again sends most of it for nothing. The message therefore waits
in its call until the tablets are back. Two bounds keep such messages from the threads that others need: the time that a
message waits, and the number of messages that wait at once. A message beyond either bound is answered with its error,
as one that waited in vain: the peer sends it again. A share may be applied twice as a message may (R18).

Arrives: shares that failed, and a way to try them again. Leaves: what was applied, and the shares that failed for good.
Nothing here survives a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, NoSpaceError, NotServingError, UnavailableError
from bookkeeper.tserver.receive.receiving_tablets import Located
from bookkeeper.tserver.tablets.tablet import ReceivedBlock
from bookkeeper.tserver.write.replicated_apply import Applied

WAIT_MS = 5_000
"""A message waits so long for its tablets: longer than a killed tserver's tablets are away, far less than a peer waits
for an answer (``replay.message_timeout_ms``).
"""

PAUSE_MS = 100
"""Between two tries."""


@dataclass(frozen=True, slots=True)
class FailedShare:
    """What one tablet was to get of a message, and why it did not take it."""

    tablet: Located
    blocks: tuple[ReceivedBlock, ...]
    error: BookkeeperError


Tried = tuple[list[Applied], list[FailedShare]]


def is_away(error: BookkeeperError) -> bool:
    """Whether a tablet that answers so may take the same share in a moment. A full disk takes longer than that."""
    return isinstance(error, NotServingError | UnavailableError) and not isinstance(error, NoSpaceError)


def waits_for_tablets(failed: Sequence[FailedShare]) -> bool:
    """Whether all that a message still lacks is tablets that are away: any other error decides its answer at once."""
    return bool(failed) and all(is_away(share.error) for share in failed)


class ShareRetry:
    """Thread-safe. ``messages_max``: messages that wait at once; 0 lets none wait."""

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
        self, began_ns: int, failed: list[FailedShare], again: Callable[[Sequence[FailedShare]], Tried]
    ) -> Tried:
        """Try ``failed`` with ``again`` until every share is applied, an error decides, or the message, which is here
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
        """Take one of the places of those that wait, if one is free."""
        with self._lock:
            if self._free < 1:
                return False
            self._free -= 1
            return True

    def _is_over(self, began_ns: int) -> bool:
        """Pause, and tell whether no further try may begin."""
        if self._clock.boot_ns() >= began_ns + WAIT_MS * 1_000_000:
            return True
        return self._clock.wait(self._closed, PAUSE_MS)
