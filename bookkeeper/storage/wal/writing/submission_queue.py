"""What waits for the commit threads: submissions and wishes to roll the log, in order, and bounded.

Arrives: submissions from any thread. Leaves: the next of them, as many as one group may have. Survives a crash:
nothing, nobody was told anything yet.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from bookkeeper.errors import OverloadedError, UnavailableError
from bookkeeper.storage.wal.blocks.block import PlacedBlock
from bookkeeper.storage.wal.writing.commit_limits import CommitLimits
from bookkeeper.storage.wal.writing.submission import Durability, Seal, Submission


@dataclass(slots=True)
class Entry:
    """A submission and who waits for it; ``durability`` and ``placed`` are known from ``prepare`` on."""

    submission: Submission
    future: Future[object]
    size: int
    begins_group: bool
    durability: Durability = Durability.SYNC
    placed: list[PlacedBlock] = field(default_factory=list)


@dataclass(slots=True)
class Roll:
    """A wish to roll the log."""

    future: Future[Seal | None]


def has_to_begin(entry: Entry) -> bool:
    """Whether what lies before it in the queue has to be applied before it is prepared."""
    return entry.begins_group


class SubmissionQueue:
    """Any thread puts; who holds the front of the committer takes. ``changed`` is set when something came, or when it
    was closed.
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
            full = self.waiting_bytes + entry.size > self._limits.queue_bytes_max
            if self._queue and (full or len(self._queue) >= self._limits.queue_count_max):
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
        """Take nothing any more; idempotent."""
        with self._lock:
            self.is_closed = True
            self.changed.set()

    def take(self, group: list[Entry]) -> list[Entry]:
        """What may join ``group``, which may be empty: up to the limits, up to a roll, or to what has to begin one."""
        taken: list[Entry] = []
        count, size = len(group), sum(entry.size for entry in group)
        with self._lock:
            while self._queue and count < self._limits.group_count_max and size < self._limits.group_bytes_max:
                entry = self._queue[0]
                if isinstance(entry, Roll) or (count and has_to_begin(entry)):
                    break
                self._queue.popleft()
                taken.append(entry)
                count, size = count + 1, size + entry.size
            self.waiting_bytes -= sum(entry.size for entry in taken)
        return taken

    def take_ahead(self, group: list[Entry]) -> list[Entry]:
        """What may join ``group`` while an earlier one is not applied yet: nothing while little waits, for small
        neighbours that gather share a block, and nothing that has to begin a group.
        """
        with self._lock:
            head = self._queue[0] if self._queue else None
            if self.waiting_bytes < self._limits.ahead_bytes_min or not isinstance(head, Entry) or has_to_begin(head):
                return []
        return self.take(group)

    def take_roll(self) -> Roll | None:
        """The roll that is due next, if that is what is next."""
        with self._lock:
            head = self._queue[0] if self._queue else None
            if not isinstance(head, Roll):
                return None
            self._queue.popleft()
        return head

    def clear(self) -> list[Entry | Roll]:
        """Take everything, for good."""
        with self._lock:
            left = list(self._queue)
            self._queue.clear()
            self.waiting_bytes = 0
        return left
