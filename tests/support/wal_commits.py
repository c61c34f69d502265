"""Real committers on real files, with a journal of what happened in which order, and gates to stop time at a call.

Nothing here replaces a part of the log: :class:`JournalOps` makes the real system calls, and notes them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError
from bookkeeper.model import BlockTarget
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Group
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from tests.support.volumes import name_at, rooted
from tests.support.wal_files import records

PATIENCE_S = 30.0
"""Far above anything a healthy run needs."""


class Journal:
    """Names of events in the order in which they happened; waiting for one is how tests know where the threads are."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._changed = threading.Condition()

    def note(self, event: str) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def count(self, event: str) -> int:
        return self.events.count(event)

    def wait_for(self, event: str, count: int = 1) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.count(event) >= count, PATIENCE_S):
                raise TimeoutError(f"{event} came {self.count(event)} times, not {count}: {self.events[-20:]}")


class JournalOps(FileOps):
    """The real calls, noted when they begin (``>name``) and end (``name``); :meth:`hold` stops one before it begins."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._gates: dict[str, threading.Event] = {}
        self.errors: dict[str, OSError] = {}
        self.freed_by_cut: set[str] = set()
        """Calls whose errors end when a file is cut."""
        self.write_bytes_max: int | None = None

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Calls of this name wait inside the block until it is left."""
        gate = self._gates[name] = threading.Event()
        try:
            yield
        finally:
            del self._gates[name]
            gate.set()

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        self._enter("writev")
        if self.write_bytes_max is not None:
            buffers = [memoryview(buffers[0])[: self.write_bytes_max]]
        written = super().writev(fd, buffers)
        self.journal.note("writev")
        return written

    def fdatasync(self, fd: int) -> None:
        self._enter("fdatasync")
        super().fdatasync(fd)
        self.journal.note("fdatasync")

    def fsync(self, fd: int) -> None:
        self._enter("fsync")
        super().fsync(fd)
        self.journal.note("fsync")

    def allocate(self, fd: int, position: int, length: int) -> None:
        self._fail("allocate")
        super().allocate(fd, position, length)

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        for name in self.freed_by_cut:
            self.errors.pop(name, None)

    def link(self, source: Path, target: Path) -> None:
        self._fail("link")
        super().link(source, target)

    def _enter(self, name: str) -> None:
        self.journal.note(f">{name}")
        gate = self._gates.get(name)
        if gate is not None and not gate.wait(PATIENCE_S):
            raise TimeoutError(f"the test did not open the gate of {name}")
        self._fail(name)

    def _fail(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]


class JournalListener:
    """Notes what it is told; ``error`` is raised by ``before_append``, and ``on_answers`` is called by ``answered``."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.error: Exception | None = None
        self.on_answers: Callable[[], None] = lambda: None
        self.books_answer = True
        self.announced_to: list[str] = []
        self.blocks: list[Block] = []
        self.synced_to: list[tuple[str, int, int]] = []
        self.seals: list[tuple[str, Seal]] = []

    def before_append(self, wal_name: str, blocks: Sequence[Block]) -> None:
        self.announced_to.append(wal_name)
        self.journal.note("before_append")
        if self.error is not None:
            raise self.error
        self.blocks += blocks

    def synced(self, wal_name: str, offset: int, position: int) -> None:
        self.synced_to.append((wal_name, offset, position))
        self.journal.note("synced")

    def answered(self) -> None:
        self.on_answers()

    def may_begin_log(self) -> bool:
        return self.books_answer

    def rolled(self, wal_name: str, seal: Seal) -> None:
        self.seals.append((wal_name, seal))
        self.journal.note("rolled")


class Sequences:
    """Tablet-local sequence numbers, as a tserver hands them out in the commit thread."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def take(self, tablet: str, count: int) -> int:
        first = self._next.get(tablet, 1)
        self._next[tablet] = first + count
        return first


@dataclass(slots=True)
class Write:
    """A submission of rows of one tablet (table ``t1`` unless told); no rows make it a barrier."""

    journal: Journal
    sequences: Sequences
    rows: Sequence[bytes] = ()
    durability: Durability = Durability.SYNC
    name: str = "w"
    table_id: str = "t1"
    block_targets: Sequence[BlockTarget] = ()
    prepare_error: Exception | None = None
    applied_error: Exception | None = None
    approx_bytes: int = 100
    placed: list[PlacedBlock] = field(default_factory=list)
    offered: int = 0
    failure: BookkeeperError | None = None
    on_applied: Callable[[], None] | None = None

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        self.journal.note(f"prepare {self.name}")
        self.offered = point.next_offset
        if self.prepare_error is not None:
            raise self.prepare_error
        if not self.rows:
            return []
        header = BlockHeader(
            table_id=self.table_id,
            groups=[Group(name="default", families=[b"f"])],
            block_targets=[block_target_to_pb(block_target) for block_target in self.block_targets],
            first_seq=self.sequences.take(self.table_id, len(self.rows)),
            min_row=min(self.rows),
            max_row=max(self.rows),
        )
        return [DraftBlock(header, records(self.rows))]

    def applied(self, blocks: list[PlacedBlock]) -> object:
        if self.applied_error is not None:
            raise self.applied_error
        self.placed = blocks
        self.journal.note(f"applied {self.name}")
        if self.on_applied is not None:
            self.on_applied()
        return (blocks[0].first_offset, blocks[-1].last_offset) if blocks else None

    def failed(self, error: BookkeeperError) -> None:
        self.failure = error
        self.journal.note(f"failed {self.name}")


class SkewedClock(SystemClock):
    """The machine's clock, moved forward on demand."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def boot_ns(self) -> int:
        return super().boot_ns() + self.ahead_ns


class Bench:
    """One committer in a directory, and all that a test wants to see of it."""

    def __init__(self, directory: Path, limits: CommitLimits | None = None, clock: Clock | None = None) -> None:
        self.directory = directory
        self.journal = Journal()
        self.sequences = Sequences()
        self.ops = JournalOps(self.journal)
        self.listener = JournalListener(self.journal)
        self.deaths: list[str] = []
        self.fence_error: BookkeeperError | None = None
        self._numbers = itertools.count(1)
        self.committer = GroupCommitter(
            self._open, self.listener, self._fence, clock or SystemClock(), limits, self._die
        )

    def write(self, *rows: bytes, name: str = "w", durability: Durability = Durability.SYNC) -> Write:
        return Write(self.journal, self.sequences, rows, durability, name)

    def _open(self) -> WalWriter:
        path = self.directory / "session" / f"{next(self._numbers)}.wal"
        return WalWriter.create(
            rooted(self.ops), name_at(path), FileHeader(instance_id="west", session_id="session", created_time_ms=1)
        )

    def _fence(self) -> None:
        self.journal.note("fence")
        if self.fence_error is not None:
            raise self.fence_error

    def _die(self, reason: str) -> None:
        self.deaths.append(reason)
        self.journal.note("die")


@contextmanager
def bench(directory: Path, limits: CommitLimits | None = None, clock: Clock | None = None) -> Iterator[Bench]:
    """A committer that is closed at the end."""
    made = Bench(directory, limits, clock)
    try:
        yield made
    finally:
        made.committer.close()
