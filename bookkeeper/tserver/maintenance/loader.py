"""Loads and unloads tablets: the order of the steps, each of which can be repeated.

The master gives the orders. To load: the row must assign the tablet to this session, and the logs that it names must be
sealed; take the next serial; replay these logs; serve (``tablet_opener`` has all but the last step). To unload: take no
more writes; flush; serve no longer. The books survive a crash, and decide then which step comes next. Rules: R1, R7,
R15, R18 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Leader
from bookkeeper.errors import BookkeeperError, NoSpaceError, NotLeaderError
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletAssignment
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.tablet_opener import TabletOpener
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.control_submissions import CloseTablet

LOG = logging.getLogger(__name__)


NAMES_WAIT_MS = 2_000
"""ms that an unload waits until the books name the last state of a tablet with replicas. All unloads of a process's end
wait so long together: when all hosts end at once, none of them can name a state.
"""


class _Orders(Struct):
    """The orders for one tablet that run or wait, whichever tablet a caller names. Used under the loader's lock."""

    lock: threading.Lock
    _count: int = 0

    def enter(self) -> None:
        """One more order."""
        self._count += 1

    def leave(self) -> bool:
        """One less; returns whether it was the last one."""
        self._count -= 1
        return self._count == 0


def has_not_begun(epoch: int, newest: int) -> bool:
    """Whether no master has led with this epoch yet; ``newest``: that of the leading master in coordination."""
    return epoch > newest


