"""The garbage collector: executes the decisions of ``gc_rules`` and ``remover`` about files and about books of missing
files.

Arrives: logs on disk, all references in the books, `~del_` rows. Leaves: marks, deleted files, operations that notify
peers of ended streams, no holds of holders that are over. A mark stays until its file is deleted, that operation is in
the books, and no write can be in flight that names the file. So the next run continues after a crash. Holds are read
before all other references and again behind them: see ``bulk.file_holds``. Runs in its own thread at its own interval.
Rules: R3, R4, R11, R16 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct, field

from bookkeeper.bulk.import_log import is_relay_log
from bookkeeper.clock import Clock
from bookkeeper.errors import UnavailableError, is_away
from bookkeeper.master.books import remover
from bookkeeper.master.books.remover import MissingFile
from bookkeeper.master.calls.tservers import TServers, session_of_log
from bookkeeper.master.fate.engine import FateEngine, Running
from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.file_flags import LISTED, MARKED, REFERENCED, SEALED, FileFlags
from bookkeeper.master.gc.gc_rules import IMPORT_KIND, Holders
from bookkeeper.master.gc.orphan_files import is_over, note_orphans
from bookkeeper.master.index.log_files import IMPORT_SESSION
from bookkeeper.master.index.snapshot import BrokenChainError, chained, online_tables
from bookkeeper.master.operations.streams import STREAMS_MAX, cells_of, stream_done_args
from bookkeeper.master.origins.origin_gc import OriginGc
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Compactor, MetadataTable, Row, RowPut, scan_parts
from bookkeeper.model import TargetKey
from bookkeeper.storage.wal.reading.wal_recovery import delete_log

LOG = logging.getLogger(__name__)

SCAN_TRIES_MAX = 5

DELETIONS_MAX = 2_000
"""Most files deleted in one run; the others stay marked for the next one."""

ABSENT_MAX = 20_000
"""Missing logs whose books one run handles."""

BATCH_ROWS = 2_000
"""Marks in one put."""


class Inventory(Struct, frozen=True):
    """The input of one run. Logs were listed first, then sessions, then references: see :meth:`GcRunner.observe`.
    ``live`` are tservers, and imports while one is under way, ``writers`` also the dead tservers on record: until they
    are recovered, records may be in their logs. ``late`` are uses of marked logs, ``going`` the files that may be
    deleted now and the targets that have them, ``absent`` logs of this cluster that books name and that were not
    listed, ``holds`` all `~hold_` rows, ``idle`` see :func:`gc_rules.idle_files`. ``unread``: sessions whose logs could
    not be listed, because a host is away; nothing is decided about these.
    """

    files: FileFlags
    live: frozenset[str]
    writers: frozenset[str]
    late: tuple[CellKey, ...]
    going: Mapping[str, tuple[TargetKey, ...]]
    absent: frozenset[str]
    holds: tuple[Row, ...]
    idle: Mapping[str, int]
    unread: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        """Whether a log was listed, or may be there unlisted."""
        return isinstance(name, str) and (
            bool(self.files.of(name.encode()) & LISTED) or session_of_log(name) in self.unread
        )


class GcRunner(Struct):
    """One reign's collector. ``flight_ms`` is longer than any write to the books can be in flight (rule R4)."""

    stores: ReignStores
    rounds: Rounds
    clock: Clock
    tservers: TServers
    fate: FateEngine
    origin_gc: OriginGc
    flight_ms: int
    missing: dict[bytes, MissingFile] = field(default_factory=dict)
    unnamed: dict[str, int] = field(default_factory=dict)
    """Relay logs that no cell names, and the time of this reign's first notice (boot clock, ns)."""
    idle: Mapping[str, int] = field(default_factory=dict)
    """Marked files that a tablet may still name, and the time since when nothing needs them (boot clock, ns)."""
    takers: dict[str, int] = field(default_factory=dict)
    """Sessions that are over and hold files, and the time of this reign's first notice (boot clock, ns)."""
    gone: dict[str, int] = field(default_factory=dict)
    """Deleted files that still have a mark, and the time of their deletion (boot clock, ns)."""
    compacted_ns: int | None = None
    """When this reign last compacted the books (boot clock)."""
    deleted: int = 0

    def run_once(self) -> list[str]:
        """Mark and delete files, and notify peers; returns the deleted files. Raises TransientError; may be cut."""
        seen = self.rounds.read_with_proof(self.observe)
        self.idle = seen.idle
        self.mark(seen)
        gone = self.delete(seen)
        self.finish(seen, gone)
        self.void(seen)
        self.fate.store.sweep()
        self.compact()
        self.origin_gc.request_termination(seen)
        return gone

    def observe(self) -> Inventory:
        """Read everything, in an order that can't miss a reference: a log that is listed and sealed, or of
        imports that are over, gets no new reference, so any reference to it exists when the references are read.
        """
        files, unread = FileFlags(), set[str]()
        for session_id in self.tservers.directories():
            try:
                for name, is_seal in self.tservers.entries_of(session_id):
                    files.add(name.encode(), SEALED if is_seal else LISTED)
            except UnavailableError as error:
                if not is_away(error):
                    raise
                unread.add(session_id)
        sessions, pending = self.tservers.sessions(), self.fate.pending()
        live = living((info.session_id for info in sessions if info.alive), pending)
        writers = living((info.session_id for info in sessions), pending)
        online = online_tables(self.stores.config())
        for _ in range(SCAN_TRIES_MAX):
            try:
                return self._observe_once(files, live, writers, online, frozenset(unread))
            except BrokenChainError as error:  # its finds stay: a reference too many retains a file for one run
                broken = error
        raise broken

    def _observe_once(
        self,
        files: FileFlags,
        live: frozenset[str],
        writers: frozenset[str],
        online: Collection[str],
        unread: frozenset[str],
    ) -> Inventory:
        start, stop = keys.section(keys.DEL_PREFIX)
        for name in gc_rules.parse_marks(self.stores.table.scan(start, stop, ("del",))):
            files.add(name.encode(), MARKED)
        absent: set[str] = set()
        late: list[CellKey] = []
        first_holds = list(self._hold_rows())
        tablets = self._noted(reference_rows(self.stores.table, online), files, absent, late)
        books, holds = self._books_rows(files, absent), list[Row]()
        last_holds = self._noted_holds(holds)
        for file in gc_rules.references(tablets, books, self._quarantine_rows(), last_holds, first_holds):
            files.add_known(file, REFERENCED)
        self.origin_gc.read_rows()
        absent = {name for name in absent if gc_rules.is_read(name.encode(), unread)}
        idle = gc_rules.idle_files(self.idle, files, writers, self.clock.boot_ns())
        going = islice(
            (name for name in self._due(files, writers, unread, idle) if name not in self.gone), DELETIONS_MAX
        )
        finished = {name: self._finished(name) for name in going}
        return Inventory(files, live, writers, tuple(late), finished, frozenset(absent), tuple(holds), idle, unread)

    def _due(
        self, files: FileFlags, writers: frozenset[str], unread: frozenset[str], idle: Mapping[str, int]
    ) -> Iterator[str]:
        """The files that may be deleted now."""
        now_ns, flight_ns = self.clock.boot_ns(), self.flight_ms * 1_000_000
        for name in gc_rules.to_delete(files, writers, unread):
            if name not in idle or now_ns - idle[name] > flight_ns:  # R4: no write in flight names it
                yield name

    def _noted(self, rows: Iterable[Row], files: FileFlags, absent: set[str], late: list[CellKey]) -> Iterator[Row]:
        """The same rows; adds unlisted files of `repl:` columns to ``absent``, and late uses of marked logs to
        ``late``.
        """
        for row in rows:
            for column in row.cells:
                if column.family == "repl" and not files.of(column.qualifier) & LISTED:
                    self._note_absent(keys.parse_file(column.qualifier), absent)
            late += gc_rules.late_uses(row, files)
            yield row

    def _books_rows(self, files: FileFlags, absent: set[str]) -> Iterator[Row]:
        start, stop = keys.section(keys.REPL_PREFIX)
        for row in self.stores.table.scan(start, stop, ("repl", "done")):
            file = keys.parse_repl_row(row.key)
            if not files.of(file.encode()) & LISTED:
                self._note_absent(file, absent)
            yield row

    def _note_absent(self, name: str, absent: set[str]) -> None:
        """Add a missing log to ``absent``; a bounded number at a time, those of earlier runs first."""
        is_known = name.encode() in self.missing or len(absent) < ABSENT_MAX
        if is_known and self.tservers.session_of(name) is not None:
            absent.add(name)

    def _finished(self, name: str) -> tuple[TargetKey, ...]:
        """The targets with done cells of a file; their clusters are notified after its deletion."""
        row = self.stores.table.get(keys.repl_row(name), ("done",))
        return () if row is None else tuple(keys.parse_target(column.qualifier) for column in row.cells)

    def _quarantine_rows(self) -> Iterator[Row]:
        yield from self.stores.table.scan(*keys.section(keys.QUAR_PREFIX), ("quar",))  # not before it is asked for

    def _hold_rows(self) -> Iterator[Row]:
        return self.stores.table.scan(*keys.section(keys.HOLD_PREFIX), keys.HOLD_FAMILIES)

    def _noted_holds(self, found: list[Row]) -> Iterator[Row]:
        """All holds, read when they are asked for; adds them to ``found``."""
        for row in self._hold_rows():
            found.append(row)
            yield row

    def mark(self, seen: Inventory) -> None:
        """Write a `~del_` row for each unreferenced log (rule R17)."""
        fresh = self._without_late(gc_rules.to_mark(seen.files, seen.writers, seen.unread))
        while True:
            self.stores.reign.check()
            batch = list(islice(fresh, BATCH_ROWS))
            if not batch:
                return
            self.stores.table.put(
                [RowPut(keys.del_row(name), {keys.DEL: values.EMPTY}) for name in batch], keys.ONCE_RANK
            )

    def _without_late(self, names: Iterable[str]) -> Iterator[str]:
        """Leave out relay logs that a late put may still name (R4). No memtable has the files of a relay log: without
        the log, they would not reach the next cluster when such a put arrives.
        """
        now_ns, flight_ns = self.clock.boot_ns(), self.flight_ms * 1_000_000
        unnamed: dict[str, int] = {}
        for name in names:
            if is_relay_log(name):
                unnamed[name] = self.unnamed.get(name, now_ns)
                if not is_over(unnamed[name], now_ns, flight_ns):
                    continue
            yield name
        self.unnamed = unnamed

    def delete(self, seen: Inventory) -> list[str]:
        """Delete files that an earlier run marked and that nothing refers to now."""
        gone = []
        for name, finished in seen.going.items():
            self.origin_gc.record_recipients(name, finished)
            self.stores.reign.check()
            delete_log(self.tservers.volume, name)
            self.gone[name] = self.clock.boot_ns()
            gone.append(name)
        self.deleted += len(gone)
        return gone

    def finish(self, seen: Inventory, gone: Iterable[str]) -> None:
        """Notify peers of deleted files (rule R3). Then purge late uses of marked logs, and holds whose holders are
        over; and the marks, once no write can be in flight that names their files (rule R4).
        """
        self._tell([(file, target) for file in gone for target in seen.going[file]])
        self.stores.reign.check()
        holders = self._holders(seen)
        # R4: a late put of such a hold is hidden by the purge, or the next run sees it.
        ended = [CellKey(row.key, column) for row in seen.holds for column in row.cells if not holders.keep(column)]
        if seen.late or ended:
            self.stores.table.purge([*seen.late, *ended])
        now_ns = self.clock.boot_ns()
        over = [name for name, since_ns in self.gone.items() if is_over(since_ns, now_ns, self.flight_ms * 1_000_000)]
        if over:
            self.stores.table.purge([CellKey(keys.del_row(name), keys.DEL) for name in over])
            self.gone = {name: since_ns for name, since_ns in self.gone.items() if name not in set(over)}

    def _holders(self, seen: Inventory) -> Holders:
        """The holders of files, as of now."""
        operations = {run.txid for run in self.fate.pending() if not run.ended}
        live, now_ns = self.tservers.live(), self.clock.boot_ns()
        self.takers = note_orphans(self.takers, gc_rules.dead_takers(seen.holds, live), now_ns)
        flight_ns = self.flight_ms * 1_000_000
        leaving = {session for session, at in self.takers.items() if now_ns - at <= flight_ns}  # R4: a put in flight
        is_there = self._storage_is_there(seen)
        has_log = lambda log: log in seen or not is_there or self.tservers.has_log(log)  # noqa: E731
        return Holders(operations, live, leaving, has_log)

    def void(self, seen: Inventory) -> None:
        """Rule R4: books that name a log which does not exist are purged, after longer than any write is in flight."""
        if not seen.absent or not self._storage_is_there(seen):
            self.missing = {}
            return
        now_ns = self.clock.boot_ns()
        self.missing = remover.note_missing(self.missing, (name.encode() for name in sorted(seen.absent)), (), now_ns)
        void = [m.file for m in self.missing.values() if remover.is_void(m, now_ns, self.flight_ms * 1_000_000)]
        if void:
            self._purge_books(set(void), seen.files)
            finished = {name: self._finished(name) for name in (file.decode() for file in void)}
            for name, targets in finished.items():
                self.origin_gc.record_recipients(name, targets)
            self._tell([(name, target) for name, targets in finished.items() for target in targets])

    def compact(self) -> None:
        """Drop what was hidden in the books at the last compaction of this reign: no write in flight is as old (R4)."""
        now_ns, table = self.clock.boot_ns(), self.stores.table
        is_due = self.compacted_ns is None or is_over(self.compacted_ns, now_ns, self.flight_ms * 1_000_000)
        if is_due and isinstance(table, Compactor):
            table.compact()
            self.compacted_ns = now_ns

    def _storage_is_there(self, seen: Inventory) -> bool:
        """Whether the directory of logs is mounted: every live tserver has a listed log. An unmounted one is empty."""
        live = seen.live - {IMPORT_SESSION}
        listed = {gc_rules.session_of(file) for file, flags in seen.files if flags & LISTED}
        return bool(live) and live <= listed

    def _purge_books(self, files: set[bytes], flags: FileFlags) -> None:
        cells: list[CellKey] = []
        for row in scan_parts(self.stores.table, keys.TABLETS_START, keys.TABLETS_STOP, ("repl",)):
            cells += [CellKey(row.key, c) for c in row.cells if c.qualifier in files]
        for file in sorted(files):
            row_or_none = self.stores.table.get(keys.REPL_PREFIX + file, ("repl",))
            if row_or_none is not None:
                cells += remover.needed_cells(row_or_none)
            if flags.of(file) & MARKED:
                LOG.info("%s was deleted without a reference: its late cells are purged", file.decode())
            else:
                LOG.error("%s does not exist: its cells are purged, its unreplicated records are lost", file.decode())
        self.stores.reign.check()
        self.stores.table.purge(cells)

    def _tell(self, pairs: Collection[tuple[str, TargetKey]]) -> None:
        """Start one operation for each cluster and up to STREAMS_MAX streams; it purges the done cells at its end.

        Streams of a running operation, or of one that failed recently, stay with that operation.
        """
        known = {cell for running in self.fate.pending() for cell in cells_of(running.op)}
        by_cluster: dict[str, list[tuple[str, TargetKey]]] = {}
        for file, target in pairs:
            if (file, target) not in known:
                by_cluster.setdefault(target.cluster, []).append((file, target))
        for cluster, cells in sorted(by_cluster.items()):
            for first in range(0, len(cells), STREAMS_MAX):
                self.fate.submit("stream_done", stream_done_args(cluster, cells[first : first + STREAMS_MAX]))


def living(sessions: Iterable[str], operations: Iterable[Running]) -> frozenset[str]:
    """Sessions that may refer to a log of theirs without a reference yet: live tservers and, while one is under way,
    imports. Read after the logs were listed: an import that has ended by then has its references in the books.
    """
    imports = any(running.op.type == IMPORT_KIND and not running.ended for running in operations)
    return frozenset(sessions) | ({IMPORT_SESSION} if imports else frozenset())


def reference_rows(table: MetadataTable, online: Collection[str]) -> Iterator[Row]:
    """The references of tablets first, then, in parts, those of replication: both name a file before it has a record,
    and no reference of one kind becomes one of the other. Raises BrokenChainError.
    """
    tablets = keys.TABLETS_START, keys.TABLETS_STOP
    yield from chained(table.scan(*tablets, gc_rules.USE_FAMILIES), online)
    yield from chained(scan_parts(table, *tablets, gc_rules.REPL_FAMILIES), online)
