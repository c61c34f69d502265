"""Keeps the books about the tserver's own WALs: first uses before an acknowledgement, the others soon after.

First uses go into the metadata table at once, in the commit thread of the group (rule R12). A thread of its own writes
needed offsets, several at once, and CLOSED, and then nudges the master. A needed update that a crash loses costs
latency only; a master writes a missing CLOSED from the file (R10). ``wal_cells`` decides the content of all cells.

When the metadata table does not answer, first uses wait, and the whole group with them: nothing is acknowledged or
reordered until it answers or the session has ended. A log that is due to end goes on meanwhile, because in the next one
each tablet begins with a first use. When the table's disk is full, the group is refused. Rules: R1, R12, R15 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError, NoSpaceError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.writing.seal import Seal, log_exists
from bookkeeper.tserver.books.wal_cells import BatchPut, Reach, WalBooks, tablet_of
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.unnamed_records import TabletKey

LOG = logging.getLogger(__name__)

RETRY_WAIT_MS = 200
SILENCE_MS = 2_000
"""An answer of the books is as good for so long: then they are asked again, before a log ends that may go on."""

FOLLOWED_WAIT_MS, FOLLOWED_WAITS = 20, 9
"""While tasks ship all records at once, updates of needed offsets wait so much longer: the master hands nothing out
then. It is told soon when that ends.
"""


class _Sealed(Struct):
    books: WalBooks
    seal: Seal


class WalBookkeeper:
    """The listener of the group committer, and the books thread."""

    def __init__(
        self,
        volume: Volume,
        metadata: MetadataTable,
        persistence: SessionRetries,
        clock: Clock,
        interval_ms: float,
        nudge: Callable[[], None],
        die: Die,
        own_logs: OwnLogs,
    ) -> None:
        """``nudge`` is called after puts of needed offsets or CLOSED, and must not wait. ``die`` ends the process.
        ``own_logs`` hears of each log.
        """
        self._volume = volume
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._interval_ms = interval_ms
        self._nudge = nudge
        self._die = die
        self._own_logs = own_logs
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Its holder is the books thread while it writes: no put may follow :meth:`forget` of its tablet."""
        self._current = WalBooks("", 0)
        self._has_ended = True
        """Whether the current log is sealed, or there is none yet."""
        self._next: WalBooks | None = None
        self._untold: tuple[str, int, frozenset[str]] | None = None
        """A log with its durable end and the tables of its new records, until the writers of these are answered."""
        self._sealed: list[_Sealed] = []
        self._answered_ns: int | None = None
        """When the books answered last (boot clock); None when nothing was asked yet."""
        self._must_ask = False
        """Whether the books thread has to ask them, though it may have nothing to write."""
        self._positions: dict[str, dict[str, int]] = {}
        """Sealed log to table id to the last offset of its records; an entry lives as long as the file."""
        self._thread = BackgroundThread("books", clock, die)
        self.updates_written = 0

    def opened(self, wal_name: str, created_ms: int) -> None:
        """A new log exists; writes go there when the current one is sealed. In the commit thread, but for the first."""
        with self._lock:
            books = WalBooks(wal_name, created_ms)
            self._own_logs.begin(wal_name)
            if self._has_ended:
                self._current, self._has_ended = books, False
                self._own_logs.enter(wal_name)
            else:
                self._next = books

    # ---- the listener, in the commit threads

    def before_append(self, wal_name: str, blocks: Sequence[Block]) -> None:
        """Rule R12. Returns when the first uses are in the books; ends the process when the books refuse them. Raises
        NoSpaceError when the books' disk is full: a group that waited for room would make all others wait.
        """
        with self._lock:
            first_uses = self._current.first_uses(blocks)
        if first_uses is not None:
            self._write_first_uses(first_uses)
        with self._lock:
            if first_uses is not None:
                self._own_logs.note_uses(wal_name, *self._current.announced())
            self._own_logs.note_records(
                wal_name,
                (
                    (tablet_of(one.header), one.first_offset, one.last_offset)
                    for one in blocks
                    if one.header.block_targets
                ),
            )
            self._current.appended(blocks)

    def synced(self, wal_name: str, offset: int, position: int) -> None:
        """The tasks that follow the log and the books thread hear of it when the writers are answered."""
        with self._lock:
            self._untold = wal_name, offset, self._grown() | self._current.synced(Reach(offset, position))

    def answered(self) -> None:
        """Wake those who ship the log, and the books thread when a needed update is due."""
        with self._lock:
            untold, self._untold = self._untold, None
            due = untold is not None and self._current.is_due()
        if untold is not None:
            self._own_logs.note_end(*untold)
        if due:
            self._thread.wake()

    def may_begin_log(self) -> bool:
        """Whether the books answered lately. If nobody knows, the books thread asks them, for the next call."""
        answered_ns = self._answered_ns
        if answered_ns is not None and self._clock.boot_ns() - answered_ns < SILENCE_MS * 1_000_000:
            return True
        self._must_ask = True
        self._thread.wake()
        return False

    def rolled(self, wal_name: str, seal: Seal) -> None:
        """The log ends: CLOSED follows."""
        self.answered()
        with self._lock:
            books = self._current
            self._sealed.append(_Sealed(books, seal))
            self._positions[wal_name] = dict(books.tables)
            self._current, self._has_ended = self._next or books, self._next is None
            self._next = None
            self._own_logs.enter(self._current.name)
        self._own_logs.note_seal(wal_name, seal.offset)
        self._thread.wake()

    def _grown(self) -> frozenset[str]:
        return frozenset() if self._untold is None else self._untold[2]

    def _write_first_uses(self, put: BatchPut) -> None:
        try:
            put_rows = partial(self._metadata.put, put.rows, put.rank)
            self._persistence.retry("the first use of a log", put_rows, unless=NoSpaceError)
            # R15: the next holder of a tablet has read its row before this cell came, if the session is over by now. It
            # would never ask for the records behind it, and no fence of others reaches a log on this host's own disk.
            self._persistence.retry("the look whether others count this process as dead", self._persistence.confirm)
        except NoSpaceError:  # the books have no cell of it
            with self._lock:
                self._current.give_up()
            raise
        except BookkeeperError as error:
            self._die(f"the books refuse the first use of a log, and nothing may be acknowledged without: {error}")
            raise
        self._answered_ns = self._clock.boot_ns()

    # ---- for others

    def release(self, tablet: TabletKey) -> None:
        """A flush of the tablet begins. In the commit thread, before the group is appended."""
        with self._lock:
            self._current.release(tablet)

    def has_used_current(self, tablet: TabletKey) -> bool:
        """Whether the current log holds records of the tablet, of an earlier time here."""
        with self._lock:
            return self._current.has_used(tablet)

    def forget(self, tablet: TabletKey) -> None:
        """The tablet is deleted: write no more to its row. Returns when no write to it is under way."""
        with self._writing, self._lock:
            for books in (self._current, *(sealed.books for sealed in self._sealed)):
                books.forget(tablet)
        self._own_logs.forget_tablet(tablet)

    def positions(self, table_id: str) -> list[tuple[str, int]]:
        """Every own log that holds records of the table, with the last one's offset, in order of creation.

        Logs whose files are gone are left out: they were replicated, or had no target.
        """
        with self._lock:
            gone = [name for name in self._positions if not log_exists(self._volume, name)]
            for name in gone:
                del self._positions[name]
            found = [*self._positions.items(), (self._current.name, self._current.tables)]
            return [(name, tables[table_id]) for name, tables in found if table_id in tables]

    # ---- the books thread

    def start(self) -> None:
        """Begin to write needed offsets and CLOSED."""
        self._thread.start(self._write_or_log, SELDOM_MS, once_more=True)

    def close(self, timeout_ms: float) -> None:
        """Write the remaining cells, for up to ``timeout_ms``, and end the thread; a master completes the others."""
        self._thread.close(timeout_ms)

    def _write_or_log(self) -> None:
        """Wait a moment, so that one put has the updates of several groups, and write. Waits end when the thread
        closes.
        """
        closing, waits = self._thread.closing, 0
        self._clock.wait(closing, self._interval_ms)
        while waits < FOLLOWED_WAITS and not closing.is_set() and self._own_logs.is_followed():
            self._clock.wait(closing, FOLLOWED_WAIT_MS)
            waits += 1
        try:
            written = self._write_due()
            self._ask()
        except LeaseLostError:
            raise
        except TransientError as error:
            LOG.warning("the books can't be written, trying again: %s", error)
            self._clock.wait(closing, RETRY_WAIT_MS)
            self._thread.wake()
            return
        if written:
            self._nudge()

    def _ask(self) -> None:
        """Read a cell if somebody has to know whether the books answer. Raises TransientError."""
        if self._must_ask:
            self._metadata.get(keys.owner_row(), (keys.OWNER.family,))
            self._must_ask, self._answered_ns = False, self._clock.boot_ns()

    def _write_due(self) -> bool:
        """One round: CLOSED of sealed logs, needed offsets of the current one. Raises TransientError."""
        with self._writing:
            written = False
            while self._sealed:
                written |= self._write_closed(self._sealed[0])
                with self._lock:
                    self._sealed.pop(0)
                self._own_logs.forget_gone(partial(log_exists, self._volume))
            return self._write_needed() or written

    def _write_closed(self, sealed: _Sealed) -> bool:
        with self._lock:
            put = sealed.books.closing(sealed.seal)
        if put is None:
            return False
        self._put(put)
        return True

    def _write_needed(self) -> bool:
        with self._lock:
            books = self._current
            put = books.needed_update()
        if put is None:
            return False
        try:
            self._put(put)
        except TransientError:
            with self._lock:
                books.take_back(put)
            raise
        return True

    def _put(self, put: BatchPut) -> None:
        self._persistence.check()
        self._metadata.put(put.rows, put.rank)
        self._answered_ns = self._clock.boot_ns()
        self.updates_written += 1
