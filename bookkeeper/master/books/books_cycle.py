"""Reads and writes the books: full cycles over all of them, quick cycles over the part of one tserver.

Arrives: configuration, the metadata table, seals of logs. Leaves: CLOSED cells, needed cells, deletions; and the
current :class:`Snapshot` for the assigner. Each stage is a method, and a process may die between any two stages or
inside one. One thread uses this; others may read ``snapshot``. Rules: R2, R6-R10 and R16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from msgspec import Struct, field

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import CorruptionError, NotFoundError, UnavailableError, is_away
from bookkeeper.log_homes.home_books import Homes, home_of
from bookkeeper.log_homes.log_recovery import recover_log
from bookkeeper.master.books import remover, wal_closer, work_maker
from bookkeeper.master.books.finished import read_done
from bookkeeper.master.books.tserver_recovery import claim_of
from bookkeeper.master.books.work_maker import RankWatch, RowChange
from bookkeeper.master.index import snapshot
from bookkeeper.master.index.file_entry import CellFacts, FileEntry, Scopes, parse_cell
from bookkeeper.master.index.held_back import NO_LOGS_ON_HOSTS, LogsOnHosts
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.snapshot import BrokenChainError, Snapshot
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Column, MetadataTable, Row, RowPut, get_slice, scan_parts
from bookkeeper.metadata.values import LogHome
from bookkeeper.model import TargetKey
from bookkeeper.runtime.garbage import without_collections
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.wal_recovery import file_summary
from bookkeeper.storage.wal.writing.seal import read_seal

LOG = logging.getLogger(__name__)

SNAPSHOT_TRIES_MAX = 5
"""A cycle gives up after so many scans that meet a broken chain."""

TABLET_FAMILIES = ("tablet", "location", keys.REPLICA_FAMILY)
"""Columns from which a scan learns the tablets and their tservers."""

BATCH_ROWS, BATCH_CELLS = 2_000, 4_000
"""Rows in one put while the join goes on; cells in one purge or delete."""


class Owners(Struct, frozen=True):
    """Owners of files: the session of each file, and the live sessions."""

    session_of: Callable[[str], str | None]
    live: Collection[str]

    def is_dead(self, file: str) -> bool:
        """Whether the file's session is over. A file that no session wrote (a bulk import) has no owner."""
        session = self.session_of(file)
        return session is not None and session not in self.live


class Growth(NamedTuple):
    """A file that a read found changed. ``before``: the same file at the read before, None: it was not known then.
    ``is_new``: all of its records were written since then.
    """

    entry: FileEntry
    before: FileEntry | None
    is_new: bool


class View(Struct):
    """The input of one full cycle, in the order in which it was read. ``removable`` are complete files, ``leftovers``
    the cells in their rows for targets that are no longer configured.
    """

    rank: int
    config: ClusterConfig
    snapshot: Snapshot
    configured: frozenset[TargetKey]
    removable: Outstanding = field(default_factory=Outstanding)
    leftovers: list[CellKey] = field(default_factory=list)
    behind: list[FileEntry] = field(default_factory=list)

    def note_behind(self, entry: FileEntry) -> None:
        """Some target lacks records of the file."""
        self.behind.append(entry)

    def note_removable(self, entry: FileEntry, needed_cells: Iterable[CellKey]) -> None:
        """Every target has the file; ``needed_cells`` are those of its row."""
        self.removable.put(entry)
        self.leftovers += [cell for cell in needed_cells if cell.column not in entry.scope.columns]


