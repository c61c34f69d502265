"""Group commit: many submissions, one log, one sync a group; while one group is synced, the next is written.

Arrives: submissions from any thread, into a bounded queue. Leaves: blocks in the log, and futures that resolve when
the submission is as durable as it asked. Survives a crash: whatever was acknowledged at sync; at flush when only the
process died.

For each group: disk for all of it → prepare all, in order → the books (rule R12) → what asked for ``log`` or less at
the head of the group is answered → written → one ``fdatasync`` when anybody asked for it → the fence (rule R15)
→ all become visible, in order → all are answered. When the log or the fence fails the process ends: nothing is
acknowledged that may be lost, and nothing is half alive. A full disk is met before anything is written: what needs disk
is refused, barriers pass, a log that is due to end goes on.

Two threads do the same. One is at the *front*: it alone takes from the queue, prepares and writes. A group is synced,
applied and answered in its *turn*; whoever has the turn has left the front to the other, which writes ahead when much
waits, and else lets small neighbours gather for one block. Groups are applied in the order in which they were prepared,
and nothing is prepared while something is applied. A roll, and what begins a group, has both: everything before it is
applied by then.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, InvalidInputError, LeaseLostError, NoSpaceError, UnavailableError
from bookkeeper.runtime.process_exit import end_process
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock
from bookkeeper.storage.wal.writing.active_wal import ActiveWal, EndedError
from bookkeeper.storage.wal.writing.block_merge import check_draft, effective_durability, form_blocks
from bookkeeper.storage.wal.writing.commit_limits import CommitLimits, disk_bytes
from bookkeeper.storage.wal.writing.submission import Durability, Listener, Seal, Submission
from bookkeeper.storage.wal.writing.submission_queue import Entry, Roll, SubmissionQueue
from bookkeeper.storage.wal.writing.wal_writer import WalWriter

_IDLE_WAIT_MS = 60_000.0
_log = logging.getLogger(__name__)


def needs_sync(asked: Iterable[Durability]) -> bool:
    """Whether a group is answered only after ``fdatasync``."""
    return any(durability is Durability.SYNC for durability in asked)


@dataclass(slots=True)
class _Group:
    """``taken`` from the queue; ``ready``: those that were not refused, written and not answered yet."""

    taken: list[Entry] = field(default_factory=list)
    ready: list[Entry] = field(default_factory=list)


class GroupCommitter:
    """Owner of the current log of a tserver and of the threads that write it. Close it to seal the log."""

    def __init__(
        self,
        open_wal: Callable[[], WalWriter],
        listener: Listener,
        fence: Callable[[], None],
        clock: Clock,
        limits: CommitLimits | None = None,
        die: Callable[[str], None] = end_process,
    ) -> None:
        """Open the first log and start the threads.

        ``open_wal`` makes a new log each time, also in a commit thread. ``fence`` raises LeaseLostError when this
        process may be believed dead. ``die`` gets the reason and should not return. Raises what ``open_wal`` raises.
        """
        self._listener = listener
        self._clock = clock
        self._limits = limits or CommitLimits()
        self._die = die
        self._current = ActiveWal(open_wal, listener, fence, clock, self._limits, die)
        self._queue = SubmissionQueue(self._limits)
        self._front = threading.Lock()
        """Whose holder takes, prepares and writes."""
        self._turn = threading.Lock()
        """Whose holder syncs, applies and answers; asked for at the front only, so that order holds."""
        self._waits_for_turn = False
        self._staging = threading.Lock()
        """Held while something is prepared or applied: submissions never meet in two threads."""
        self._lock = threading.Lock()
        self._is_full = False
        self._failure: str | None = None
        self._under_way: list[Entry | Roll] = []
        """What was under way when it failed."""
        self._threads = [threading.Thread(target=self._run, name=f"commit-{n}", daemon=True) for n in range(2)]
        self._running = len(self._threads)
        for thread in self._threads:
            thread.start()

    @property
    def wal_uri(self) -> str:
        """The log that the next group goes to; stable from ``prepare`` to ``applied`` of a submission."""
        return self._current.uri

    @property
    def queued_bytes(self) -> int:
        """Approximate bytes that wait."""
        return self._queue.waiting_bytes

    def submit(self, submission: Submission, *, begins_group: bool = False) -> Future[object]:
        """Queue a submission; never waits. Submissions are committed in the order of these calls. ``begins_group``: it
        is prepared when all that was submitted before is applied, so it may decide by what it reads.

        The future resolves to what ``applied`` returns, or to the BookkeeperError that ``prepare`` or the books
        raised. Raises OverloadedError when the queue is full and UnavailableError after :meth:`close`.
        """
        return self._queue.put(submission, begins_group=begins_group)

    def roll(self, timeout_ms: float = 60_000.0) -> Seal | None:
        """Seal the current log and go on with a new one; returns when both is done. None: it had no blocks.

        Everything submitted before is in the sealed log. Not to be called in a commit thread. Raises
        UnavailableError after :meth:`close`, or when it takes longer; it is then done later all the same.
        """
        future = self._queue.put_roll()
        try:
            return future.result(timeout_ms / 1000.0)
        except TimeoutError as error:
            raise UnavailableError(f"the log was not rolled within {timeout_ms:.0f} ms") from error

    def close(self) -> None:
        """Commit what was submitted, seal the log, end the threads; idempotent, not for a commit thread."""
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
        """Do one group, or one roll; False when there will never be anything to do again."""
        group = _Group()
        try:
            with ExitStack() as front:
                front.enter_context(self._front)
                self._come_to_turn(group)
                try:
                    return self._take_turn(group, front)
                finally:
                    self._turn.release()
                    if self._waits_for_turn:
                        self._queue.changed.set()
        except BaseException:
            self._under_way += group.taken
            raise

    def _come_to_turn(self, group: _Group) -> None:
        """At the front: wait until there is something to do, and everything before it is done; what can be written
        meanwhile is. The turn is held on return.
        """
        while True:
            self._queue.changed.clear()
            rolls_in_ms = self._current.rolls_in_ms()
            wait_ms = min(self._current.syncs_in_ms(), rolls_in_ms)
            self._waits_for_turn = bool(group.taken or len(self._queue) or self._queue.is_closed or wait_ms <= 0)
            if self._waits_for_turn:
                if self._turn.acquire(blocking=False):
                    self._waits_for_turn = False
                    return
                if rolls_in_ms > 0 and (ahead := self._queue.take_ahead(group.taken)):
                    self._write(group, ahead)
                    continue
                wait_ms = _IDLE_WAIT_MS
            self._clock.wait(self._queue.changed, wait_ms)

    def _take_turn(self, group: _Group, front: ExitStack) -> bool:
        """With the turn, and at the front until all is written."""
        if self._failure is not None:
            raise EndedError(self._failure)
        if not group.taken:
            self._current.do_what_is_due()
            if (roll := self._queue.take_roll()) is not None:
                self._roll(roll)
                return True
        if entries := self._queue.take(group.taken):
            self._write(group, entries, answers=not group.taken)
        if not group.taken:
            return not self._queue.is_closed or len(self._queue) > 0
        front.close()
        self._finish(group)
        return True

    # ---- at the front

    def _write(self, group: _Group, entries: list[Entry], *, answers: bool = False) -> None:
        """Prepare and write what joins a group. ``answers``: it is its turn, and nothing before waits for an answer."""
        group.taken += entries
        ready = self._prepare(self._with_disk(entries))
        logged = [placed for entry in ready for placed in entry.placed if placed.first_offset]
        blocks = form_blocks(logged, self._limits.merge)
        shares = self._current.counting(blocks)
        if blocks and not self._books_agree(ready, blocks):
            return
        early = list(itertools.takewhile(lambda entry: entry.durability <= Durability.LOG, ready)) if answers else []
        if early:
            self._current.check_fence()
            self._acknowledge(early)
        if blocks:
            self._current.append(blocks, shares)
        group.ready += ready[len(early) :]

    def _with_disk(self, entries: list[Entry]) -> list[Entry]:
        """What can be logged for sure; all, or only what needs no disk, and the others are refused unprepared."""
        if not (sizes := [entry.size for entry in entries if entry.size]):
            return entries
        try:
            self._current.reserve(disk_bytes(sizes))
        except NoSpaceError as error:
            if not self._is_full:
                _log.error("writes are refused: %s", error)
            self._is_full = True
            for entry in entries:
                if entry.size and entry.future.set_running_or_notify_cancel():
                    entry.future.set_exception(NoSpaceError(error.message))
            return [entry for entry in entries if not entry.size]
        if self._is_full:
            _log.warning("there is room again for %s: writes go on", self._current.uri)
        self._is_full = False
        return entries

    def _prepare(self, entries: list[Entry]) -> list[Entry]:
        """Those that can go on, each with its drafts placed; the others are answered."""
        ready: list[Entry] = []
        next_offset = self._current.offset + 1
        with self._staging:
            for entry in entries:
                if (
                    entry.future.set_running_or_notify_cancel()
                    and (drafts := self._drafts(entry, next_offset)) is not None
                ):
                    next_offset = self._place(entry, drafts, next_offset)
                    ready.append(entry)
        return ready

    def _drafts(self, entry: Entry, next_offset: int) -> list[DraftBlock] | None:
        """What a submission makes of itself; None: it was answered that it can't."""
        try:
            drafts = entry.submission.prepare(next_offset)
        except BookkeeperError as error:
            entry.future.set_exception(error)
            return None
        try:
            for draft in drafts:
                check_draft(draft, self._limits.merge)
        except InvalidInputError as error:
            entry.submission.failed(error)
            entry.future.set_exception(error)
            return None
        return drafts

    def _place(self, entry: Entry, drafts: list[DraftBlock], next_offset: int) -> int:
        entry.durability = effective_durability(entry.submission.durability, drafts)
        for draft in drafts:
            if entry.durability is Durability.NONE:
                entry.placed.append(PlacedBlock("", 0, draft))
            else:
                entry.placed.append(PlacedBlock(self._current.uri, next_offset, draft))
                next_offset += draft.batch.num_rows
        return next_offset

    def _books_agree(self, ready: list[Entry], blocks: list[Block]) -> bool:
        """Rule R12: what must be in the books is there before anything is written or answered; else all is refused."""
        try:
            self._listener.before_append(self._current.uri, blocks)
        except BookkeeperError as error:
            with self._staging:
                for entry in reversed(ready):
                    entry.submission.failed(error)
            for entry in ready:
                entry.future.set_exception(error)
            return False
        return True

    # ---- in its turn

    def _finish(self, group: _Group) -> None:
        """What was written becomes as durable as asked, visible, and answered."""
        if needs_sync(entry.durability for entry in group.ready) or self._current.syncs_in_ms() <= 0:
            self._current.sync()
        elif group.ready:
            self._current.check_fence()
        self._acknowledge(group.ready)

    def _acknowledge(self, entries: list[Entry]) -> None:
        """Only after the fence: make all visible, in order, and then answer."""
        with self._staging:
            results = [entry.submission.applied(entry.placed) for entry in entries]
        for entry, result in zip(entries, results, strict=True):
            entry.future.set_result(result)

    def _roll(self, roll: Roll) -> None:
        try:
            roll.future.set_result(self._current.roll())
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
        """The last thread that goes leaves the log sealed, or to recovery."""
        with self._lock:
            self._running -= 1
            if self._running:
                return
        if self._failure is None:
            try:
                self._current.end()
            except EndedError as ended:
                self._fail(str(ended))
        if self._failure is not None:
            self._give_up(self._failure)

    def _give_up(self, reason: str) -> None:
        """Nothing is acknowledged any more; reached only when ``die`` returns, as it may in a test."""
        self._current.abandon()
        for entry in [*self._under_way, *self._queue.clear()]:
            future = entry.future
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                future.set_exception(LeaseLostError(reason))
