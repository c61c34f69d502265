"""The placement of tablets: writes each location as a cell, and then orders the load by a call.

Arrives: tablets of the latest snapshot, or the few that changed since; sessions; reports of tservers. Leaves:
`location:` cells at ranks of this reign, orders to load and unload. A tablet with several replicas goes to a host that
holds it (``bookkeeper.master.replicas``), any other one to any tserver.

A new leader first writes again, at its own rank, the locations of all unclaimed tablets with a live tserver. The higher
rank hides a late location of the deposed leader, so a tserver refuses the deposed leader's order. The leader then reads
the tablets of every live tserver, and orders loads only after that, because the deposed leader may have just given a
tablet to another tserver.

A tablet that an operation has claimed (a split, a merge) gets no location and no new order from the return of
:meth:`Placement.let_go` until the operation is done with it. Rules: R7 and R15.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    NoSpaceError,
    PermanentError,
    RefusedError,
    TransientError,
    is_away,
)
from bookkeeper.master.books.tserver_recovery import RESTORE
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.placement.load_retries import LoadRetries
from bookkeeper.master.placement.return_wait import ReturnWait
from bookkeeper.master.placement.tablet_balance import Assignment, assign_free, is_free, misplaced
from bookkeeper.master.placement.tablet_moves import TabletMoves
from bookkeeper.master.placement.tablet_orders import TabletOrders
from bookkeeper.master.placement.tablet_reports import TabletReports
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.replicas.leader_choice import LeaderChoice
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import Location
from bookkeeper.model import Extent, HostIdentity
from bookkeeper.rpc.contract.messages import TabletAssignment

LOG = logging.getLogger(__name__)

LEADERLESS_MS = 60_000
"""A tablet without a host that may lead waits so long before an operator has to act: a killed process is started again
in less, and clients give up on a tablet that needs an operator.
"""


class ClusterState(Struct, frozen=True):
    """The input of placement besides tablets: live sessions with their addresses, dead sessions with an unsealed log,
    tables under deletion, the hosts of live sessions, and the rows of tablets that go on without their last holder's
    logs.
    """

    live: Mapping[str, str]
    unsealed: Collection[str]
    deleted: Collection[str] = ()
    hosts: Mapping[str, HostIdentity] = {}
    released: Collection[bytes] = ()


@dataclass(slots=True)
class Placement:
    """The placement of one reign. The master's thread places tablets; lanes report the results of orders."""

    stores: ReignStores
    calls: TServerCalls
    clock: Clock
    changed: Callable[[Collection[bytes]], None]
    """Requests the placement of these tablets; empty: of all."""
    note_assigned: Callable[[str, bytes], None]
    leaders: LeaderChoice
    """Chooses among the replicas of a tablet that has several."""
    claimed: Callable[[], Collection[bytes]] = tuple
    """Rows of the tablets that operations have claimed."""
    unrecoverable: Mapping[str, str] = field(default_factory=dict)
    """Logs of dead sessions that can't be sealed until an operator helps, and the reason; each has a fence."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Dead sessions with logs on a host that is away, and the reason: their tablets wait."""
    losses: Callable[[], Mapping[bytes, str]] = dict
    """Rows of tablets that are served without a log, and the reason."""
    problems: dict[bytes, str] = field(default_factory=dict)
    """Rows of the tablets that can't be loaded until an operator helps, and the reason; read by any thread."""
    moves: TabletMoves = field(default_factory=TabletMoves)
    reports: TabletReports = field(default_factory=TabletReports)
    return_wait: ReturnWait = field(init=False)
    _waits: dict[bytes, str] = field(default_factory=dict)
    """Rows of tablets that wait for a host that has one of their logs, and the reason."""
    _leaderless: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """Rows of the tablets without a host that may lead: since when (boot clock, ns), and the reason."""
    _orders: TabletOrders = field(init=False)
    _retries: LoadRetries = field(init=False)
    _placing: threading.Lock = field(default_factory=threading.Lock)
    """Locked while locations are written; a placement that has begun may still place a tablet that is claimed
    meanwhile.
    """
    _asserted: bool = False
    """Whether this reign has written every location again."""
    _checked: bool = False
    """Whether every live tserver has reported its tablets since."""

    def __post_init__(self) -> None:
        self._retries = LoadRetries(self.clock)
        self._orders = TabletOrders(self.calls.lanes, lambda row: keys.parse_tablet_row(row)[0])
        self.return_wait = ReturnWait(self.clock)

    @property
    def warnings(self) -> Mapping[bytes, str]:
        """Rows of served tablets with a problem, and of tablets that wait for a host or a leader or go on without a
        log, and why; read by any thread.
        """
        leaderless = {row: why for row, (_, why) in dict(self._leaderless).items()}
        return {**self.reports.warnings, **leaderless, **self._waits, **self.losses()}

    def place(self, tablets: TabletIndex, cluster: ClusterState) -> None:
        """Place all tablets: assign free ones, continue moves, order missing loads. Puts changed views into
        ``tablets``. Raises TransientError, LeaseLostError.
        """
        for row in (*dict(self.problems), *dict(self._waits)):
            if row not in tablets:
                self._clear_problem(row)
        for row in list(self._leaderless):
            if row not in tablets:
                self._leaderless.pop(row, None)
        with self._placing:
            self._place(tablets, cluster, self._may_place(cluster))

    def place_some(self, tablets: TabletIndex, rows: Collection[bytes], cluster: ClusterState) -> None:
        """Place a few tablets; the cost grows with these alone. Does nothing before this reign has placed all tablets
        and read all reports. Raises TransientError, LeaseLostError.
        """
        if not self._checked:
            return
        with self._placing:
            may_place = self._may_place(cluster)
            some = [tablets[row] for row in rows if row in tablets and may_place(tablets[row])]
            self._assign(tablets, some, cluster)
            served = self.reports.served_among(rows, cluster.live)
            self._order([tablets[tablet.row] for tablet in some], served, cluster.live)
            self._move(tablets, cluster, may_place, None)

    def is_loaded(self, session: str, row: bytes) -> bool | None:
        """Whether a tserver serves a tablet, by its latest report; None before its first one. Any thread."""
        return self.reports.is_served(session, row)

    def request_leader(self, tablet: TabletView, host: str) -> None:
        """Move a tablet with several replicas to a host; does nothing while it moves, or when the host is away."""
        sessions = [info for info in self.calls.tservers.sessions() if info.alive and info.host is not None]
        to = next((info.session_id for info in sessions if info.host is not None and info.host.name == host), None)
        if to is not None and tablet.session is not None:
            self.moves.request(Assignment(tablet, to, tablet.session))
            self.changed((tablet.row,))

    def busy_rows(self) -> Collection[bytes]:
        """The rows of tablets that move, and of those that an operation has claimed."""
        return {*self.moves.rows(), *self.claimed()}

    def let_go(self, rows: Collection[bytes]) -> None:
        """Stop the placement of claimed tablets; no put of their locations is under way on return. Drops their moves
        and the reports about them: the master reads new ones when the operation is done.
        """
        with self._placing:
            self.reports.let_go(rows)
            self.moves.let_go(rows)

    def hurry(self, session: str, row: bytes) -> None:
        """A client waits for this tablet: its open order at that tserver goes first."""
        self._orders.hurry(session, row)

    def due_ns(self) -> int | None:
        """The end of the wait for returning tservers (boot clock); None without a wait."""
        return self.return_wait.due_ns

    def _may_place(self, cluster: ClusterState) -> Callable[[TabletView], bool]:
        claimed = self.claimed()
        return lambda tablet: tablet.row not in claimed and tablet.extent.table_id not in cluster.deleted

    def _place(self, tablets: TabletIndex, cluster: ClusterState, may_place: Callable[[TabletView], bool]) -> None:
        live = cluster.live
        placeable = [tablet for tablet in tablets.values() if may_place(tablet)]
        if not self._asserted:
            self._write([Assignment(t, t.session) for t in placeable if t.session in live and t.session], live)
        self.return_wait.update(tablets, live)
        self._assign(tablets, placeable, cluster)
        if not self._asserted:
            self._asserted = True
            self.reports.clear()
        self._orders.retain(live)
        settled = self._order_all([tablets[tablet.row] for tablet in placeable], self.reports.served(live), live)
        self.moves.drop_dead(tablets, live)
        self._leave_full_hosts(tablets, may_place)
        self._move(tablets, cluster, may_place, settled)
        self._ask(live)
        if any(tablet.replicas for tablet in tablets.values()):  # claimed ones too: the operation ends soon
            self.leaders.ask(live, cluster.hosts)

    def _assign(self, tablets: TabletIndex, candidates: Iterable[TabletView], cluster: ClusterState) -> None:
        """Write locations of free tablets, and of those that a move has unloaded."""
        tablets_max = self.return_wait.tablets_max(len(tablets))
        released = [self._released(tablet, cluster) for tablet in candidates]
        shared = (tablet for tablet in released if not tablet.replicas)
        free = assign_free(shared, cluster.live, cluster.unsealed, tablets.counts, tablets_max)
        elected = self._elect(tablets, [tablet for tablet in released if tablet.replicas], cluster)
        arrived = self._may_arrive(tablets, self.moves.take_unloaded(cluster.live), cluster)
        for view in self._write(one_for_each_tablet([*arrived, *free, *elected]), cluster.live):
            tablets.put(view)

    def _elect(
        self, tablets: TabletIndex, released: Collection[TabletView], cluster: ClusterState
    ) -> Iterator[Assignment]:
        """A leader for each free tablet with several replicas; the others wait, and say why. Each tablet counts for the
        next choice.
        """
        tablets_of = tablets.counts.total.copy()
        for tablet in released:
            if not is_free(tablet, cluster.live, cluster.unsealed):
                continue
            session = self.leaders.choose(tablet, cluster.hosts, tablets_of)
            if session is None:
                self._note_leaderless(tablet.row, self.leaders.why_nobody(tablet, cluster.hosts))
            else:
                tablets_of[session] += 1
                self._leaderless.pop(tablet.row, None)
                self.problems.pop(tablet.row, None)
                yield Assignment(tablet, session)

    def _note_leaderless(self, row: bytes, reason: str) -> None:
        now_ns = self.clock.boot_ns()
        since_ns, _ = self._leaderless.get(row, (now_ns, ""))
        self._leaderless[row] = since_ns, reason
        if now_ns - since_ns >= LEADERLESS_MS * 1_000_000:
            self.problems[row] = reason

    def _may_arrive(
        self, tablets: TabletIndex, moves: Collection[Assignment], cluster: ClusterState
    ) -> Iterator[Assignment]:
        """The same moves; one of several replicas ends at a host that holds the named state now, or at none: then its
        location stays, and the present session loads it again.
        """
        for move in moves:
            if not move.tablet.replicas:
                yield move
                continue
            wanted = {session: host for session, host in cluster.hosts.items() if session == move.session}
            session = self.leaders.choose(move.tablet, wanted, tablets.counts.total) or self.leaders.choose(
                move.tablet, cluster.hosts, tablets.counts.total
            )
            if session is not None:
                yield replace(move, session=session)

    def _released(self, tablet: TabletView, cluster: ClusterState) -> TabletView:
        """If all unsealed logs of a tablet's dead session are damaged: the free tablet if its row names none of them,
        else a recorded problem. A host that has its logs and is away is recorded, too, unless the tablet goes on
        without them.
        """
        if tablet.row in cluster.released:
            return replace(tablet, session=None, address=None, parked_at=None)
        for session in (tablet.session, tablet.parked_at):
            reason = self.waiting.get(session or "") if session in cluster.unsealed else None
            if reason is not None:
                self._waits[tablet.row] = reason
                return tablet
        if tablet.session is None or tablet.session not in cluster.unsealed or not self.unrecoverable:
            return tablet
        logs = [log.name for log in self.calls.tservers.logs_of(tablet.session) if not log.sealed]
        if not all(log in self.unrecoverable for log in logs):
            return tablet
        row = self.stores.table.get(tablet.row, ("log",))
        # A tserver puts a `log:` cell before the tablet's first record in that log (R12), and the row was read after
        # the logs were fenced: no record follows (R15).
        damaged = [] if row is None else [log for log in logs if keys.log_column(log) in row.cells]
        if not damaged:
            return replace(tablet, session=None, address=None)
        self.problems[tablet.row] = f"{self.unrecoverable[damaged[0]]}; {RESTORE}"
        return tablet

    def _write(self, chosen: Collection[Assignment], live: Mapping[str, str]) -> list[TabletView]:
        """Put locations at one rank of this reign, before any order; returns the new views of the tablets."""
        puts = [RowPut(a.tablet.row, {keys.LOCATION: Location(a.session, live[a.session]).encode()}) for a in chosen]
        if puts:
            self.stores.table.put(puts, self.stores.reign.next_rank())
        for a in chosen:
            self.note_assigned(a.session, a.tablet.row)
        return [replace(a.tablet, session=a.session, address=live[a.session], parked_at=None) for a in chosen]

    # ---- reports of tservers

    def _ask(self, live: Mapping[str, str]) -> None:
        """Ask each live tserver for its tablets, in its lane; one question at a time."""
        for session in self.reports.begin_questions(live):
            if not self.calls.lanes.submit(session, self._question(session, live[session])):
                self.reports.end_question(session)

    def _question(self, session: str, address: str) -> Callable[[], None]:
        def ask() -> None:
            try:
                report = self.calls.tservers.at(address).tablets()
                problems = {row_of(problem.extent): problem.reason for problem in report.problems}
                full = list(map(row_of, report.without_room))
                if self.reports.answer(session, set(map(row_of, report.extents)), problems, full):
                    self.changed(())
            finally:
                self.reports.end_question(session)

        return ask

    def _clear_problem(self, row: bytes) -> None:
        self.problems.pop(row, None)
        self._waits.pop(row, None)
        self._leaderless.pop(row, None)
        self._retries.over(row)

    # ---- orders

    def _order_all(
        self, placed: Collection[TabletView], reported: Mapping[str, Collection[bytes]], live: Mapping[str, str]
    ) -> bool:
        """Order all loads once, later the missing ones; returns whether all are settled (see :meth:`_order`)."""
        if not self._checked:
            # R7: once every live tserver has answered to this reign, only this leader's orders place tablets.
            if not all(session in reported for session in live):
                return False
            self._checked = True
            # all tablets get one load order: it also restores those that an unload left half way
            reported = dict.fromkeys(live, frozenset())
        return self._order(placed, reported, live) and reported.keys() == live.keys()

    def _order(
        self, placed: Collection[TabletView], reported: Mapping[str, Collection[bytes]], live: Mapping[str, str]
    ) -> bool:
        """Order loads of missing tablets and unloads of surplus ones; returns whether only moving tablets and
        tablets with a problem were misplaced.
        """
        missing, surplus = misplaced((t for t in placed if not self.moves.is_leaving(t.row)), reported)
        settled = all(self.moves.is_moving(tablet.row) or tablet.row in self.problems for tablet in missing)
        for tablet in missing:
            if self._retries.may_try(tablet.row):
                self._orders.give(tablet.session or "", tablet.row, self._load(tablet, live))
        by_row = {t.row: t for t in placed} if surplus else {}
        for session, row in surplus:
            if row in by_row and not self.moves.is_leaving(row):
                settled = False
                self._orders.give(session, row, self._unload(by_row[row], session, live[session]))
        return settled

    def _load(self, tablet: TabletView, live: Mapping[str, str]) -> Callable[[], None]:
        session = tablet.session or ""
        address = live[session]

        def load() -> None:
            if not self._retries.may_try(tablet.row):
                return  # ordered while an earlier order was failing
            try:
                self.stores.reign.check()
                order = TabletAssignment(tablet.extent, tablet.directory, self.stores.reign.epoch)
                self.calls.tservers.at(address).load_tablet(order)
            except BookkeeperError as error:
                # An operator has to help; a refusal only follows an outdated order.
                if isinstance(error, PermanentError) and not isinstance(error, RefusedError):
                    self.problems[tablet.row] = error.message
                    self._retries.failed(tablet.row)
                elif is_away(error):
                    self._waits[tablet.row] = error.message
                elif tablet.replicas and isinstance(error, RefusedError | NoSpaceError):
                    self._pass_on(tablet, session)
                LOG.warning("tablet %s is not loaded at %s yet: %s", tablet.extent, session, error.message)
                return
            self.reports.loaded(session, tablet.row)
            self._clear_problem(tablet.row)
            if self.moves.loaded(tablet.row, session):
                self.changed((tablet.row,))

        return load

    def _pass_on(self, tablet: TabletView, session: str) -> None:
        """A host can't lead a tablet that it was to lead: another one does, if any can."""
        sessions = self.calls.tservers.sessions()
        hosts = {info.session_id: info.host for info in sessions if info.alive and info.host is not None}
        other = self.leaders.choose(tablet, hosts, {}, besides=session)
        if other is not None:
            self.moves.not_loaded(tablet.row, session)
            self.moves.request(Assignment(tablet, other, session))
            self.changed((tablet.row,))

    def _leave_full_hosts(self, tablets: TabletIndex, may_move: Callable[[TabletView], bool]) -> None:
        """A tablet for whose next segment its host has no room soon refuses writes: another host leads it, if any
        can.
        """
        for session, row in self.reports.without_room():
            tablet = tablets.get(row)
            if tablet is None or tablet.session != session or not may_move(tablet) or self.moves.is_moving(row):
                continue
            LOG.info("tablet %s leaves %s, whose host has no room for its next segment", tablet.extent, session)
            self._pass_on(tablet, session)

    def _unload(self, tablet: TabletView, session: str, address: str) -> Callable[[], None]:
        def unload() -> None:
            try:
                self.stores.reign.check()
                self.calls.tservers.at(address).unload_tablet(tablet.extent, self.stores.reign.epoch, False)
            except TransientError as error:
                LOG.warning("tablet %s is not unloaded at %s yet: %s", tablet.extent, session, error.message)
                return
            self.reports.unloaded(session, tablet.row)
            self.moves.unloaded(tablet.row)
            self.changed((tablet.row,))

        return unload

    def _move(
        self, tablets: TabletIndex, cluster: ClusterState, may_move: Callable[[TabletView], bool], settled: bool | None
    ) -> None:
        """Start moves, and repeat failed orders to unload."""
        for move in self.moves.begin(
            tablets, cluster.live, lambda tablet: not tablet.replicas and may_move(tablet), settled
        ):
            source = move.source or ""
            if source in cluster.live:
                self._orders.give(source, move.tablet.row, self._unload(move.tablet, source, cluster.live[source]))


def row_of(extent: Extent) -> bytes:
    """The tablet's row in the metadata table."""
    return keys.tablet_row(extent.table_id, extent.end_row)


def one_for_each_tablet(assignments: Iterable[Assignment]) -> list[Assignment]:
    """The first assignment of each tablet: all are written at one rank (rule R1). A tablet has two when a move unloaded
    it from a tserver that has died since.
    """
    chosen: dict[bytes, Assignment] = {}
    for assignment in assignments:
        chosen.setdefault(assignment.tablet.row, assignment)
    return list(chosen.values())