class Loader:
    """Executes assignments, one at a time for each tablet."""

    def __init__(
        self,
        registry: Registry,
        path: CommitPath,
        bookkeeper: WalBookkeeper,
        flusher: Flusher,
        opener: TabletOpener,
        led: LedTablets,
        read_leader: Callable[[], Leader | None],
        clock: Clock,
    ) -> None:
        """``read_leader``: the leading master as coordination knows it."""
        self._registry = registry
        self._path = path
        self._bookkeeper = bookkeeper
        self._flusher = flusher
        self._opener = opener
        self._led = led
        self._read_leader = read_leader
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: dict[bytes, _Orders] = {}
        self._epoch = 0

    # ---- orders

    def load(self, assignment: TabletAssignment) -> None:
        """Serve a tablet; nothing to do when it is served already. Raises NotLeaderError for an older master,
        RefusedError when the books give the tablet to another session, TransientError when a log is not sealed yet,
        CorruptionError for a tablet that can't be served as it is.
        """
        self._check_epoch(assignment.epoch)
        with self.only_one(assignment.extent) as row, contained(assignment.extent, "a load"):
            current = self._registry.find(assignment.extent)
            if current is not None and current.accepting:
                return
            if current is not None:
                self._leave(current)
            if self._bookkeeper.has_used_current(load_plan.tablet_key(assignment.extent)):
                self._path.roll()  # a tablet comes to a log once: its first block there names its previous log (R24)
            tablet = self._opener.open(assignment.extent, row)
            self._registry.add(tablet)
            self._opener.configure(tablet)  # again: from here on, changes of the configuration reach it
            LOG.info("tablet %s is served", assignment.extent)

    def unload(self, extent: Extent, epoch: int, discard: bool) -> None:
        """Stop serving a tablet, with a flush unless ``discard`` (its table is deleted). Does nothing when the tablet
        is not here. Raises NotLeaderError; TransientError: the tablet takes no writes, and the caller repeats the
        order.
        """
        self._check_epoch(epoch)
        with self.only_one(extent):
            tablet = self._registry.find(extent)
            if tablet is None:
                return
            self._path.commit(CloseTablet(tablet))
            if discard:
                self._remove(tablet)
                self._bookkeeper.forget(tablet.key)
            else:
                self._leave(tablet)
            LOG.info("tablet %s is served no longer%s", extent, ", its data is dropped" if discard else "")

    def settle(self) -> None:
        """Wait until each load and unload that runs now has ended or failed."""
        with self._lock:
            busy = [orders.lock for orders in self._busy.values()]
        for lock in busy:
            with lock:
                pass

    def unload_all(self) -> None:
        """Unload every tablet, for a clean end; what can't be flushed or named now is left to recovery. All are flushed
        before one waits for its name, so their states travel meanwhile.
        """
        flushed = [tablet for tablet in self._registry.all() if self._ends(tablet, self._close)]
        end_ns = self._clock.boot_ns() + NAMES_WAIT_MS * 1_000_000
        for tablet in flushed:
            self._ends(tablet, lambda one: self._depart(one, (end_ns - self._clock.boot_ns()) / 1_000_000))

    def _ends(self, tablet: ServedTablet, step: Callable[[ServedTablet], None]) -> bool:
        """Take a step of a tablet's clean end; returns whether it succeeded."""
        try:
            with contained(tablet.extent, "a last flush"):
                step(tablet)
        except BookkeeperError as error:
            LOG.warning("tablet %s could not be flushed, its log will be replayed: %s", tablet.extent, error)
            return False
        return True

    def _close(self, tablet: ServedTablet) -> None:
        self._path.commit(CloseTablet(tablet))
        self._flusher.empty(tablet)

    def _leave(self, tablet: ServedTablet) -> None:
        """Flush a tablet that takes no writes any more, and stop serving it. One with replicas leaves a full disk
        without a flush: its logs stay, and the next leader, on another host, replays them.
        """
        try:
            self._flusher.empty(tablet)
        except NoSpaceError as error:
            if self._led.find(tablet) is None:
                raise
            LOG.warning("tablet %s leaves without a flush; the next leader replays its logs: %s", tablet.extent, error)
            self._path.roll()  # the next leader reads sealed logs only
            with suppress(NoSpaceError):  # the manifest still has the term, which a later one ends
                self._remove(tablet)
            return
        self._depart(tablet, NAMES_WAIT_MS)

    def _depart(self, tablet: ServedTablet, patience_ms: float) -> None:
        """Stop serving a flushed tablet. One with replicas waits up to ``patience_ms`` until the books name its last
        state; else its logs stay, and the next leader replays them.
        """
        chain = self._led.find(tablet)
        if chain is not None and not chain.wait_named(max(0.0, patience_ms)):
            LOG.info("tablet %s leaves with a state that is not named: the next leader replays its logs", tablet.extent)
            self._path.roll()  # the next leader reads sealed logs only
        self._remove(tablet)

    def _remove(self, tablet: ServedTablet) -> None:
        with tablet.flushes.lock:
            self._registry.remove(tablet)
        chain = self._led.find(tablet)
        if chain is not None:
            self._led.remove(chain)

    def _check_epoch(self, epoch: int) -> None:
        """Raise NotLeaderError for an order of a deposed master (R7), and of an epoch that no master has: to note that
        one would refuse the orders of each master until this process ends.
        """
        with self._lock:
            is_higher = epoch > self._epoch
        leader = self._read_leader() if is_higher else None
        if leader is not None and has_not_begun(epoch, leader.epoch):
            raise NotLeaderError(f"an order of epoch {epoch}, and the leading master has epoch {leader.epoch}")
        with self._lock:
            if epoch < self._epoch:
                raise NotLeaderError(f"an order of epoch {epoch}, but a master of epoch {self._epoch} leads already")
            if leader is not None:
                self._epoch = epoch

    @contextmanager
    def only_one(self, extent: Extent) -> Iterator[bytes]:
        """Orders for one tablet wait for each other."""
        row = keys.tablet_row(extent.table_id, extent.end_row)
        with self._lock:
            orders = self._busy.setdefault(row, _Orders(threading.Lock()))
            orders.enter()
        try:
            with orders.lock:
                yield row
        finally:
            with self._lock:
                if orders.leave():
                    del self._busy[row]
