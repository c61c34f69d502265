"""Group commit: many submissions, one log, one sync a group; while one group is synced, the next is written.

A crash loses no write that was acknowledged at sync; the end of the process alone loses none acknowledged at flush.

The way of a group: reserve disk for all of it → prepare all, in order → put first uses into the books (rule R12) →
answer the head of the group, as far as it asks for ``log`` or less → write → one ``fdatasync`` if a submission asks for
it → check the fence (rule R15) → make all visible, in order → answer all. When the log or the fence fails the process
ends: so no answer promises more than its durability. The committer finds a full disk before it writes anything: then it
refuses the submissions that need disk, lets control submissions pass, and goes on in a log that is due to end.

Two threads run the same loop. One is at the *front*: it alone takes from the queue, prepares and writes. A group is
synced, applied and answered in its *turn*; the thread that has the turn has left the front to the other one, which
writes ahead when much waits, and else lets small neighbours gather for one block. Groups are applied in the order in
which they were prepared, and no group is prepared while another is applied. A roll, and a submission that begins a
group, have front and turn: everything before them is applied by then.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError, NoSpaceError, UnavailableError
from bookkeeper.runtime.process_exit import end_process
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.writing.block_merge import form_blocks
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.active_wal import ActiveWal, EndedError
from bookkeeper.tserver.commit.commit_limits import CommitLimits, disk_bytes
from bookkeeper.tserver.commit.submission import Durability, Listener, Submission
from bookkeeper.tserver.commit.submission_queue import Entry, Roll, SubmissionQueue

_IDLE_WAIT_MS = 60_000.0
_ROOM_LOOK_MS = 1_000.0
"""The pause between two looks for room on a full disk while nobody writes."""
_log = logging.getLogger(__name__)


class _Group(Struct):
    """``taken``: from the queue; ``unanswered``: of these, prepared and written, and not answered yet."""

    taken: list[Entry] = field(default_factory=list)
    unanswered: list[Entry] = field(default_factory=list)

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries from the queue join."""
        self.taken += entries

    def await_answers(self, entries: Sequence[Entry]) -> None:
        """These entries are written; the turn of the group answers them."""
        self.unanswered += entries


