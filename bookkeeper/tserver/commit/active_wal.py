"""The log that the committer writes now: appended to, synced, fenced, and rolled when it is due.

Any failure here but a full disk ends the process: then the content of the log is unknown, or a recovery counts it.
One thread appends while another one syncs; a roll, and all that is done when due, needs both to pause. Rule: R15.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError, NoSpaceError
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.target_shares import LogShares
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.submission import AppendPoint, Listener

_NEVER_MS = 60_000.0
_ROLL_AGAIN_MS = 1_000.0
_log = logging.getLogger(__name__)


class EndedError(Exception):
    """Ends a commit thread after ``die`` was called, in case that call returns."""


class ActiveWal:
    """The log that a tserver writes now. Every method that touches the file raises EndedError once ``die`` was called
    and returned.
    """

    def __init__(
        self,
        open_wal: Callable[[], WalWriter],
        listener: Listener,
        fence: Callable[[], None],
        clock: Clock,
        limits: CommitLimits,
        die: Die,
    ) -> None:
        """Open the first log. See :class:`GroupCommitter`; raises the errors of ``open_wal``."""
        self._open_wal = open_wal
        self._listener = listener
        self._fence = fence
        self._clock = clock
        self._limits = limits
        self._die = die
        self._lock = threading.Lock()
        self._wal = open_wal()
        self._next: WalWriter | None = None
        self._shares = LogShares()
        self._opened_ns = clock.boot_ns()
        self._roll_from_ns = 0
        self._unsynced_since_ns: int | None = None

    @property
    def name(self) -> str:
        """The log that is appended to."""
        return self._wal.name

    def append_point(self) -> AppendPoint:
        """Behind the last record written."""
        return AppendPoint(self._wal.name, self._wal.offset + 1)

    def reserve(self, length: int) -> None:
        """See :meth:`WalWriter.reserve`. Raises NoSpaceError."""
        with self._fatal("the log can't be extended"):
            self._wal.reserve(length)

    @property
    def shares(self) -> LogShares:
        """Each target's share of the log behind the last block written."""
        return self._shares

    def append(self, blocks: Sequence[Block], shares: LogShares) -> None:
        """See :meth:`WalWriter.append`; they are synced within ``wal_sync_interval_ms``. ``shares``: of the log
        behind these blocks.
        """
        with self._fatal("the log can't be written"):
            self._wal.append(blocks)
        self._shares = shares
        with self._lock:
            if self._unsynced_since_ns is None:
                self._unsynced_since_ns = self._clock.boot_ns()

    def sync(self) -> None:
        """Make everything durable that was written at the call, pass the fence, and notify the listener."""
        began_ns, synced = self._clock.boot_ns(), self._wal.synced_position
        with self._fatal("the log can't be synced"):
            self._wal.sync()
        with self._lock:  # records appended during the sync wait from its start on
            self._unsynced_since_ns = None if self._wal.synced_position == self._wal.position else began_ns
        self.check_fence()
        if self._wal.synced_position > synced:
            self._listener.synced(self._wal.name, self._wal.synced_offset, self._wal.synced_position)

    def check_fence(self) -> None:
        """Rule R15: records acknowledged after this were written while no recovery could have counted the log."""
        with self._fatal("this process may be believed dead"):
            self._fence()
            if self._wal.is_fenced():
                raise LeaseLostError(f"another process recovers {self._wal.name}")

    def syncs_in_ms(self) -> float:
        """Time until records that are only written have to be synced; not above 0: now."""
        since = self._unsynced_since_ns
        if since is None:
            return _NEVER_MS
        return self._limits.wal_sync_interval_ms - (self._clock.boot_ns() - since) / 1e6

    def rolls_in_ms(self) -> float:
        """Time until the log has to end, because it is long or old; not above 0: now."""
        if not self._wal.offset:
            return _NEVER_MS
        now = self._clock.boot_ns()
        is_full = self._wal.position >= self._limits.wal_roll_bytes
        due_ms = 0.0 if is_full else self._limits.wal_roll_age_ms - (now - self._opened_ns) / 1e6
        return max(due_ms, (self._roll_from_ns - now) / 1e6)

    # ---- while no other thread appends or syncs

    def do_due_work(self) -> None:
        """Sync records that were only written for long; end a log that is long or old."""
        if self.syncs_in_ms() <= 0:
            self.sync()
        if self.rolls_in_ms() <= 0:
            # In the next log each tablet begins with a first use, and all writes would wait for the books.
            if not self._listener.may_begin_log():
                self._put_roll_off(logging.INFO, "the books have to answer first")
                return
            try:
                self._roll()
            except NoSpaceError as error:
                self._put_roll_off(logging.WARNING, error.message)

    def _put_roll_off(self, level: int, reason: str) -> None:
        _log.log(level, "%s goes on, though it is due to end: %s", self._wal.name, reason)
        self._roll_from_ns = self._clock.boot_ns() + int(_ROLL_AGAIN_MS * 1e6)

    def roll(self) -> Seal | None:
        """Make the next log, seal this one, go on there; None when it has no blocks. On a full disk both may take what
        is reserved for this log: somebody waits for its seal. Raises NoSpaceError: then this one goes on.
        """
        if not self._wal.offset:
            return None
        try:
            return self._roll()
        except NoSpaceError as error:
            _log.warning("%s gives its reserved disk to its seal and the next log: %s", self._wal.name, error)
            with self._fatal("the log can't be cut"):
                self._wal.free_reserved()
            return self._roll()

    def _roll(self) -> Seal:
        if self._next is None:
            with self._fatal("no new log can be made"):
                self._next = self._open_wal()
        seal = self._seal()
        self._wal, self._next, self._shares = self._next, None, LogShares()
        self._opened_ns = self._clock.boot_ns()
        return seal

    def end(self) -> None:
        """Seal the log, for nothing follows; it is left to recovery when its seal finds no room."""
        try:
            self._seal()
        except NoSpaceError as error:
            _log.warning("%s is left to recovery: %s", self._wal.name, error)
        self.abandon()

    def abandon(self) -> None:
        """Leave the log to recovery."""
        for wal in filter(None, (self._wal, self._next)):
            wal.abandon()

    def _seal(self) -> Seal:
        self.sync()
        with self._fatal("the log can't be sealed"):
            seal = self._wal.seal()
        self._listener.rolled(self._wal.name, seal)
        return seal

    @contextmanager
    def _fatal(self, failure: str) -> Iterator[None]:
        try:
            yield
        except NoSpaceError:  # before anything was written
            raise
        except BookkeeperError as error:
            reason = f"{failure}: {error}"
            self._die(reason)
            raise EndedError(reason) from error
