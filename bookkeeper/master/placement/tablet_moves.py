"""The moves of tablets from one live tserver to another, so that all have about as many.

Arrives: tablets and live sessions; reports of unloaded and loaded tablets. Leaves: moves to execute, a bounded number
at a time. After a crash the next leader assigns an unloaded tablet as a free one.

A move is *leaving* until its tablet is unloaded and has its next location in the books, then *arriving* until it is
loaded there. Moves start when the load is uneven, and go on until it is even: so a small difference moves nothing, and
a large one does not come back soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.placement.tablet_balance import Assignment, even_out, is_uneven

MOVES_MAX = 16
"""Tablets that move at once; each is away for the time of a small flush and a load."""


class TabletMoves(Struct):
    """The moves of one reign. Thread-safe; only the master's thread starts them."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _leaving: dict[bytes, Assignment] = field(default_factory=dict)
    _left: set[bytes] = field(default_factory=set)
    _arriving: dict[bytes, str] = field(default_factory=dict)
    _balancing: bool = False

    def request(self, move: Assignment) -> None:
        """Begin a move that is no balance: the present session can't lead the tablet, or is to lead it no more. Does
        nothing while the tablet moves.
        """
        with self._lock:
            row = move.tablet.row
            if row not in self._leaving and row not in self._arriving:
                self._leaving[row] = move

    def rows(self) -> set[bytes]:
        """The rows of all tablets that move."""
        with self._lock:
            return {*self._leaving, *self._arriving}

    def is_moving(self, row: bytes) -> bool:
        """Whether a tablet is leaving or arriving."""
        return row in self._leaving or row in self._arriving

    def is_leaving(self, row: bytes) -> bool:
        """Whether a tablet may be unloaded although its location still names the old tserver."""
        return row in self._leaving

    def let_go(self, rows: Iterable[bytes]) -> None:
        """Drop the moves of these tablets: an operation has claimed them."""
        with self._lock:
            for row in rows:
                self._leaving.pop(row, None)
                self._arriving.pop(row, None)

    def unloaded(self, row: bytes) -> None:
        """A tserver has unloaded the tablet."""
        with self._lock:
            if row in self._leaving:
                self._left.add(row)

    def loaded(self, row: bytes, session: str) -> bool:
        """A tserver serves the tablet; returns whether this ends a move."""
        with self._lock:
            if self._arriving.get(row) != session:
                return False
            del self._arriving[row]
            return True

    def take_unloaded(self, live: Collection[str]) -> list[Assignment]:
        """The moves with an unloaded tablet, to a live tserver of the two: their locations may be written now. A move
        without a live tserver is left out; its tablet is free.
        """
        with self._lock:
            done = [self._leaving.pop(row) for row in sorted(self._left) if row in self._leaving]
            self._left.clear()
            chosen = [move if move.session in live else replace(move, session=move.source or "") for move in done]
            found = [move for move in chosen if move.session in live]
            self._arriving.update((move.tablet.row, move.session) for move in found)
        return found

    def not_loaded(self, row: bytes, session: str) -> None:
        """The tserver that a tablet moves to can't serve it: the move is over."""
        with self._lock:
            if self._arriving.get(row) == session:
                del self._arriving[row]

    def drop_dead(self, tablets: TabletIndex, live: Collection[str]) -> None:
        """Drop the moves of removed tablets and dead tservers: the placement handles those."""
        with self._lock:
            for row in [r for r, move in self._leaving.items() if r not in tablets or move.source not in live]:
                del self._leaving[row]
            for row, session in list(self._arriving.items()):
                if session not in live or row not in tablets or tablets[row].session != session:
                    del self._arriving[row]

    def begin(
        self, tablets: TabletIndex, live: Collection[str], may_move: Callable[[TabletView], bool], settled: bool | None
    ) -> list[Assignment]:
        """Start moves up to the limit; returns those whose tablet is not unloaded yet. ``settled``: whether all other
        tablets are in place, None when it was not checked.
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
