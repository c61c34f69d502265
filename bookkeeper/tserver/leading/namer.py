"""Names states in the books: ``tablet:flush`` and cells of new files in one row put, then ``log:`` cells go.

A state is named when enough of today's voters hold each file of its list (N3), and it has what the term has replayed
(N1). The row is read again right before the put, because the voters may have changed. A tablet with too few copies
retains its logs and says so; it takes writes until its memory or a disk is full. A crash between put and deletes leaves
cells of logs of which the named state has everything: the next load drops them. A tablet whose newest state is named
costs a look, and its part of one read of all rows every few seconds. Rules: R1, N1 and N3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.table_properties import TableProperties, copies_needed
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import CellKey, Row
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.naming import holders_of
from bookkeeper.replicas.placements import RowReplica
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Replica
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.leading.tablet_replicas import voters_in
from bookkeeper.tserver.tablets.load_plan import parse_replicas
from bookkeeper.tserver.tablets.tablet import ServedTablet

LOG = logging.getLogger(__name__)

TICK_MS = 500
REFRESH_MS = 5_000
"""ms between reads of all rows for other replicas, such as a joining one."""
LATE_MS = 30_000
"""A tablet whose newest state waits this long for copies reports it."""

NAMING = "copies of the newest data"


def late_reason(replica: Replica, replicas: Sequence[RowReplica], properties: TableProperties) -> str:
    """Why the newest state of a tablet is not named, and what to do."""
    voters = voters_in(replicas)
    entry = replica.entry(replica.root)
    copies = 0 if entry is None else len(holders_of(replica, entry.segment.id, voters, CORRECTED))
    lacking = sorted(
        one.host
        for one in replicas
        if one.placement in voters
        and one.placement != replica.placement
        and (entry is None or one.placement not in entry.acked)
    )
    needed = copies_needed(properties, len(voters))
    said = f"the newest state has {copies} of {needed} copies, so its logs are retained; "
    if not lacking:
        return f"{said}each voter has it: the tablet needs another replica, so add a host, or start those that are away"
    return f"{said}without it: {', '.join(lacking)}; start these hosts, or give the tablet other replicas"


class _Watch(Struct):
    """The namer's memory of one chain. ``since_ns``: since when its newest state waits; None for a quiet tablet.
    ``row``: the replicas in its row, when all rows were read; ``is_placed``: the chain has them, or newer ones.
    """

    named_id: int | None
    since_ns: int | None = None
    row: Row | None = None
    is_placed: bool = True

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left of earlier work."""
        return self.is_placed and self.since_ns is None

    def seen(self, row: Row) -> None:
        """All rows were read, and this is the tablet's."""
        if row != self.row:
            self.row, self.is_placed = row, False


