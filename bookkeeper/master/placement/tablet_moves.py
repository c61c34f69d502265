"""Tablets on their way from one live tserver to another, so that all have about as many.

Arrives: tablets and live sessions; news of tablets that were let go, or loaded. Leaves: moves to carry out, a bounded
number at a time. Survives a crash: nothing; a tablet that was let go is assigned anew by the next leader.

A move is *leaving* until its tablet was let go and has its next location in the books, then *arriving* until it is
loaded there. Moves begin when tablets are spread unevenly and go on until they are even, so that a small difference
moves nothing and a large one does not come back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.placement.tablet_balance import Assignment, even_out, is_uneven

MOVES_MAX = 16
"""Tablets that move at once; each is away for the time of a small flush and a load."""


@dataclass(slots=True)
class TabletMoves:
    """The moves of one reign. Thread-safe; they are begun by the master's thread alone."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _leaving: dict[bytes, Assignment] = field(default_factory=dict)
    _left: set[bytes] = field(default_factory=set)
    _arriving: dict[bytes, str] = field(default_factory=dict)
    _balancing: bool = False

    def is_moving(self, row: bytes) -> bool:
        """Whether a tablet is leaving or arriving."""
        return row in self._leaving or row in self._arriving

    def is_leaving(self, row: bytes) -> bool:
        """Whether a tablet is not where its location says, because it moves."""
        return row in self._leaving

    def let_go(self, rows: Iterable[bytes]) -> None:
        """These tablets do not move: an operation has claimed them."""
        with self._lock:
            for row in rows:
                self._leaving.pop(row, None)
                self._arriving.pop(row, None)

    def unloaded(self, row: bytes) -> None:
        """A tserver serves the tablet no longer."""
        with self._lock:
            if row in self._leaving:
                self._left.add(row)

    def loaded(self, row: bytes, session: str) -> bool:
        """A tserver serves the tablet; whether a move has ended by that."""
        with self._lock:
            if self._arriving.get(row) != session:
                return False
            del self._arriving[row]
            return True

    def take_left(self, live: Collection[str]) -> list[Assignment]:
        """Moves whose tablet was let go: its location may be written now, to a live tserver of the two; where neither
        lives, the tablet is free.
        """
        with self._lock:
            done = [self._leaving.pop(row) for row in sorted(self._left) if row in self._leaving]
            self._left.clear()
            chosen = [move if move.session in live else replace(move, session=move.source or "") for move in done]
            found = [move for move in chosen if move.session in live]
            self._arriving.update((move.tablet.row, move.session) for move in found)
        return found

    def forget_the_dead(self, tablets: TabletIndex, live: Collection[str]) -> None:
        """Moves of tablets that are no more, or of tservers that live no more, are over: placing deals with those."""
        with self._lock:
            for row in [r for r, move in self._leaving.items() if r not in tablets or move.source not in live]:
                del self._leaving[row]
            for row, session in list(self._arriving.items()):
                if session not in live or row not in tablets or tablets[row].session != session:
                    del self._arriving[row]

    def begin(
        self, tablets: TabletIndex, live: Collection[str], may_move: Callable[[TabletView], bool], settled: bool | None
    ) -> list[Assignment]:
        """Begin as many moves as there is room for; returns all whose tablets are still to be let go. ``settled``:
        whether all other tablets are where they belong, None when nobody has looked.
        """
        with self._lock:
            if settled is not None:
                self._balancing = settled and (self._balancing or is_uneven(tablets, live))
            room = MOVES_MAX - len(self._leaving) - len(self._arriving)
            if self._balancing and room > 0:
                found = even_out(tablets, live, room, self._leaving, may_move)
                self._leaving.update((move.tablet.row, move) for move in found)
                self._balancing = bool(found or self._leaving or self._arriving)
            return [move for row, move in self._leaving.items() if row not in self._left]
