"""Placing tablets: who holds which, written as a cell first and ordered by a call afterwards.

Arrives: tablets of the latest snapshot, sessions, what tservers say they hold. Leaves: `location:` cells at ranks of
this reign, orders to load and unload. Survives a crash: the cells. A new leader writes every location again, at its own
rank, before it orders anything: a tserver that gets an order of a deposed leader finds another session there and
refuses. It then asks every live tserver what it holds, and only then lets a tablet be loaded that another one might
have got from that deposed leader a moment ago.

Tablets that an operation has claimed (a split, a merge) are left alone until it is done with them: no location, no
order. :meth:`Placement.let_go` is the moment from which that holds. Sources: design section 5; books.md R7, R15.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bookkeeper.errors import BookkeeperError, CorruptionError, TransientError
from bookkeeper.master.lanes import Lanes
from bookkeeper.master.leader import Reign
from bookkeeper.master.recovery import RESTORE
from bookkeeper.master.snapshot import TabletView
from bookkeeper.master.tablet_balance import Assignment, assign_free, even_out, misplaced
from bookkeeper.master.tservers import TServers
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import MetadataTable, Row, RowPut
from bookkeeper.metadata.values import Location
from bookkeeper.rpc.messages import TabletAssignment

LOG = logging.getLogger(__name__)

MOVES_MAX = 4
"""Tablets that move at once to even out the load; each is away for the time of a flush and a load."""


@dataclass(slots=True)
class Placement:
    """One reign's hold on tablets. ``place`` is called by the master's thread; lanes tell what came of the orders."""

    table: MetadataTable
    reign: Reign
    tservers: TServers
    lanes: Lanes
    changed: Callable[[], None]
    note_assigned: Callable[[str, bytes], None]
    claimed: Callable[[], Collection[bytes]] = tuple
    """Rows of the tablets that operations have claimed."""
    unrecoverable: Mapping[str, str] = field(default_factory=dict)
    """Logs of dead sessions that can't be sealed until a person helps, and why; fences stand beside them."""
    problems: dict[bytes, str] = field(default_factory=dict)
    """Rows of the tablets that can't be loaded until a person helps, and why; read by any thread."""
    _placing: threading.Lock = field(default_factory=threading.Lock)
    """Held while locations are written: what is claimed meanwhile may still be placed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ordered: set[tuple[str, bytes]] = field(default_factory=set)
    _held: dict[str, frozenset[bytes]] = field(default_factory=dict)
    _asking: set[str] = field(default_factory=set)
    _asserted: bool = False
    _checked: bool = False
    _leaving: dict[bytes, Assignment] = field(default_factory=dict)
    _left: set[bytes] = field(default_factory=set)

    def place(
        self, tablets: Mapping[bytes, TabletView], live: Mapping[str, str], unsealed: Collection[str]
    ) -> dict[bytes, TabletView]:
        """Assign what nobody holds, go on with moves, order what is missing. Returns the tablets that changed.

        Raises TransientError, LeaseLostError.
        """
        for row in dict(self.problems):
            if row not in tablets:
                self.problems.pop(row, None)
        with self._placing:
            claimed = self.claimed()
            return self._place({row: t for row, t in tablets.items() if row not in claimed}, live, unsealed)

    def let_go(self, rows: Collection[bytes]) -> None:
        """These rows are claimed, and nobody is on the way to place them when this returns. What tservers have said of
        them is forgotten: they are asked again when the operation is done.
        """
        with self._placing, self._lock:
            for session, held in self._held.items():
                self._held[session] = held - set(rows)
            for row in rows:
                self._leaving.pop(row, None)

    def _place(
        self, tablets: Mapping[bytes, TabletView], live: Mapping[str, str], unsealed: Collection[str]
    ) -> dict[bytes, TabletView]:
        changed: dict[bytes, TabletView] = {}
        if not self._asserted:
            self._write([Assignment(t, t.session) for t in tablets.values() if t.session in live and t.session], live)
        free = assign_free((self._released(t, unsealed) for t in tablets.values()), live, unsealed)
        changed.update(self._write(one_for_each_tablet([*self._finished_moves(live), *free]), live))
        present = {**tablets, **changed}
        if not self._asserted:
            self._asserted = True
            self._forget_answers()
        self._order(present.values(), live)
        self._begin_moves(present, live)
        self._ask(live)
        return changed

    def _released(self, tablet: TabletView, unsealed: Collection[str]) -> TabletView:
        """A tablet of a dead session that has a damaged log, as nobody's if that log has nothing of it; else that log
        is what keeps it away.
        """
        if tablet.session is None or tablet.session not in unsealed or not self.unrecoverable:
            return tablet
        logs = [log.uri for log in self.tservers.logs_of(tablet.session) if not log.sealed]
        if not all(log in self.unrecoverable for log in logs):
            return tablet
        row = self.table.get(tablet.row, ("log",))
        damaged = [] if row is None else [log for log in logs if uses_any(row, [log])]
        if not damaged:
            return replace(tablet, session=None, address=None)
        self.problems[tablet.row] = f"{self.unrecoverable[damaged[0]]}; {RESTORE}"
        return tablet

    def _write(self, assignments: Iterable[Assignment], live: Mapping[str, str]) -> dict[bytes, TabletView]:
        """Put locations at one rank of this reign, before any order is given."""
        chosen = list(assignments)
        puts = [RowPut(a.tablet.row, {keys.LOCATION: Location(a.session, live[a.session]).encode()}) for a in chosen]
        if puts:
            self.table.put(puts, self.reign.next_rank())
        for a in chosen:
            self.note_assigned(a.session, a.tablet.row)
        return {
            a.tablet.row: replace(a.tablet, session=a.session, address=live[a.session], parked_at=None) for a in chosen
        }

    # ---- what tservers hold

    def _forget_answers(self) -> None:
        with self._lock:
            self._held.clear()

    def _ask(self, live: Mapping[str, str]) -> None:
        """Ask each live tserver what it holds, in its lane; one question at a time."""
        with self._lock:
            for session in [session for session in self._held if session not in live]:
                del self._held[session]
            silent = [session for session in live if session not in self._asking]
            self._asking.update(silent)
        for session in silent:
            if not self.lanes.submit(session, self._question(session, live[session])):
                self._asking.discard(session)

    def _question(self, session: str, address: str) -> Callable[[], None]:
        def ask() -> None:
            try:
                extents = self.tservers.at(address).tablets()
                with self._lock:
                    first = session not in self._held
                    self._held[session] = frozenset(keys.tablet_row(e.table_id, e.end_row) for e in extents)
                if first:
                    self.changed()
            finally:
                with self._lock:
                    self._asking.discard(session)

        return ask

    def _answers(self) -> dict[str, frozenset[bytes]]:
        with self._lock:
            return dict(self._held)

    # ---- orders

    def _order(self, tablets: Iterable[TabletView], live: Mapping[str, str]) -> None:
        """Order loads of what is missing and unloads of what is held without right, by the latest answers."""
        held = {session: rows for session, rows in self._answers().items() if session in live}
        if not self._checked:
            if not may_load(live, held):
                return
            self._checked = True
            held = dict.fromkeys(live, frozenset())  # loads are ordered for all once: they also revive half-left ones
        missing, strays = misplaced((t for t in tablets if t.row not in self._leaving), held)
        by_row = {t.row: t for t in tablets} if strays else {}
        for tablet in missing:
            self._submit(tablet.session or "", tablet.row, self._load(tablet, live))
        for session, row in strays:
            if row in by_row and row not in self._leaving:
                self._submit(session, row, self._unload(by_row[row], session, live[session]))

    def _submit(self, session: str, row: bytes, job: Callable[[], None]) -> None:
        with self._lock:
            if (session, row) in self._ordered:
                return
            self._ordered.add((session, row))
        if not self.lanes.submit(session, job):
            self._settle(session, row)

    def _settle(self, session: str, row: bytes) -> None:
        with self._lock:
            self._ordered.discard((session, row))

    def _load(self, tablet: TabletView, live: Mapping[str, str]) -> Callable[[], None]:
        session = tablet.session or ""
        address = live[session]

        def load() -> None:
            try:
                self.reign.check()
                order = TabletAssignment(tablet.extent, tablet.directory, self.reign.epoch)
                self.tservers.at(address).load_tablet(order)
                with self._lock:
                    self._held[session] = self._held.get(session, frozenset()) | {tablet.row}
                self.problems.pop(tablet.row, None)
            except BookkeeperError as error:
                if isinstance(error, CorruptionError):
                    self.problems[tablet.row] = error.message
                LOG.warning("tablet %s is not loaded at %s yet: %s", tablet.extent, session, error.message)
            finally:
                self._settle(session, tablet.row)

        return load

    def _unload(self, tablet: TabletView, session: str, address: str) -> Callable[[], None]:
        def unload() -> None:
            try:
                self.reign.check()
                self.tservers.at(address).unload_tablet(tablet.extent, self.reign.epoch, False)
                with self._lock:
                    self._held[session] = self._held.get(session, frozenset()) - {tablet.row}
                    if tablet.row in self._leaving:
                        self._left.add(tablet.row)
                self.changed()
            except TransientError as error:
                LOG.warning("tablet %s is not unloaded at %s yet: %s", tablet.extent, session, error.message)
            finally:
                self._settle(session, tablet.row)

        return unload

    # ---- moves

    def _begin_moves(self, tablets: Mapping[bytes, TabletView], live: Mapping[str, str]) -> None:
        """Let tablets leave the busiest tserver once everything is where it belongs; repeat what failed."""
        held = self._answers()
        for row in [row for row, move in self._leaving.items() if row not in tablets or move.source not in live]:
            del self._leaving[row]
        settled = set(held) == set(live) and not any(misplaced(tablets.values(), held)) and not self._ordered
        if settled and not self._leaving:
            for move in even_out(tablets.values(), live, MOVES_MAX):
                self._leaving[move.tablet.row] = move
        for row, move in self._leaving.items():
            source = move.source or ""
            if row not in self._left:
                self._submit(source, row, self._unload(move.tablet, source, live[source]))

    def _finished_moves(self, live: Mapping[str, str]) -> list[Assignment]:
        """Moves whose tablet was let go: its location may be written now, to any live tserver; :func:`assign_free` sees
        to those for which none of the two lives.
        """
        with self._lock:
            done = [self._leaving.pop(row) for row in sorted(self._left) if row in self._leaving]
            self._left.clear()
        chosen = [move if move.session in live else replace(move, session=move.source or "") for move in done]
        return [move for move in chosen if move.session in live]


def uses_any(row: Row, logs: Collection[str]) -> bool:
    """Whether one of these logs may hold records of the tablet: before it is written to, its row says so (R12). The row
    was read when the logs were fenced, so what is not there yet is about nothing.
    """
    return any(keys.log_column(log) in row.cells for log in logs)


def one_for_each_tablet(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Rule R1: all of them are written at one rank, so the first for each tablet counts. A tablet has two when it was
    let go in a move and the tserver that held it has died since.
    """
    chosen: dict[bytes, Assignment] = {}
    for assignment in assignments:
        chosen.setdefault(assignment.tablet.row, assignment)
    return list(chosen.values())


def may_load(live: Mapping[str, str], held: Mapping[str, Collection[bytes]]) -> bool:
    """Rule R7, for tablets: before this reign's first orders every live tserver has said what it holds, after the
    locations were written. From then on nobody but this leader gives tablets away.
    """
    return all(session in held for session in live)