class Namer:
    """Names the states of led tablets, in a thread of its own."""

    def __init__(
        self, led: LedTablets, books: TabletBooks, properties: Callable[[str], TableProperties], clock: Clock, die: Die
    ) -> None:
        """``properties``: of a table, by its id."""
        self._led = led
        self._books = books
        self._properties = properties
        self._clock = clock
        self._thread = BackgroundThread("namer", clock, die)
        self._watches: dict[LeaderChain, _Watch] = {}
        self._refreshed_ns = clock.boot_ns()
        self._names_put = 0

    @property
    def names_put(self) -> int:
        """States named since the start."""
        return self._names_put

    def start(self) -> None:
        """Start the thread."""
        self._led.listen(self._thread.wake)
        self._led.listen_acks(self._thread.wake)
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread after the name under way."""
        self._thread.close()

    def run_once(self) -> None:
        """Look at each led tablet once."""
        chains = self._led.all()
        self._watches = {chain: self._watches.get(chain) or _Watch(chain.named_id) for chain in chains}
        self._look_for_replicas()
        for chain, watch in self._watches.items():
            if self._thread.closing.is_set():
                return
            if not (watch.is_quiet and chain.is_named) and chain.leads:
                self._work(chain, watch)

    def _look_for_replicas(self) -> None:
        """Read all rows, when that is due, and note the tablets whose replicas are others."""
        now_ns = self._clock.boot_ns()
        if now_ns - self._refreshed_ns < REFRESH_MS * 1_000_000:
            return
        watches = {chain.tablet.row: watch for chain, watch in self._watches.items()}
        try:
            for key, row in self._books.get_many(watches, ("replica",)).items():
                watches[key].seen(row)
        except TransientError as error:
            LOG.warning("the rows of led tablets wait for a read: %s", error)
            return
        except BookkeeperError as error:
            LOG.warning("the rows of led tablets are read one by one: %s", error)
            for watch in watches.values():
                watch.is_placed = False
        self._refreshed_ns = now_ns

    def _work(self, chain: LeaderChain, watch: _Watch) -> None:
        tablet, now_ns = chain.tablet, self._clock.boot_ns()
        try:
            if not watch.is_placed:
                self._refresh(chain)
                watch.is_placed = True
            self._name(chain)
        except LeaseLostError:
            raise
        except TransientError as error:
            LOG.warning("a state of tablet %s waits for its name: %s", tablet.extent, error)
        except BookkeeperError as error:
            LOG.error("a state of tablet %s can't be named: %s", tablet.extent, error)
            tablet.work_failed(NAMING, error.message)
            watch.since_ns = now_ns if watch.since_ns is None else watch.since_ns
            return
        self._report(chain, watch, now_ns)

    def _report(self, chain: LeaderChain, watch: _Watch, now_ns: int) -> None:
        if chain.is_named:
            watch.named_id, watch.since_ns = chain.named_id, None
            chain.tablet.work_succeeded(NAMING)
        elif watch.since_ns is None or chain.named_id != watch.named_id:
            watch.named_id, watch.since_ns = chain.named_id, now_ns
            chain.tablet.work_succeeded(NAMING)
        elif now_ns - watch.since_ns >= LATE_MS * 1_000_000:
            properties = self._properties(chain.tablet.extent.table_id)
            chain.tablet.work_failed(NAMING, late_reason(chain.replica, chain.replicas, properties))

    def _refresh(self, chain: LeaderChain) -> None:
        row = self._books.get(chain.tablet.row, ("replica",))
        replicas = () if row is None else parse_replicas(row)
        if replicas and chain.placed(replicas):
            self._led.changed()

    def _name(self, chain: LeaderChain) -> None:
        properties = self._properties(chain.tablet.extent.table_id)
        if chain.due_name(properties) is not None:
            self._refresh(chain)
            name = chain.due_name(properties)
            if name is not None:
                self._put(chain, name)
        self._let_logs_go(chain)

    def _put(self, chain: LeaderChain, name: Name) -> None:
        put = chain.name_put(name)
        check_puts([put], name.state_id)
        self._books.put([put], name.state_id)
        dead = chain.named(name)
        self._names_put += 1
        if dead:
            self._books.delete([CellKey(put.key, keys.segment_column(file)) for file in sorted(dead)], name.state_id)

    def _let_logs_go(self, chain: LeaderChain) -> None:
        for state_id, logs in chain.logs_due():
            # R15: if the session is over, the next holder has loaded the tablet, and its state counts in place of this
            # one. It may still wait for the log, if that lies on this host.
            self._books.confirm()
            self._close_tails(chain.tablet, logs)
            self._books.let_logs_go(chain.tablet, logs)
            chain.logs_gone(state_id)

    def _close_tails(self, tablet: ServedTablet, logs: Collection[str]) -> None:
        """The named state has the tails of these given-up logs. Their ``log:`` cells go last: one that is left names a
        log of which the state has everything.
        """
        merged = tablet.given_up.merged.intersection(logs)
        if merged:
            cells = [CellKey(tablet.row, keys.lost_column(log)) for log in sorted(merged)]
            self._books.delete(cells, tablet.serial)
            tablet.given_up.close(merged)
            LOG.info("the tail of %s is merged into tablet %s and named", ", ".join(sorted(merged)), tablet.extent)
