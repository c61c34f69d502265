"""The master's hold on the books: full cycles over all of them, and quick looks at what one tserver wrote.

Arrives: configuration, the metadata table, seals of logs. Leaves: CLOSED cells, needed cells, deletions; and the
current :class:`Snapshot` for the assigner. Survives a crash: the cells; the snapshot is taken again. Each stage is a
method, and a process may die between any two of them or inside one. Used by one thread; others may read ``snapshot``.
Sources: design section 6; books.md R2, R6-R10 and R16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import NotFoundError
from bookkeeper.master import closer, remover, snapshot, work_maker
from bookkeeper.master.files import FileEntry, Scopes, barriers_are_complete_to, merge_into, parse_cell
from bookkeeper.master.leader import Reign
from bookkeeper.master.snapshot import BrokenChainError, Snapshot
from bookkeeper.master.work_maker import Joined, RankWatch, RowChange
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import CellKey, MetadataTable, RowPut
from bookkeeper.model import TargetKey
from bookkeeper.storage.wal import file_summary, read_seal, recover

LOG = logging.getLogger(__name__)

SNAPSHOT_TRIES_MAX = 5
"""Scans that may meet a broken chain before the cycle is given up."""

BATCH_ROWS = 2_000
"""Rows in one put while the join goes on."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Who writes files: the session of a file, and which sessions live now."""

    session_of: Callable[[str], str | None]
    live: Collection[str]

    def is_dead(self, file: str) -> bool:
        """The file's session is known to be over. A file that no session wrote (a bulk import) has no owner."""
        session = self.session_of(file)
        return session is not None and session not in self.live


@dataclass(slots=True)
class View:
    """What one full cycle decides from: everything it read, in the order it read it."""

    rank: int
    config: ClusterConfig
    scopes: Scopes
    snapshot: Snapshot
    configured: frozenset[TargetKey]
    removable: dict[bytes, list[CellKey]] = field(default_factory=dict)
    orphans: list[CellKey] = field(default_factory=list)


