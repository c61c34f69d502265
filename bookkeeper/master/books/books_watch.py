"""The watch of the books' store: for how long it has taken no write, long before a call to it gives up.

Arrives: probes, one after the other. Leaves: :class:`Silence`, or None while the store answers. A call of the cycle
tries for half a minute, and the writes of tservers are not the master's; so a thread of its own asks. A new leader
measures anew. Any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError

POLL_MS = 500
"""ms between the end of a probe and the next one."""

SILENT_NS = 2_000_000_000
"""A store counts as silent after this time: a lock is kept for so long by no write of this cluster."""


class Silence(Struct, frozen=True):
    """Since when a store takes no write (boot clock), and the last words about it."""

    since_ns: int
    words: str


class BooksWatch:
    """The watch of one reign."""

    def __init__(self, probe: Callable[[], None], clock: Clock) -> None:
        """``probe``: see :class:`bookkeeper.metadata.metadata_table.Probed`."""
        self._probe = probe
        self._clock = clock
        self._began_ns: int | None = None
        """The start of the first probe without an answer in a row, or of the one under way."""
        self._words = ""

    def run_once(self) -> None:
        """One probe. Only one thread calls it."""
        if self._began_ns is None:
            self._began_ns = self._clock.boot_ns()
        try:
            self._probe()
        except BookkeeperError as error:
            self._words = error.message
        else:
            self._began_ns, self._words = None, ""

    def silence(self) -> Silence | None:
        """For how long no probe has succeeded; None while the store answers, or may still do so in time."""
        began_ns, words = self._began_ns, self._words
        lasts_ns = 0 if began_ns is None else self._clock.boot_ns() - began_ns
        if began_ns is None or lasts_ns < SILENT_NS:
            return None
        return Silence(began_ns, words or f"its store has not answered for {lasts_ns // 1_000_000_000} s")
