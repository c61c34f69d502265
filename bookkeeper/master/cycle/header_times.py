"""Write times from block headers, of files that this leader has not seen growing; and of ranges in quarantine.

Arrives: the files that some target lacks, after each full cycle. Leaves: steps in ``index.write_times``. A new leader
knows which records are missing, but not their age: that is the write time in the header of the first block behind the
finished offset that has a record of the target (R13). Until the header is read, the age is unknown.

A lane of its own reads, and only while something is unknown, so the cycle never waits for a log; a read that fails is
tried again after a pause. The oldest files come first: their ages decide the age of the whole lag. Each target has at
most :data:`FILES_MAX` files that were read, and one read goes over :data:`HEADERS_MAX` headers at most, so a backlog of
any size costs little. A read begins at the position in the books and goes on behind the first record, so that reports
of workers do not make the age unknown again.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError
from bookkeeper.master.books.finished import read_done
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.cycle import assigner
from bookkeeper.master.cycle.assigner import QueueKey
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Shipments, WorkKey
from bookkeeper.master.index.target_progress import Progress
from bookkeeper.master.index.write_times import from_headers
from bookkeeper.master.quarantine.quarantined_ranges import Quarantine, RangeKey
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.storage.volume.volume_protocol import ReadableVolume
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers

LOG = logging.getLogger(__name__)

HEADERS_LANE = "headers"

FILES_MAX = 500
"""Most files of a target that were read and are not finished. The others are younger, and their age stays unknown."""

HEADERS_MAX = 20_000
"""Most headers in one read: more than a worker ships between two rounds."""

LOOKS_MAX = 2_000
"""Most files in one round."""

ROUND_MS = 100
"""A round begins no further read after this time."""

PAUSE_MS = 250
PAUSE_FACTOR = 3
"""The pause after a round: at least so long, and so many times as long as the round: other threads go first."""

RETRY_MS = 10_000
"""The pause after a read that failed, or found less than the books say."""


class HeadersRead(Struct, frozen=True):
    """The records of a target and their write times (ms), for each block behind those that are finished.

    ``is_all``: they reach as far as was asked for. ``position``: where the headers were left, None at the end of the
    log.
    """

    found: list[tuple[int, int]]
    is_all: bool
    position: int | None


class HeaderTimes(Struct):
    """Reads headers for one reign. :meth:`begin` is called by the master's thread, the rest runs in the lane."""

    table: MetadataTable
    logs: ReadableVolume
    clock: Clock
    shipping: Shipments
    quarantine: Quarantine
    lanes: KeyedExecutors
    files: Callable[[], Outstanding]
    _behind: Sequence[FileEntry] = ()
    _is_new: bool = False
    """Whether no walk over ``_behind`` has begun."""
    _is_left_out: bool = False
    """Whether the walk has left out a file."""
    _walk: Iterator[QueueKey] | None = None
    _read: set[WorkKey] = field(default_factory=set)
    """Files that were read, or could not be."""
    _read_of: Counter[TargetKey] = field(default_factory=Counter)
    """How many these are of each target."""
    _again_ns: dict[WorkKey, int] = field(default_factory=dict)
    """When to look again at a file of which not all is known (boot clock)."""
    _positions: dict[WorkKey, int] = field(default_factory=dict)
    """Where a read has found no record of the target so far."""
    _ranges_again_ns: dict[RangeKey, int] = field(default_factory=dict)
    _runs: bool = False

    def begin(self, behind: Sequence[FileEntry] | None) -> None:
        """Begin to read, unless all is known. ``behind``: the files that some target lacks, sorted, after a full cycle;
        None after a quick one.
        """
        if behind is not None:
            self._behind, self._is_new = behind, True
        if self._runs or not self._has_work():
            return
        self._runs = True
        if not self.lanes.submit(HEADERS_LANE, self._run):
            self._runs = False

    def _has_work(self) -> bool:
        times, now_ns = self.shipping.times, self.clock.boot_ns()
        if self._is_new and not self._behind:
            times.all_are_looked_at(is_left_out=False)
        if (self._is_new and times.is_unread) or times.unread:
            return True
        return any(due_ns <= now_ns for due_ns in self._again_ns.values()) or bool(self._due_ranges(now_ns))

    def _run(self) -> None:
        """One round, and the next one after a pause."""
        began_ns = self.clock.boot_ns()
        try:
            goes_on = self.round(began_ns)
        except BaseException:
            self._runs = False
            raise
        if goes_on:
            took_ms = (self.clock.boot_ns() - began_ns) / 1e6
            self.clock.wait(threading.Event(), max(PAUSE_MS, PAUSE_FACTOR * took_ms))
        self._runs = goes_on and self.lanes.submit(HEADERS_LANE, self._run)

    def round(self, now_ns: int) -> bool:
        """Look at some files; whether more have to be looked at soon."""
        until_ns = now_ns + ROUND_MS * 1_000_000
        files = self.files()
        for range_key, value in self._due_ranges(now_ns):
            self._read_range(range_key, value)
        for key in [key for key, due_ns in self._again_ns.items() if due_ns <= now_ns]:
            del self._again_ns[key]
            self._look_at(key, files)
        for key in sorted(self.shipping.times.take_unread()):
            self._look_at(key, files)
        if self._walk is None and self._is_new and self.shipping.times.is_unread:
            self._is_new = self._is_left_out = False
            self._forget_all_but(files)
            self._walk = self._oldest_first()
        if self._walk is not None and not self._walk_on(self._walk, files, until_ns):
            self._walk = None
            self.shipping.times.all_are_looked_at(self._is_left_out)
        return self._walk is not None or any(due_ns <= until_ns for due_ns in self._again_ns.values())

    def _forget_all_but(self, files: Outstanding) -> None:
        self._read = {key for key in self._read if key[0] in files}
        self._read_of = Counter(target for _, target in self._read)
        self._positions = {key: position for key, position in self._positions.items() if key[0] in files}

    def _oldest_first(self) -> Iterator[QueueKey]:
        clusters = sorted({cluster for entry in self._behind for cluster in entry.scope.clusters})
        return heapq.merge(*(assigner.in_order(self._behind, cluster, True) for cluster in clusters))

    def _walk_on(self, walk: Iterator[QueueKey], files: Outstanding, until_ns: int) -> bool:
        """Whether there are files that no round has looked at."""
        is_over = True
        for _, file, target in islice(walk, LOOKS_MAX):
            is_over = False
            self._look_at((file, target), files)
            if self.clock.boot_ns() > until_ns:
                break
        return not is_over

    # ---- files

    def _look_at(self, key: WorkKey, files: Outstanding) -> None:
        """Read the headers of a file, if the age of its first missing record is unknown."""
        if self._again_ns.get(key, 0) > self.clock.boot_ns():
            return
        entry = files.get(key[0])
        index = None if entry is None else entry.index_of(key[1])
        if entry is None or index is None:
            return
        shipment = self.shipping.shipments.get(key)
        finished = assigner.finished_share_of(entry.progress_at(index), shipment).records
        needed = entry.amount_at(index).records
        if finished >= needed or self.shipping.times.is_known_from(key, finished):
            return
        if self.shipping.times.is_known(key, finished):
            self._again_ns[key] = self.clock.boot_ns()
        elif key in self._read or self._read_of[key[1]] < FILES_MAX:
            self._read_of[key[1]] += key not in self._read
            self._read.add(key)
            self._read_file(key, entry, entry.progress_at(index), finished, needed)
        else:
            self._is_left_out = True

    def _read_file(self, key: WorkKey, entry: FileEntry, progress: Progress, finished: int, needed: int) -> None:
        now_ns, now_ms = self.clock.boot_ns(), self.clock.wall_ms()
        try:
            booked = max(progress, self._booked(key))
            position = max(booked.position, self._positions.pop(key, 0))
            read = headers_behind(self.logs, entry.name(), key[1], booked.records, position, finished, needed)
        except (BookkeeperError, OSError) as error:
            LOG.info("when the first missing record of %s was written is unknown: %s", entry.name(), error)
            self._again_ns[key] = now_ns + RETRY_MS * 1_000_000
            return
        self.shipping.times.note_headers(key, finished, needed, from_headers(read.found, now_ns, now_ms))
        if read.is_all:
            return
        if read.position is None:
            self._again_ns[key] = now_ns + RETRY_MS * 1_000_000
            return
        self._again_ns[key] = now_ns
        if not read.found:
            self._positions[key] = read.position

    def _booked(self, key: WorkKey) -> Progress:
        """The progress in the books now: the snapshot's may be older. Raises TransientError."""
        file, target = key
        row = self.table.get(keys.REPL_PREFIX + file, ("done",))
        cell = None if row is None else row.cells.get(keys.done_column(target))
        return Progress(0, 0) if cell is None else read_done(cell, file, [])

    # ---- ranges in quarantine

    def _due_ranges(self, now_ns: int) -> list[tuple[RangeKey, Quarantined]]:
        known, again_ns = self.shipping.times.ranges, self._ranges_again_ns
        return [
            (key, value)
            for key, value in self.quarantine.ranges.items()
            if (*key.work, key.first) not in known and again_ns.get(key, 0) <= now_ns
        ]

    def _read_range(self, key: RangeKey, value: Quarantined) -> None:
        now_ns, now_ms = self.clock.boot_ns(), self.clock.wall_ms()
        try:
            write_ms = first_header(self.logs, key.file, key.target, value.blocks).write_time_ms
        except CorruptionError:
            write_ms = value.since_ms  # the block itself is damaged: its records are at least so old
        except (BookkeeperError, OSError) as error:
            LOG.info("when range %s was written is unknown: %s", key.range_id, error)
            self._ranges_again_ns[key] = now_ns + RETRY_MS * 1_000_000
            return
        self._ranges_again_ns.pop(key, None)
        written_ns = now_ns - max(0, now_ms - write_ms) * 1_000_000
        self.shipping.times.note_range((*key.work, key.first), written_ns)


