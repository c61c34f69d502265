"""Group commit: many submissions, one thread, one log, one sync a group.

Arrives: submissions from any thread, into a bounded queue. Leaves: blocks in the log, and futures that resolve when
the submission is as durable as it asked. Survives a crash: whatever was acknowledged at sync; at flush when only the
process died. While a group is written and synced the next one gathers, so groups grow with the load.

For each group: disk for all of it → prepare all, in order → the books (rule R12) → what asked for ``log`` or less at
the head of the group is answered → written → one ``fdatasync`` when anybody asked for it → the fence (rule R15)
→ all become visible, in order → all are answered. When the log or the fence fails the process ends: nothing is
acknowledged that may be lost, and nothing is half alive. A full disk is met before anything is written: what needs disk
is refused, barriers pass, a log that is due to end goes on. Sources: design section 5, the commit path; section 10.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    InvalidInputError,
    LeaseLostError,
    NoSpaceError,
    OverloadedError,
    UnavailableError,
)
from bookkeeper.storage.wal.block import Block, PlacedBlock
from bookkeeper.storage.wal.ending import end_process
from bookkeeper.storage.wal.group import check_draft, effective_durability, form_blocks
from bookkeeper.storage.wal.limits import CommitLimits, disk_bytes
from bookkeeper.storage.wal.seal import is_fenced
from bookkeeper.storage.wal.submission import Durability, Listener, Seal, Submission
from bookkeeper.storage.wal.writer import WalWriter

_IDLE_WAIT_MS = 60_000.0
_ROLL_AGAIN_MS = 1_000.0
_log = logging.getLogger(__name__)


def needs_sync(asked: Iterable[Durability]) -> bool:
    """Whether a group is answered only after ``fdatasync``."""
    return any(durability is Durability.SYNC for durability in asked)


class _EndedError(Exception):
    """Leaves the commit thread after ``die`` was called, should that return."""


@dataclass(slots=True)
class _Entry:
    submission: Submission
    future: Future[object]
    size: int
    begins_group: bool
    durability: Durability = Durability.SYNC
    placed: list[PlacedBlock] = field(default_factory=list)


@dataclass(slots=True)
class _Roll:
    future: Future[Seal | None]


def has_to_begin(entry: _Entry | _Roll) -> bool:
    """Whether what lies before it in the queue has to be applied before it is prepared."""
    return isinstance(entry, _Entry) and entry.begins_group


class GroupCommitter:
    """Owner of the current log of a tserver and of the thread that writes it. Close it to seal the log."""

    def __init__(
        self,
        open_wal: Callable[[], WalWriter],
        listener: Listener,
        fence: Callable[[], None],
        clock: Clock,
        limits: CommitLimits | None = None,
        die: Callable[[str], None] = end_process,
    ) -> None:
        """Open the first log and start the thread.

        ``open_wal`` makes a new log each time, also in the commit thread. ``fence`` raises LeaseLostError when this
        process may be believed dead. ``die`` gets the reason and should not return. Raises what ``open_wal`` raises.
        """
        self._open_wal = open_wal
        self._listener = listener
        self._fence = fence
        self._clock = clock
        self._limits = limits or CommitLimits()
        self._die = die
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._queue: deque[_Entry | _Roll] = deque()
        self._queue_bytes = 0
        self._closed = False
        self._taken: list[_Entry | _Roll] = []
        self._wal = open_wal()
        self._next: WalWriter | None = None
        self._opened_ns = clock.boot_ns()
        self._roll_from_ns = 0
        self._is_full = False
        self._unsynced_since_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    @property
    def wal_uri(self) -> str:
        """The log that the next group goes to; stable from ``prepare`` to ``applied`` of a submission."""
        return self._wal.uri

    @property
    def queued_bytes(self) -> int:
        """Approximate bytes that wait."""
        return self._queue_bytes

    def submit(self, submission: Submission, *, begins_group: bool = False) -> Future[object]:
        """Queue a submission; never waits. Submissions are committed in the order of these calls. ``begins_group``: it
        is prepared when all that was submitted before is applied, so it may decide by what it reads.

        The future resolves to what ``applied`` returns, or to the BookkeeperError that ``prepare`` or the books
        raised. Raises OverloadedError when the queue is full and UnavailableError after :meth:`close`.
        """
        entry = _Entry(submission, Future(), submission.approx_bytes, begins_group)
        with self._lock:
            if self._closed:
                raise UnavailableError("the log is closed: this server goes down, ask the master for another")
            full = self._queue_bytes + entry.size > self._limits.queue_bytes_max
            if self._queue and (full or len(self._queue) >= self._limits.queue_count_max):
                raise OverloadedError(f"{len(self._queue)} writes of {self._queue_bytes} bytes wait: back off")
            self._queue.append(entry)
            self._queue_bytes += entry.size
            self._work.set()
        return entry.future

    def roll(self, timeout_ms: float = 60_000.0) -> Seal | None:
        """Seal the current log and go on with a new one; returns when both is done. None: it had no blocks.

        Everything submitted before is in the sealed log. Not to be called in the commit thread. Raises
        UnavailableError after :meth:`close`, or when it takes longer; it is then done later all the same.
        """
        future: Future[Seal | None] = Future()
        with self._lock:
            if self._closed:
                raise UnavailableError("the log is closed: this server goes down")
            self._queue.append(_Roll(future))
            self._work.set()
        try:
            return future.result(timeout_ms / 1000.0)
        except TimeoutError as error:
            raise UnavailableError(f"the log was not rolled within {timeout_ms:.0f} ms") from error

    def close(self) -> None:
        """Commit what was submitted, seal the log, end the thread; idempotent, not for the commit thread."""
        with self._lock:
            self._closed = True
            self._work.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._step():
                pass
            self._end()
        except _EndedError as ended:
            self._give_up(str(ended))
        except BaseException as error:
            _log.critical("the commit thread fails", exc_info=True)
            self._die(f"the commit thread fails: {error!r}")
            self._give_up(f"the commit thread failed: {error!r}")
            raise

    def _step(self) -> bool:
        """Do one group, one roll, or wait; False when there will never be anything to do again."""
        with self._lock:
            self._taken = self._take()
            if not self._taken:
                if self._closed:
                    return False
                self._work.clear()
        entries = [entry for entry in self._taken if isinstance(entry, _Entry)]
        rolls = [roll for roll in self._taken if isinstance(roll, _Roll)]
        if entries:
            self._commit(entries)
        for roll in rolls:
            try:
                roll.future.set_result(self._roll())
            except NoSpaceError as error:
                roll.future.set_exception(error)
        if not self._taken:
            self._clock.wait(self._work, self._wait_ms())
        self._taken = []
        self._do_what_is_due()
        return True

    def _take(self) -> list[_Entry | _Roll]:
        """The next group, up to the limits, up to and with a roll, or up to what has to begin a group."""
        taken: list[_Entry | _Roll] = []
        size = 0
        while self._queue and len(taken) < self._limits.group_count_max and size < self._limits.group_bytes_max:
            if taken and has_to_begin(self._queue[0]):
                break
            entry = self._queue.popleft()
            taken.append(entry)
            if isinstance(entry, _Roll):
                break
            size += entry.size
        self._queue_bytes -= size
        return taken

    def _wait_ms(self) -> float:
        due = [_IDLE_WAIT_MS]
        now = self._clock.boot_ns()
        if self._unsynced_since_ns is not None:
            due.append(self._limits.wal_sync_interval_ms - (now - self._unsynced_since_ns) / 1e6)
        if self._wal.offset:
            rolls_in_ms = self._limits.wal_roll_age_ms - (now - self._opened_ns) / 1e6
            due.append(max(rolls_in_ms, (self._roll_from_ns - now) / 1e6))
        return max(0.0, min(due))

    def _do_what_is_due(self) -> None:
        now = self._clock.boot_ns()
        since = self._unsynced_since_ns
        if since is not None and now - since >= self._limits.wal_sync_interval_ms * 1_000_000:
            self._sync()
        old = now - self._opened_ns >= self._limits.wal_roll_age_ms * 1_000_000
        if now >= self._roll_from_ns and (old or self._wal.position >= self._limits.wal_roll_bytes):
            try:
                self._roll()
            except NoSpaceError as error:
                _log.warning("%s goes on, though it is due to end: %s", self._wal.uri, error)
                self._roll_from_ns = now + int(_ROLL_AGAIN_MS * 1e6)

    def _commit(self, entries: list[_Entry]) -> None:
        ready = self._prepare(self._with_disk(entries))
        logged = [placed for entry in ready for placed in entry.placed if placed.first_offset]
        blocks = form_blocks(logged, self._limits.merge)
        if blocks and not self._books_agree(ready, blocks):
            return
        early = list(itertools.takewhile(lambda entry: entry.durability <= Durability.LOG, ready))
        if early:
            self._check_fence()
            self._acknowledge(early)
        if blocks:
            with self._fatal("the log can't be written"):
                self._wal.append(blocks)
            if self._unsynced_since_ns is None:
                self._unsynced_since_ns = self._clock.boot_ns()
        late = ready[len(early) :]
        if needs_sync(entry.durability for entry in late):
            self._sync()
        elif late:
            self._check_fence()
        self._acknowledge(late)

    def _with_disk(self, entries: list[_Entry]) -> list[_Entry]:
        """What can be logged for sure; all, or only what needs no disk, and the others are refused unprepared."""
        if not (sizes := [entry.size for entry in entries if entry.size]):
            return entries
        try:
            with self._fatal("the log can't be extended"):
                self._wal.reserve(disk_bytes(sizes))
        except NoSpaceError as error:
            if not self._is_full:
                _log.error("writes are refused: %s", error)
            self._is_full = True
            for entry in entries:
                if entry.size and entry.future.set_running_or_notify_cancel():
                    entry.future.set_exception(NoSpaceError(error.message))
            return [entry for entry in entries if not entry.size]
        if self._is_full:
            _log.warning("there is room again for %s: writes go on", self._wal.uri)
        self._is_full = False
        return entries

    def _books_agree(self, ready: list[_Entry], blocks: list[Block]) -> bool:
        """Rule R12: what must be in the books is there before anything is written or answered; else all is refused."""
        try:
            self._listener.before_append(self._wal.uri, blocks)
        except BookkeeperError as error:
            self._refuse(ready, error)
            return False
        return True

    def _prepare(self, entries: list[_Entry]) -> list[_Entry]:
        """Those that can go on, each with its drafts placed; the others are answered."""
        ready: list[_Entry] = []
        next_offset = self._wal.offset + 1
        for entry in entries:
            if not entry.future.set_running_or_notify_cancel():
                continue
            try:
                drafts = entry.submission.prepare(next_offset)
            except BookkeeperError as error:
                entry.future.set_exception(error)
                continue
            try:
                for draft in drafts:
                    check_draft(draft, self._limits.merge)
            except InvalidInputError as error:
                self._refuse([entry], error)
                continue
            entry.durability = effective_durability(entry.submission.durability, drafts)
            for draft in drafts:
                if entry.durability is Durability.NONE:
                    entry.placed.append(PlacedBlock("", 0, draft))
                else:
                    entry.placed.append(PlacedBlock(self._wal.uri, next_offset, draft))
                    next_offset += draft.batch.num_rows
            ready.append(entry)
        return ready

    def _refuse(self, entries: list[_Entry], error: BookkeeperError) -> None:
        for entry in reversed(entries):
            entry.submission.failed(error)
        for entry in entries:
            entry.future.set_exception(error)

    def _acknowledge(self, entries: list[_Entry]) -> None:
        """Only after the fence: make all visible, in order, and then answer."""
        results = [entry.submission.applied(entry.placed) for entry in entries]
        for entry, result in zip(entries, results, strict=True):
            entry.future.set_result(result)

    def _sync(self) -> None:
        unsynced = self._wal.synced_position < self._wal.position
        with self._fatal("the log can't be synced"):
            self._wal.sync()
        self._unsynced_since_ns = None
        self._check_fence()
        if unsynced:
            self._listener.synced(self._wal.uri, self._wal.synced_offset, self._wal.synced_position)

    def _check_fence(self) -> None:
        """Rule R15: what is acknowledged from here on was written while no recovery could have counted the log."""
        with self._fatal("this process may be believed dead"):
            self._fence()
            if is_fenced(self._wal.path):
                raise LeaseLostError(f"somebody else recovers {self._wal.uri}")

    def _roll(self) -> Seal | None:
        """Make the next log, seal this one, go on there. Raises NoSpaceError: then this one goes on."""
        if not self._wal.offset:
            return None
        if self._next is None:
            with self._fatal("no new log can be made"):
                self._next = self._open_wal()
        seal = self._seal()
        self._wal, self._next = self._next, None
        self._opened_ns = self._clock.boot_ns()
        return seal

    def _end(self) -> None:
        try:
            self._seal()
        except NoSpaceError as error:
            _log.warning("%s is left to recovery: %s", self._wal.uri, error)
        self._abandon()

    def _abandon(self) -> None:
        for wal in filter(None, (self._wal, self._next)):
            wal.abandon()

    def _seal(self) -> Seal:
        self._sync()
        with self._fatal("the log can't be sealed"):
            seal = self._wal.seal()
        self._listener.rolled(self._wal.uri, seal)
        return seal

    @contextmanager
    def _fatal(self, what: str) -> Iterator[None]:
        try:
            yield
        except NoSpaceError:  # met before anything was written
            raise
        except BookkeeperError as error:
            reason = f"{what}: {error}"
            self._die(reason)
            raise _EndedError(reason) from error

    def _give_up(self, reason: str) -> None:
        """Nothing is acknowledged any more; reached only when ``die`` returns, as it may in a test."""
        with self._lock:
            self._closed = True
            left = [*self._taken, *self._queue]
            self._queue.clear()
        self._abandon()
        for entry in left:
            future = entry.future
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                future.set_exception(LeaseLostError(reason))