class Books:
    """Executes the stages of a cycle for one reign."""

    def __init__(self, stores: ReignStores, volume: Volume, homes: Homes) -> None:
        """``homes``: of the sessions whose logs lie on hosts' disks."""
        self.stores = stores
        self.volume = volume
        self.homes = homes
        self._cycle = 0
        self._seen: Snapshot | None = None
        self._scopes = Scopes({}, -1)
        self._rows_of: dict[str, dict[bytes, None]] = {}
        self._passed: set[tuple[str, bytes]] = set()
        self._moving: Collection[FileEntry] = ()
        self._untold: dict[bytes, Growth] = {}
        """Growth that a quick read folded into the snapshot before it failed: nobody was told."""
        self.homes_read: Mapping[str, LogHome] = {}
        """The homes of sessions as the latest full cycle read them."""
        self.snapshot = Snapshot(0)

    # ---- a full cycle, stage by stage

    @without_collections()
    def read(self) -> View:
        """Stage 1: the configuration first (rule R6), then the snapshot. Raises TransientError, CorruptionError."""
        self._cycle += 1
        for _ in range(SNAPSHOT_TRIES_MAX):
            rank = self.stores.reign.next_rank()
            config = self.stores.config()
            if config.generation != self._scopes.generation:
                self._scopes = scopes_of(config, self._scopes)
            try:
                return self._read_once(rank, config, self._logs_on_hosts(config))
            except BrokenChainError as error:
                LOG.info("the scan starts over: %s", error.message)
                broken = error
        raise broken

    def _logs_on_hosts(self, config: ClusterConfig) -> LogsOnHosts:
        """Rule R15: what may hold logs back. Read before the rows."""
        sessions = self.homes_read = self.homes.all()
        if not sessions:
            return NO_LOGS_ON_HOSTS
        properties = {table_id: parse_properties(table.properties) for table_id, table in config.tables.items()}
        return LogsOnHosts(sessions, properties)

    def _read_once(self, rank: int, config: ClusterConfig, logs_on_hosts: LogsOnHosts) -> View:
        online = snapshot.online_tables(config)
        families = snapshot.HOST_LOGS_FAMILIES if logs_on_hosts.sessions else snapshot.SNAPSHOT_FAMILIES
        rows = scan_parts(self.stores.table, keys.TABLETS_START, keys.TABLETS_STOP, families)
        seen = snapshot.take_snapshot(rows, self._cycle, self._scopes, online, self.snapshot.files, logs_on_hosts)
        self.stores.reign.observe(seen.highest_rank)
        configured = frozenset(target.key for table in config.tables.values() for target in table.targets)
        return View(rank, config, seen, configured)

    def close(self, view: View, read_owners: Callable[[], Owners]) -> None:
        """Stage 2: rule R10. Files that turn out CLOSED are folded into the snapshot at once.

        The live sessions are read after the scan: a session exists before its files, so the owner of a new file is
        known.
        """
        owners = read_owners()
        for file, cells in list(view.snapshot.open_cells.items()):
            name = file.decode()
            try:
                closed = self._closed_cells(name, owners, {cell.row: cell.value for cell in cells}, view)
            except CorruptionError as error:  # this file stays OPEN and is retained; no other one waits for it
                view.snapshot.note_problem(error.message)
                continue
            except UnavailableError as error:  # the file stays OPEN, and is retained; its host may come back
                if not is_away(error):
                    view.snapshot.note_problem(error.message)
                continue
            if closed is None:
                continue
            self.stores.reign.check()
            self.stores.table.put(closed.rows, closed.rank)
            self._fold_closed(view, file, closed)

    def _fold_closed(self, view: View, file: bytes, closed: wal_closer.ClosedCells) -> None:
        """Fold CLOSED cells into the snapshot. The complete file may be shipped, because its blocks name all barriers
        (R24). Exceptions: a barrier names a log that the scan did not find in that table, or the file lies on a host's
        disk (R15). Then the next scan decides.
        """
        files = view.snapshot.files
        entry = files[file]
        column = keys.repl_column(file.decode())
        are_known = True
        for put in closed.rows:
            facts = parse_cell(put.values[column])
            entry.merge(facts)
            table_id, _ = keys.parse_tablet_row(put.key)
            # R24: a log that is younger than the scan may be outstanding, too.
            waits_for = [barrier.file for barrier in facts.barriers]
            are_known = are_known and all(log in files and table_id in files[log].scope.table_ids for log in waits_for)
        view.snapshot.note_closed(entry)
        if are_known and home_of(self.homes, file.decode()) is None:
            entry.reach(entry.needed)

    def _closed_cells(
        self, name: str, owners: Owners, open_values: dict[bytes, bytes], view: View
    ) -> wal_closer.ClosedCells | None:
        dead = owners.is_dead(name)
        try:
            # R10: a sealed file is closed from the file, and one of a dead session, which is sealed first. The owner of
            # a live session closes its unsealed file: only the owner has its end.
            if not dead and read_seal(self.volume, name) is None:
                return None
            if dead:
                recover_log(self.volume, name, partial(claim_of, list(open_values.values())))
            summary = file_summary(self.volume, name)
        except NotFoundError:
            return None  # rule R11: the collector deals with books of missing files (rule R4)
        return wal_closer.close_cells(name, open_values, summary, view.snapshot.tablets)

    @without_collections()
    def keep(self, view: View) -> None:
        """Stage 3: the merge-join. Writes needed cells, deletes those of targets that are no longer configured, and
        those that a crash between the two deletes of an earlier stage 4 left.
        """
        start, stop = keys.section(keys.REPL_PREFIX)
        rows = self.stores.table.scan(start, stop, work_maker.BOOKS_FAMILIES)
        batch: list[RowChange] = []
        orphans: list[CellKey] = []
        before = None if self._seen is None else self._seen.files
        watch = RankWatch()
        for file, entry, row in work_maker.join(view.snapshot.files, rows):
            if entry is None:
                orphans += self._orphaned(file, row, before, watch)
                if len(orphans) >= BATCH_CELLS:
                    self._delete(orphans, view.rank)
                    orphans = []
                continue
            change = work_maker.make_work(entry, row, view.configured, watch, view.snapshot.problems)
            if change is not None:
                batch.append(change)
                if len(batch) >= BATCH_ROWS:
                    self._apply(batch, view.rank)
                    batch = []
            if entry.is_behind():
                view.note_behind(entry)
            elif remover.is_removable(entry, self._cycle):
                view.note_removable(entry, () if row is None else remover.needed_cells(row))
        self._apply(batch, view.rank)
        self._delete(orphans, view.rank)
        self.stores.reign.observe(watch.highest)

    def _orphaned(self, file: bytes, row: Row | None, before: Outstanding | None, watch: RankWatch) -> list[CellKey]:
        if row is None:
            return []
        watch.observe(row)
        return remover.needed_cells(row) if remover.is_orphan(file, before) else []

    def _apply(self, changes: Sequence[RowChange], rank: int) -> None:
        puts = [put for change in changes if (put := change.put()) is not None]
        deletes = [cell for change in changes for cell in change.deletes]
        self.stores.reign.check()
        if puts:
            self.stores.table.put(puts, rank)
        if deletes:
            self.stores.table.delete(deletes, rank)

    def remove(self, view: View) -> Outstanding:
        """Stage 4: complete files lose all their `repl` columns, then their needed cells; returns those files. A
        million files may be complete at once, when their last target is no longer configured.
        """
        if view.removable:
            for columns in in_batches(self._repl_cells(view.removable)):
                self.stores.reign.check()
                self.stores.table.purge(columns)
            self._delete(chain(remover.written_cells(view.removable.in_order()), view.leftovers), view.rank)
        return view.removable

    def _repl_cells(self, files: Outstanding) -> Iterator[CellKey]:
        tables = sorted({table_id for entry in files.values() for table_id in entry.scope.table_ids})
        for table_id in tables:
            rows = scan_parts(self.stores.table, *keys.table_section(table_id), ("repl",))
            yield from remover.repl_cells(rows, files)

    def _delete(self, cells: Iterable[CellKey], rank: int) -> None:
        """Rule R2: needed cells are deleted at the rank of the cycle that decided it, so a later leader's stay."""
        for batch in in_batches(cells):
            self.stores.reign.check()
            self.stores.table.delete(batch, rank)

    def growths(self, view: View) -> list[Growth]:
        """The files that the scan found changed, or new, since the cycle before, and those of quick reads that failed.
        None in the first cycle of a reign: when their records were written is unknown.
        """
        before, files = self.snapshot, view.snapshot.files
        if not before.cycle:
            return []
        known = {entry.file: (entry, before.files.get(entry.file)) for entry in view.snapshot.fresh}
        found = {file: Growth(entry, previous, previous is None) for file, (entry, previous) in known.items()}
        untold = {file: growth._replace(entry=files[file]) for file, growth in self._untold.items() if file in files}
        return list({**found, **untold}.values())

    def publish(self, view: View, removed: Iterable[bytes] = ()) -> None:
        """Make the view the current one, also when a later stage failed: its scan was complete."""
        view.snapshot.remove(removed)
        self.snapshot = self._seen = view.snapshot
        self._rows_of = view.snapshot.tablets_of_session()
        self._passed.clear()
        self._untold.clear()
        self._moving = view.snapshot.moving()
        view.snapshot.settle()

    # ---- a quick cycle

    def note_assigned(self, session: str, row: bytes) -> None:
        """A session may use this tablet from now on: quick cycles of the session read it."""
        self._rows_of.setdefault(session, {})[row] = None

    def adopt(self, config: ClusterConfig) -> None:
        """The configuration changed, but the targets of no table: facts about files stay true under the new one."""
        self._scopes = scopes_of(config, self._scopes)

    def refresh_tablets(self, start: bytes, stop: bytes) -> list[bytes]:
        """Read the tablets of a part of a table again, after an operation changed or made them; returns their rows.
        Files are not read again: `repl:` cells never move (rule R16). Raises TransientError, CorruptionError.

        This read deletes nothing, so the chain of the part need not be complete; the next full cycle checks it.
        """
        tablets = self.snapshot.tablets
        gone = set(tablets.between(start, stop))
        found = []
        for row in self.stores.table.scan(start, stop, TABLET_FAMILIES):
            location = row.cells.get(keys.LOCATION)
            if location is not None:
                self.stores.reign.observe(location.rank)
            if keys.is_tablet(row):
                tablets.put(snapshot.tablet_view(row))
                found.append(row.key)
        for key in gone.difference(found):
            tablets.remove(key)
        return found

    def refresh(self, session: str, directory: bytes) -> list[Growth]:
        """Read the tablets of a session for facts about the session's own files that may grow, and about newer ones;
        returns the files that changed. ``directory`` is the common start of the names of its files, up to the slash.

        ``entry.safe`` becomes the needed offset of the read before, so a second read makes the offsets of the first one
        safe. Not if tablets with replicas are there, and the logs lie on the host's disk: the next full cycle decides.
        """
        files = self.snapshot.files
        before = {entry.file: entry.needed for entry in self._moving if entry.directory.startswith(directory)}
        start = min(before, default=b"") or (files.newest(directory) or directory) + b"\x00"
        changed = self._untold  # the entries change at once, so a read that fails leaves its growth to the next one
        for row in self._rows_of.get(session, ()):
            self._refresh_row(row, start, directory[:-1] + b"0", changed)
        if not self._may_hold_back(session):
            for file in {*before, *changed}:
                files[file].reach(before.get(file, 0), self.snapshot.until(file))
        entries = [growth.entry for growth in changed.values()]
        self._moving = {entry for entry in {*self._moving, *entries} if not entry.is_settled()}
        self._write_needed(entries)
        growths = list(changed.values())
        changed.clear()
        return growths

    def unsafe(self) -> list[FileEntry]:
        """Files with needed records beyond the safe offset: a second read makes these safe to ship. A file that a
        tablet holds back needs more than a read.
        """
        held_back = self.snapshot.held_back
        return [entry for entry in self._moving if entry.safe < entry.needed and entry.file not in held_back]

    def _may_hold_back(self, session: str) -> bool:
        """Rule R15: whether a tablet with replicas may have begun to use a log on this session's host since the last
        full cycle: then that one decides.
        """
        views = map(self.snapshot.tablets.get, self._rows_of.get(session, ()))
        return any(view is None or view.replicas for view in views) and self.homes.of(session) is not None

    def _refresh_row(self, row: bytes, start: bytes, stop: bytes, changed: dict[bytes, Growth]) -> None:
        found = get_slice(self.stores.table, row, "repl", start, stop)
        if found is None:
            return
        table_id, _ = keys.parse_tablet_row(row)
        for column, cell in found.cells.items():
            facts = parse_cell(cell.value)
            self._fold(table_id, column.qualifier, facts, changed, is_new=True)
            for barrier in facts.barriers:
                # R24: tables share logs, and a row that was read before its tablet's first use of a log names no log.
                entry = self.snapshot.files.get(barrier.file)
                known = entry is not None and table_id in entry.scope.table_ids
                if not known and (table_id, barrier.file) not in self._passed:
                    self._find_file(row, table_id, barrier.file, changed)

    def _find_file(self, row: bytes, table_id: str, file: bytes, changed: dict[bytes, Growth]) -> None:
        """Find the file of a barrier that the snapshot lacks for the table. It is outstanding if a row of the table
        names it: the tablet's own row, or that of a predecessor by split or merge (`repl:` cells never move, R16).
        Otherwise the target has it already.
        """
        found = get_slice(self.stores.table, row, "repl", file, file + b"\x00") or self._elsewhere(table_id, file)
        if found is None:
            self._passed.add((table_id, file))
            return
        facts = parse_cell(found.cells[Column("repl", file)].value)
        entry = self._fold(table_id, file, facts, changed, is_new=False)
        books = self.stores.table.get(keys.REPL_PREFIX + file, ("done",))
        for column, cell in () if books is None else books.cells.items():
            index = entry.scope.index_by_qualifier.get(column.qualifier)
            if index is not None:
                entry.advance(index, read_done(cell, file, self.snapshot.problems))

    def _elsewhere(self, table_id: str, file: bytes) -> Row | None:
        """The first row of a table, remnants included, with a `repl:` cell of the file; None when there is none."""
        for row in predecessor_rows(self.stores.table, table_id):
            found = get_slice(self.stores.table, row, "repl", file, file + b"\x00")
            if found is not None:
                return found
        return None

    def _fold(
        self, table_id: str, file: bytes, facts: CellFacts, changed: dict[bytes, Growth], is_new: bool
    ) -> FileEntry:
        """``is_new``: the file was made since the read before, if it is not known."""
        files = self.snapshot.files
        entry = files.get(file)
        if entry is None:
            entry = FileEntry(file, facts, self._scopes.of((table_id,)))
            files.add(entry)
            changed[file] = Growth(entry, None, is_new)
        else:
            before = entry.copy()
            if table_id not in entry.scope.table_ids:
                entry.enter(self._scopes.with_table(entry.scope, table_id))
                files.add(entry)
            entry.merge(facts)
            if not entry.equals(before):
                changed.setdefault(file, Growth(entry, before, False))
        if facts.closed:
            entry.note_closed(self._cycle)
        return entry

    def _write_needed(self, entries: Iterable[FileEntry]) -> None:
        puts = [
            RowPut(keys.REPL_PREFIX + entry.file, dict.fromkeys(entry.scope.columns, entry.status))
            for entry in entries
            if entry.scope.columns
        ]
        if puts:
            self.stores.table.put(puts, self.stores.reign.next_rank())


def predecessor_rows(table: MetadataTable, table_id: str) -> list[bytes]:
    """Rule R24: the rows that may name a file for which a tablet's records wait: those of all present and former
    tablets, because splits and merges never move `repl:` cells. Every row has a `tablet:` cell, for its serial.
    """
    return [row.key for row in table.scan(*keys.table_section(table_id), ("tablet",))]


def in_batches(cells: Iterable[CellKey]) -> Iterator[list[CellKey]]:
    """Up to :data:`BATCH_CELLS` at a time."""
    left = iter(cells)
    while batch := list(islice(left, BATCH_CELLS)):
        yield batch


def scopes_of(config: ClusterConfig, before: Scopes | None = None) -> Scopes:
    """The targets of all tables under one configuration. Scopes with equal targets come from the previous
    configuration, so that entries still share them.
    """
    targets = {table_id: found for table_id in config.tables if (found := config.targets_of(table_id))}
    return Scopes(targets, config.generation) if before is None else before.under(targets, config.generation)
