"""The queue in front of the commit threads: submissions and requests to roll the log, in order, and bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from msgspec import Struct, field

from bookkeeper.errors import BookkeeperError, InvalidInputError, OverloadedError, UnavailableError
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.storage.wal.writing.block_merge import MergeLimits, check_draft
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.submission import AppendPoint, Durability, Submission


class Entry(Struct):
    """A submission and the future that its caller waits for. :meth:`prepare` sets ``durability`` and ``placed``."""

    submission: Submission
    future: Future[object]
    size: int
    begins_group: bool
    durability: Durability = Durability.SYNC
    placed: list[PlacedBlock] = field(default_factory=list)

    def prepare(self, point: AppendPoint, limits: MergeLimits) -> AppendPoint | None:
        """Let the submission make its drafts, and place them from ``point`` on. Returns the point behind them; None
        when the submission was cancelled or refused: its future has the error then.
        """
        if not self.future.set_running_or_notify_cancel():
            return None
        try:
            drafts = self.submission.prepare(point)
        except BookkeeperError as error:
            self.future.set_exception(error)
            return None
        try:
            for draft in drafts:
                check_draft(draft, limits)
        except InvalidInputError as error:
            self.submission.failed(error)
            self.future.set_exception(error)
            return None
        return self._place(drafts, point)

    def _place(self, drafts: Sequence[DraftBlock], point: AppendPoint) -> AppendPoint:
        self.durability = effective_durability(self.submission.durability, drafts)
        if self.durability is Durability.NONE:
            self.placed = [PlacedBlock("", 0, draft) for draft in drafts]
            return point
        wal_name, next_offset = point
        for draft in drafts:
            self.placed.append(PlacedBlock(wal_name, next_offset, draft))
            next_offset += draft.batch.num_rows
        return AppendPoint(wal_name, next_offset)

    def refuse(self, error: BookkeeperError) -> None:
        """Answer with an error instead of :meth:`prepare`."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def apply(self) -> object:
        """Make the submission visible; returns its answer, which the caller gets once the whole group is visible."""
        return self.submission.applied(self.placed)


class Roll(Struct):
    """A request to roll the log."""

    future: Future[Seal | None]


def effective_durability(requested: Durability, drafts: Sequence[DraftBlock]) -> Durability:
    """The durability of a submission: NONE is raised to LOG where a peer gets the records, or sent them here."""
    if any(draft.header.block_targets or draft.header.HasField("origin") for draft in drafts):
        return max(requested, Durability.LOG)
    return requested


class SubmissionQueue:
    """Any thread puts; the commit thread at the front takes. ``changed`` is set when something arrives, and at the
    close.
    """

    def __init__(self, limits: CommitLimits) -> None:
        self.changed = threading.Event()
        self.waiting_bytes = 0
        self.is_closed = False
        self._limits = limits
        self._lock = threading.Lock()
        self._queue: deque[Entry | Roll] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, submission: Submission, *, begins_group: bool) -> Future[object]:
        """Raises OverloadedError when the queue is full, UnavailableError after :meth:`close`."""
        entry = Entry(submission, Future(), submission.approx_bytes, begins_group)
        with self._lock:
            if self.is_closed:
                raise UnavailableError("the log is closed: this server goes down, ask the master for another")
            is_full = self.waiting_bytes + entry.size > self._limits.queue_bytes_max
            if self._queue and (is_full or len(self._queue) >= self._limits.queue_count_max):
                raise OverloadedError(f"{len(self._queue)} writes of {self.waiting_bytes} bytes wait: back off")
            self._queue.append(entry)
            self.waiting_bytes += entry.size
            self.changed.set()
        return entry.future

    def put_roll(self) -> Future[Seal | None]:
        """Raises UnavailableError after :meth:`close`."""
        future: Future[Seal | None] = Future()
        with self._lock:
            if self.is_closed:
                raise UnavailableError("the log is closed: this server goes down")
            self._queue.append(Roll(future))
            self.changed.set()
        return future

    def close(self) -> None:
        """Accept nothing any more; idempotent."""
        with self._lock:
            self.is_closed = True
            self.changed.set()

    def take(self, group: Sequence[Entry]) -> list[Entry]:
        """The entries that may join ``group``, which may be empty: up to the limits, a roll, or an entry that has to
        begin a group.
        """
        taken: list[Entry] = []
        count, size = len(group), sum(entry.size for entry in group)
        with self._lock:
            while self._queue and count < self._limits.group_count_max and size < self._limits.group_bytes_max:
                entry = self._queue[0]
                # Everything in front of an entry that begins a group has to be applied before it is prepared.
                if isinstance(entry, Roll) or (count and entry.begins_group):
                    break
                self._queue.popleft()
                taken.append(entry)
                count, size = count + 1, size + entry.size
            self.waiting_bytes -= sum(entry.size for entry in taken)
        return taken

    def take_ahead(self, group: Sequence[Entry]) -> list[Entry]:
        """The entries that may join ``group`` while an earlier group is not applied yet. None while little waits, for
        small neighbours that gather share a block; none that has to begin a group.
        """
        with self._lock:
            head = self._queue[0] if self._queue else None
            if self.waiting_bytes < self._limits.ahead_bytes_min or not isinstance(head, Entry) or head.begins_group:
                return []
        return self.take(group)

    def take_roll(self) -> Roll | None:
        """The roll at the head of the queue, if there is one."""
        with self._lock:
            head = self._queue[0] if self._queue else None
            if not isinstance(head, Roll):
                return None
            self._queue.popleft()
        return head

    def clear(self) -> list[Entry | Roll]:
        """Take everything, for good."""
        with self._lock:
            remaining = list(self._queue)
            self._queue.clear()
            self.waiting_bytes = 0
        return remaining