class GroupCommitter:
    """Owner of the current log of a tserver and of the threads that write it. Close it to seal the log."""

    def __init__(
        self,
        open_wal: Callable[[], WalWriter],
        listener: Listener,
        fence: Callable[[], None],
        clock: Clock,
        limits: CommitLimits | None = None,
        die: Die = end_process,
    ) -> None:
        """Open the first log and start the threads.

        ``open_wal`` makes a new log each time, also in a commit thread. ``fence`` raises LeaseLostError when this
        process may be believed dead. ``die`` gets the reason and should not return. Raises the errors of ``open_wal``.
        """
        self._listener = listener
        self._clock = clock
        self._limits = limits or CommitLimits()
        self._die = die
        self._wal = ActiveWal(open_wal, listener, fence, clock, self._limits, die)
        self._queue = SubmissionQueue(self._limits)
        self._front = threading.Lock()
        """Its holder takes, prepares and writes."""
        self._turn = threading.Lock()
        """Its holder syncs, applies and answers; acquired at the front only, so that order holds."""
        self._waits_for_turn = False
        self._staging = threading.Lock()
        """Its holder prepares or applies: no two threads call submissions at the same time."""
        self._lock = threading.Lock()
        self._is_full = False
        self._refused_bytes = 0
        """The size of the latest reservation: the full disk had no room for it."""
        self._room_looked_ns = 0
        self._failure: str | None = None
        self._under_way: list[Entry | Roll] = []
        """Entries and rolls that a thread had taken when it failed."""
        self._threads = [threading.Thread(target=self._run, name=f"commit-{n}", daemon=True) for n in range(2)]
        self._running = len(self._threads)
        for thread in self._threads:
            thread.start()

    @property
    def wal_name(self) -> str:
        """The log that the next group goes to. Any thread."""
        return self._wal.name

    @property
    def queued_bytes(self) -> int:
        """Approximate bytes in the queue."""
        return self._queue.waiting_bytes

    def submit(self, submission: Submission, *, begins_group: bool = False) -> Future[object]:
        """Queue a submission; never waits. Submissions are committed in the order of these calls. ``begins_group``: it
        is prepared once everything submitted before is applied, so it may decide by reading the tablets.

        The future resolves to the result of ``applied``, or to an error: of ``prepare``, of the books, NoSpaceError
        on a full disk, or LeaseLostError when the committer fails. Raises OverloadedError when the queue is full and
        UnavailableError after :meth:`close`.
        """
        return self._queue.put(submission, begins_group=begins_group)

    @property
    def is_full(self) -> bool:
        """Whether the last group that needed disk found no room. Any thread."""
        return self._is_full

    def roll(self, timeout_ms: float = 60_000.0) -> Seal | None:
        """Seal the current log and go on with a new one; returns when both are done. None: the log had no blocks.

        Everything submitted before is in the sealed log. Not for a commit thread. Raises UnavailableError after
        :meth:`close`, or when it takes longer; then the log is rolled later all the same.
        """
        future = self._queue.put_roll()
        try:
            return future.result(timeout_ms / 1000.0)
        except TimeoutError as error:
            raise UnavailableError(
                f"the log was not rolled within {timeout_ms:.0f} ms; it may still be rolled later"
            ) from error

    def close(self) -> None:
        """Commit all submissions, seal the log, end the threads; idempotent, not for a commit thread."""
        self._queue.close()
        for thread in self._threads:
            thread.join()

    # ---- the two threads

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except EndedError as ended:
            self._fail(str(ended))
        except BaseException as error:
            _log.critical("a commit thread fails", exc_info=True)
            self._die(f"a commit thread fails: {error!r}")
            self._fail(f"a commit thread failed: {error!r}")
            self._leave()
            raise
        self._leave()

    def _step(self) -> bool:
        """Do one group, or one roll; False once the queue is closed and empty."""
        group = _Group()
        try:
            with ExitStack() as front:
                front.enter_context(self._front)
                self._acquire_turn(group)
                try:
                    return self._take_turn(group, front)
                finally:
                    self._turn.release()
                    if self._waits_for_turn:
                        self._queue.changed.set()
        except BaseException:
            self._under_way += group.taken
            raise

    def _acquire_turn(self, group: _Group) -> None:
        """At the front: wait until there is something to do and everything before is done; meanwhile write ahead. The
        caller has the turn on return.
        """
        while True:
            self._queue.changed.clear()
            rolls_in_ms = self._wal.rolls_in_ms()
            wait_ms = min(self._wal.syncs_in_ms(), rolls_in_ms, self._looks_for_room_in_ms())
            self._waits_for_turn = bool(group.taken or len(self._queue) or self._queue.is_closed or wait_ms <= 0)
            if self._waits_for_turn:
                if self._turn.acquire(blocking=False):
                    self._waits_for_turn = False
                    return
                if rolls_in_ms > 0 and (entries := self._queue.take_ahead(group.taken)):
                    self._write(group, entries)
                    continue
                wait_ms = _IDLE_WAIT_MS
            self._clock.wait(self._queue.changed, wait_ms)

    def _take_turn(self, group: _Group, front: ExitStack) -> bool:
        """With the turn, and at the front until all is written."""
        if self._failure is not None:
            raise EndedError(self._failure)
        if not group.taken:
            self._wal.do_due_work()
            self._listener.answered()
            if self._looks_for_room_in_ms() <= 0:
                self._look_for_room()
            if (roll := self._queue.take_roll()) is not None:
                self._roll(roll)
                return True
        if entries := self._queue.take(group.taken):
            self._write(group, entries, may_answer=not group.taken)
        if not group.taken:
            return not self._queue.is_closed or len(self._queue) > 0
        front.close()
        self._finish(group)
        return True

    # ---- at the front

    def _write(self, group: _Group, entries: list[Entry], *, may_answer: bool = False) -> None:
        """Prepare and write entries that join a group. ``may_answer``: the group has its turn, and no submission before
        ``entries`` waits for an answer.
        """
        group.add(entries)
        prepared = self._prepare(self._with_disk(entries))
        blocks = form_blocks(
            [placed for entry in prepared for placed in entry.placed if placed.first_offset], self._limits.merge
        )
        shares = self._wal.shares.counting(blocks)
        if blocks and not self._books_agree(prepared, blocks):
            return
        unsynced = itertools.takewhile(lambda entry: entry.durability <= Durability.LOG, prepared)
        early = list(unsynced) if may_answer else []
        if early:
            self._wal.check_fence()
            self._acknowledge(early)
        if blocks:
            self._wal.append(blocks, shares)
        group.await_answers(prepared[len(early) :])

    def _with_disk(self, entries: list[Entry]) -> list[Entry]:
        """The entries that the log has room for: all of them; or, on a full disk, those that need none, while the
        others are refused unprepared.
        """
        if not (sizes := [entry.size for entry in entries if entry.size]):
            return entries
        try:
            self._reserve(disk_bytes(sizes))
        except NoSpaceError as error:
            if not self._is_full:
                _log.error("writes are refused: %s", error)
            self._is_full = True
            for entry in entries:
                if entry.size:
                    entry.refuse(NoSpaceError(error.message))
            return [entry for entry in entries if not entry.size]
        return entries

    def _reserve(self, length: int) -> None:
        """Reserve room in the log, and note whether there is some. Raises NoSpaceError."""
        self._room_looked_ns, self._refused_bytes = self._clock.boot_ns(), length
        self._wal.reserve(length)
        if self._is_full:
            _log.warning("there is room again for %s: writes go on", self._wal.name)
        self._is_full = False

    def _looks_for_room_in_ms(self) -> float:
        """Time until the next look; not above 0: now."""
        if not self._is_full:
            return _IDLE_WAIT_MS
        return _ROOM_LOOK_MS - (self._clock.boot_ns() - self._room_looked_ns) / 1e6

    def _look_for_room(self) -> None:
        """Nobody may write for long, and operators are told that the disk is full."""
        try:
            self._reserve(self._refused_bytes)
        except NoSpaceError:
            _log.debug("there is no room yet for %s", self._wal.name)

    def _prepare(self, entries: list[Entry]) -> list[Entry]:
        """The entries that go on, with their drafts placed; the others are answered."""
        prepared: list[Entry] = []
        point = self._wal.append_point()
        with self._staging:
            for entry in entries:
                if (behind := entry.prepare(point, self._limits.merge)) is not None:
                    point = behind
                    prepared.append(entry)
        return prepared

    def _books_agree(self, prepared: list[Entry], blocks: list[Block]) -> bool:
        """Rule R12: the first uses are in the books before anything is written or answered; else all are refused."""
        try:
            self._listener.before_append(self._wal.name, blocks)
        except BookkeeperError as error:
            with self._staging:
                for entry in reversed(prepared):
                    entry.submission.failed(error)
            for entry in prepared:
                entry.future.set_exception(error)
            return False
        return True

    # ---- in its turn

    def _finish(self, group: _Group) -> None:
        """Sync the group if a submission requests it or a sync is due; check the fence, make it visible, answer it."""
        entries = group.unanswered
        # L1: a write that asks for sync is answered only after fdatasync.
        if any(entry.durability is Durability.SYNC for entry in entries) or self._wal.syncs_in_ms() <= 0:
            self._wal.sync()
        elif entries:
            self._wal.check_fence()
        self._acknowledge(entries)
        self._listener.answered()

    def _acknowledge(self, entries: list[Entry]) -> None:
        """Only after the fence: make all visible, in order, and then answer."""
        with self._staging:
            results = [entry.apply() for entry in entries]
        for entry, result in zip(entries, results, strict=True):
            entry.future.set_result(result)

    def _roll(self, roll: Roll) -> None:
        try:
            roll.future.set_result(self._wal.roll())
        except NoSpaceError as error:
            roll.future.set_exception(error)
        except BaseException:
            self._under_way.append(roll)
            raise

    # ---- the end

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._queue.close()

    def _leave(self) -> None:
        """The last thread that ends seals the log, or leaves it to recovery."""
        with self._lock:
            self._running -= 1
            if self._running:
                return
        if self._failure is None:
            try:
                self._wal.end()
            except EndedError as ended:
                self._fail(str(ended))
        if self._failure is not None:
            self._give_up(self._failure)

    def _give_up(self, reason: str) -> None:
        """Fail all futures; reached only when ``die`` returns, as it may in a test."""
        self._wal.abandon()
        for entry in [*self._under_way, *self._queue.clear()]:
            future = entry.future
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                future.set_exception(LeaseLostError(reason))