class Books:
    """Executes the stages of a cycle for one reign."""

    def __init__(self, table: MetadataTable, reign: Reign, read_config: Callable[[], ClusterConfig]) -> None:
        self._table = table
        self._reign = reign
        self._read_config = read_config
        self._cycle = 0
        self._seen: Snapshot | None = None
        self._scopes = Scopes({})
        self._rows_of: dict[str, list[bytes]] = {}
        self._moving: set[bytes] = set()
        self.snapshot = Snapshot(0)

    # ---- a full cycle, stage by stage

    def look(self) -> View:
        """Stage 1: the configuration first (rule R6), then the snapshot. Raises TransientError, CorruptionError."""
        self._cycle += 1
        for _ in range(SNAPSHOT_TRIES_MAX):
            rank = self._reign.next_rank()
            config = configuration(self._read_config)
            scopes = Scopes({table_id: config.targets_of(table_id) for table_id in config.tables})
            try:
                return self._look_once(rank, config, scopes)
            except BrokenChainError as error:
                LOG.info("the scan starts over: %s", error.message)
                broken = error
        raise broken

    def _look_once(self, rank: int, config: ClusterConfig, scopes: Scopes) -> View:
        online = [table_id for table_id, table in config.tables.items() if table.state == "online"]
        rows = self._table.scan(keys.TABLETS_START, keys.TABLETS_STOP, snapshot.SNAPSHOT_FAMILIES)
        seen = snapshot.take_snapshot(rows, self._cycle, scopes, online, self.snapshot.files)
        self._reign.observe(seen.highest_rank)
        configured = frozenset(target.key for table in config.tables.values() for target in table.targets)
        return View(rank, config, scopes, seen, configured)

    def close(self, view: View, read_owners: Callable[[], Owners]) -> None:
        """Stage 2: rule R10. Files that turn out CLOSED are folded into the snapshot at once.

        Who lives is asked after the scan: a session is there before its files, so the owner of a newborn file is known.
        """
        owners = read_owners()
        for file, cells in list(view.snapshot.open_cells.items()):
            uri = file.decode()
            closed = self._closed_cells(uri, owners, {cell.row: cell.value for cell in cells}, view)
            if closed is None:
                continue
            self._reign.check()
            self._table.put(closed.rows, closed.rank)
            self._fold_closed(view, file, closed)

    def _fold_closed(self, view: View, file: bytes, closed: closer.ClosedCells) -> None:
        entry = view.snapshot.files[file]
        column = keys.repl_column(file.decode())
        for put in closed.rows:
            merge_into(entry, parse_cell(put.values[column]))
        entry.closed_in = self._cycle
        entry.safe = entry.needed  # the file itself told all barriers
        del view.snapshot.open_cells[file]

    def _closed_cells(
        self, uri: str, owners: Owners, open_values: dict[bytes, bytes], view: View
    ) -> closer.ClosedCells | None:
        dead = owners.is_dead(uri)
        try:
            if not closer.needs_closing(read_seal(uri) is not None, dead):
                return None
            if dead:
                recover(uri)
            summary = file_summary(uri)
        except NotFoundError:
            return None  # rule R11: the collector deals with books of missing files (rule R4)
        return closer.close_cells(uri, open_values, summary, view.snapshot.tablets)

    def keep(self, view: View) -> None:
        """Stage 3: the merge-join. Writes needed cells, deletes those of targets that are no longer configured."""
        start, stop = keys.section(keys.REPL_PREFIX)
        rows = self._table.scan(start, stop, work_maker.BOOKS_FAMILIES)
        batch: list[RowChange] = []
        before = None if self._seen is None else self._seen.files
        watch = RankWatch()
        for joined in work_maker.join(view.snapshot.files, rows):
            if joined.entry is None:
                view.orphans += self._orphaned(joined, before, watch)
                continue
            change = work_maker.make_work(joined.entry, joined.row, view.configured, watch, view.snapshot.problems)
            if change is not None:
                batch.append(change)
                if len(batch) >= BATCH_ROWS:
                    self._apply(batch, view.rank)
                    batch = []
            if remover.is_removable(joined.entry, self._cycle):
                cells = [] if joined.row is None else remover.needed_cells(joined.row)
                view.removable[joined.file] = cells
        self._apply(batch, view.rank)
        self._reign.observe(watch.highest)

    def _orphaned(self, joined: Joined, before: Mapping[bytes, FileEntry] | None, watch: RankWatch) -> list[CellKey]:
        if joined.row is None:
            return []
        watch.look(joined.row)
        return remover.needed_cells(joined.row) if remover.is_orphan(joined.file, before) else []

    def _apply(self, changes: Sequence[RowChange], rank: int) -> None:
        puts = [put for change in changes if (put := change.put()) is not None]
        deletes = [cell for change in changes for cell in change.deletes]
        self._reign.check()
        if puts:
            self._table.put(puts, rank)
        if deletes:
            self._table.delete(deletes, rank)

    def remove(self, view: View) -> list[bytes]:
        """Stage 4: complete files lose their `repl` columns, then their needed cells; returns those files."""
        self._delete(view.orphans, view.rank)
        if not view.removable:
            return []
        columns: list[CellKey] = []
        tables = sorted({t for file in view.removable for t in view.snapshot.files[file].scope.table_ids})
        for table_id in tables:
            rows = self._table.scan(*keys.table_section(table_id), ("repl",))
            columns += remover.repl_cells(rows, view.removable)
        self._reign.check()
        self._table.purge(columns)
        # what this cycle's join has just written is deleted as well: a delete at a rank hides that rank
        cells = {cell for found in view.removable.values() for cell in found}
        cells |= {
            CellKey(keys.REPL_PREFIX + file, column)
            for file in view.removable
            for column in view.snapshot.files[file].scope.columns
        }
        self._delete(sorted(cells), view.rank)
        return list(view.removable)

    def _delete(self, cells: Sequence[CellKey], cycle_rank: int) -> None:
        self._reign.check()
        if cells:
            self._table.delete(cells, remover.removal_rank(cycle_rank))

    def publish(self, view: View, removed: Iterable[bytes] = ()) -> None:
        """Make the view the current one. A view whose scan was whole is worth keeping even if a later stage failed."""
        for file in removed:
            del view.snapshot.files[file]
        self.snapshot = self._seen = view.snapshot
        self._scopes = view.scopes
        self._rows_of = view.snapshot.tablets_of_session()
        self._moving = {file for file, entry in view.snapshot.files.items() if is_moving(entry)}

    # ---- a quick look

    def note_assigned(self, session: str, row: bytes) -> None:
        """A session may use this tablet from now on: quick looks at the session include it."""
        rows = self._rows_of.setdefault(session, [])
        if row not in rows:
            rows.append(row)

    def refresh(self, session: str, file_prefix: bytes) -> list[FileEntry]:
        """Read what a session's tablets say of the session's own files; returns the files that changed.

        ``entry.safe`` reaches what was known before this look, so a second look makes the first one's offsets safe.
        """
        files = self.snapshot.files
        before = {file: files[file].needed for file in self._moving if file.startswith(file_prefix)}
        changed: dict[bytes, FileEntry] = {}
        for row in self._rows_of.get(session, ()):
            self._refresh_row(row, file_prefix, changed)
        for file in {*before, *changed}:
            files[file].safe = barriers_are_complete_to(before.get(file, 0), files[file].needed)
        self._moving = {file for file in {*self._moving, *changed} if is_moving(files[file])}
        self._write_needed(changed.values())
        return list(changed.values())

    def unsafe(self) -> list[bytes]:
        """Files with more needed than a first look makes safe: another look lets their records go."""
        return [file for file in self._moving if self.snapshot.files[file].safe < self.snapshot.files[file].needed]

    def _refresh_row(self, row: bytes, file_prefix: bytes, changed: dict[bytes, FileEntry]) -> None:
        found = self._table.get(row, ("repl",))
        if found is None:
            return
        cells = {column.qualifier: cell.value for column, cell in found.cells.items()}
        table_id, _ = keys.parse_tablet_row(row)
        wanted = [file for file in cells if file.startswith(file_prefix)]
        for file in wanted:
            entry = self._fold(table_id, file, cells[file], changed)
            for barrier in entry.barriers:
                if barrier.file in cells and barrier.file not in self.snapshot.files:
                    self._fold(table_id, barrier.file, cells[barrier.file], changed)

    def _fold(self, table_id: str, file: bytes, value: bytes, changed: dict[bytes, FileEntry]) -> FileEntry:
        files = self.snapshot.files
        facts = parse_cell(value)
        entry = files.get(file)
        if entry is None:
            entry = FileEntry(file, facts, self._scopes.of((table_id,)))
            files[file] = changed[file] = entry
        else:
            known = (entry.status, entry.barriers, entry.scope)
            merge_into(entry, facts)
            if table_id not in entry.scope.table_ids:
                entry.scope = self._scopes.with_table(entry.scope, table_id)
                entry.progress = ()
            if known != (entry.status, entry.barriers, entry.scope):
                changed[file] = entry
        if facts.closed and not entry.closed_in:
            entry.closed_in = self._cycle
        return entry

    def _write_needed(self, entries: Iterable[FileEntry]) -> None:
        puts = [
            RowPut(keys.REPL_PREFIX + entry.file, dict.fromkeys(entry.scope.columns, entry.status))
            for entry in entries
            if entry.scope.columns
        ]
        if puts:
            self._table.put(puts, self._reign.next_rank())


def is_moving(entry: FileEntry) -> bool:
    """The file may grow, or has grown beyond what is safe to ship."""
    return not entry.is_closed() or entry.safe < entry.needed


def configuration(read: Callable[[], ClusterConfig]) -> ClusterConfig:
    """Rule R6: each cycle reads the configuration first, and one that can't be read ends the cycle: the error goes up.

    It never means that nothing is configured.
    """
    return read()