def first_header(logs: ReadableVolume, name: str, target: TargetKey, blocks: BlockRange) -> BlockHeader:
    """The header of the first of some blocks that has a record of the target, or else of the first one: a range may
    begin with blocks of other tables. Raises the errors of :func:`read_headers`.
    """
    first: BlockHeader | None = None
    for at in read_headers(logs, name, blocks.start_position or None):  # 0: it began with a failure
        if at.header.first_offset > blocks.last:
            break
        if at.last_offset >= blocks.first:
            if share_in(at.header, target, 0):
                return at.header
            first = first or at.header
    if first is None:
        raise CorruptionError(f"{name} has no block of record {blocks.first}")
    return first


def headers_behind(
    logs: ReadableVolume, name: str, target: TargetKey, booked: int, position: int, finished: int, needed: int
) -> HeadersRead:
    """The write times of a target's records behind ``finished`` of them, up to ``needed``. The target has ``booked``
    records before ``position``. Raises the errors of :func:`read_headers`.
    """
    found: list[tuple[int, int]] = []
    records = booked
    for number, at in enumerate(read_headers(logs, name, position or None), 1):
        share = share_in(at.header, target, records)
        if share > records:
            records = share
            if records > finished:
                found.append((records, at.header.write_time_ms))
            if records >= needed:
                return HeadersRead(found, True, at.end_position)
        if number >= HEADERS_MAX:
            return HeadersRead(found, False, at.end_position)
    return HeadersRead(found, False, None)


def share_in(header: BlockHeader, target: TargetKey, before: int) -> int:
    """The target's records of the log up to this block; ``before`` it if the block is not for the target."""
    for number, found in enumerate(header.block_targets):
        if (
            found.incarnation == target.incarnation
            and found.cluster == target.cluster
            and found.remote_table_id == target.remote_table_id
            and found.source_table_id == target.source_table_id
        ):
            sums = header.target_records
            return sums[number] if number < len(sums) else before + header.record_count
    return before
