"""One scan of all tablet rows: outstanding files, folded per file, and the tserver of each tablet.

Arrives: tablet rows in key order, long ones in parts, and the snapshot before (to share unchanged entries and their
facts). Leaves: a :class:`Snapshot`, or :class:`BrokenChainError` when the scan met a merge, split or deletion half way
and has to start over. Memory grows with distinct outstanding files and tablets, never with cells. Rules: R7 and R16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import CorruptionError, TransientError
from bookkeeper.master.index import log_names
from bookkeeper.master.index.barriers import still_outstanding
from bookkeeper.master.index.file_entry import (
    CellFacts,
    FileEntry,
    Scope,
    Scopes,
    is_news,
    parse_cell,
)
from bookkeeper.master.index.held_back import NO_LOGS_ON_HOSTS, HeldBack, LogsOnHosts
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.index.tablet_replicas import NO_REPLICAS, TabletReplica, replicas_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.lost_logs import lost_cells
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.model import Extent
from bookkeeper.replicas.naming import UNLIMITED

SNAPSHOT_FAMILIES = ("repl", "tablet", "location", keys.REPLICA_FAMILY)
"""The columns that a snapshot reads of each tablet row."""

HOST_LOGS_FAMILIES = (*SNAPSHOT_FAMILIES, "log")
"""The same, when logs lie on hosts' disks."""


class BrokenChainError(TransientError):
    """The tablets of a table have a gap or an overlap (rule R16): they changed during the scan, so read them again."""

    code = "broken_chain"


class TabletView(Struct, frozen=True):
    """One tablet: its row's key, its extent, its directory, and the session it is assigned to, if any. ``parked_at`` is
    the last session of a tablet that no tserver may load now. ``flush_rank`` rises with each change of its segments.
    ``replicas``: () with one replica, on the Volume. ``lost``: logs with a ``tablet:lost:`` cell, void ones included.
    """

    row: bytes
    extent: Extent
    directory: str
    session: str | None
    address: str | None
    parked_at: str | None = None
    flush_rank: int = 0
    replicas: tuple[TabletReplica, ...] = NO_REPLICAS
    lost: tuple[str, ...] = ()


class OpenCell(Struct, frozen=True):
    """A `repl:` cell of a file that no cell calls CLOSED yet."""

    row: bytes
    file: bytes
    value: bytes


class Snapshot(Struct):
    """The outstanding files and the tablets of one scan.

    ``problems`` name cells that do not parse, ``highest_rank`` is the highest of any location (rule R8), ``fresh`` are
    the files' entries that are not shared with the snapshot before, ``held_back`` the logs on hosts' disks of which
    peers may not have the end (R15).
    """

    cycle: int
    files: Outstanding = field(default_factory=Outstanding)
    tablets: TabletIndex = field(default_factory=TabletIndex)
    open_cells: dict[bytes, list[OpenCell]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    highest_rank: int = 0
    fresh: list[FileEntry] = field(default_factory=list)
    held_back: dict[bytes, HeldBack] = field(default_factory=dict)

    def add_fresh(self, entry: FileEntry) -> None:
        """Add a file's entry that the snapshot before does not share."""
        self.files.put(entry)
        self.fresh.append(entry)

    def note_problem(self, problem: str) -> None:
        """A cell does not parse."""
        self.problems.append(problem)

    def note_location(self, rank: int) -> None:
        """The scan met a location of this rank."""
        self.highest_rank = max(self.highest_rank, rank)

    def note_held_back(self, held_back: Mapping[bytes, HeldBack]) -> None:
        """A tablet holds these logs back; the lowest offset counts."""
        for log, held in held_back.items():
            known = self.held_back.get(log)
            if known is None or held.until < known.until:
                self.held_back[log] = held

    def until(self, file: bytes) -> int:
        """Rule R15: up to which offset the tablets hold nothing of the file back."""
        held = self.held_back.get(file)
        return UNLIMITED if held is None else held.until

    def note_closed(self, entry: FileEntry) -> None:
        """A cell, or the file itself, is CLOSED."""
        entry.note_closed(self.cycle)
        self.open_cells.pop(entry.file, None)

    def note_open(self, cell: OpenCell) -> None:
        """A cell of a file that no cell calls CLOSED."""
        self.open_cells.setdefault(cell.file, []).append(cell)

    def remove(self, files: Iterable[bytes]) -> None:
        """Remove files that are no longer outstanding."""
        for file in files:
            self.files.remove(file)

    def settle(self) -> None:
        """Drop the list of fresh entries: the snapshot is now the current one."""
        self.fresh.clear()

    def moving(self) -> list[FileEntry]:
        """Files that may grow, or have grown beyond what is safe to ship."""
        return [entry for entry in self.fresh if not entry.is_settled() and entry.file in self.files]

    def tablets_of_session(self) -> dict[str, dict[bytes, None]]:
        """Session to the rows of the tablets that are assigned to it, or were parked at it; in order."""
        return {session: dict(self.tablets.rows_of(session)) for session in self.tablets.sessions()}


class SnapshotBuilder:
    """Folds rows into a snapshot. ``online`` are the tables whose tablets must join up."""

    def __init__(
        self,
        cycle: int,
        scopes: Scopes,
        online: Collection[str],
        previous: Outstanding,
        logs_on_hosts: LogsOnHosts = NO_LOGS_ON_HOSTS,
    ) -> None:
        self._snapshot = Snapshot(cycle)
        self._scopes = scopes
        self._online = frozenset(online)
        self._previous = previous
        self._logs_on_hosts = logs_on_hosts
        self._chains = Chains(self._online)
        self._row: bytes | None = None
        self._tablet_cells: dict[Column, Cell] = {}
        self._unsettled: list[FileEntry] = []

    def add(self, row: Row) -> None:
        """Fold one tablet row, a remnant, or a part of either. Raises BrokenChainError when the row before does not
        follow the one before that.
        """
        if row.key != self._row:
            self._end_row()
            self._row = row.key
        table_id, _ = keys.parse_tablet_row(row.key)
        files, previous = self._snapshot.files, self._previous
        scope = self._scopes.of((table_id,))
        for column, cell in row.cells.items():
            if column.family != "repl":
                self._tablet_cells[column] = cell
                continue
            file = column.qualifier
            directory, number = log_names.split(file)
            entry = files.find(directory, number)
            if entry is None:
                known = previous.find(directory, number)
                if known is None or known.scope is not scope or not known.is_closed():
                    self._fold_first(row.key, file, cell.value, scope)
                    continue
                files.put_at(number, known)
                if not known.is_settled():
                    self._unsettled.append(known)
                    self._fold_more(row.key, table_id, known, cell.value)
            elif entry.scope is not scope or not entry.is_settled():
                self._fold_more(row.key, table_id, entry, cell.value)

    def finish(self) -> Snapshot:
        """The snapshot. Raises BrokenChainError when the last tablet of a table is missing."""
        self._end_row()
        self._chains.finish()
        files = self._snapshot.files
        for entry in self._snapshot.fresh:
            known = self._previous.get(entry.file)
            if known is not None:
                entry.take_over(known, self._snapshot.until(entry.file))
            barriers = entry.barriers
            kept = still_outstanding(barriers, files)
            if len(kept) < len(barriers):
                entry.wait_for(kept)
        for entry in self._unsettled:  # every row was read since it was CLOSED
            if files[entry.file] is entry:
                entry.reach(entry.needed, self._snapshot.until(entry.file))
        return self._snapshot

    def _end_row(self) -> None:
        """All parts of a row are folded: add its tablet."""
        if self._row is None:
            return
        row = Row(self._row, self._tablet_cells)
        view = tablet_view(row)
        if keys.is_tablet(row):
            self._chains.add(view)
            self._snapshot.tablets.put(view)
        if self._logs_on_hosts.sessions:
            self._snapshot.note_held_back(self._logs_on_hosts.held_back_by(row, view.replicas))
        location = row.cells.get(keys.LOCATION)
        if location is not None:
            self._snapshot.note_location(location.rank)
        self._tablet_cells = {}

    def _fold_first(self, row: bytes, file: bytes, value: bytes, scope: Scope) -> None:
        facts = self._facts(row, file, value)
        entry = FileEntry(file, facts, scope)
        self._snapshot.add_fresh(entry)
        self._note_state(row, entry, facts, value)

    def _fold_more(self, row: bytes, table_id: str, entry: FileEntry, value: bytes) -> None:
        facts = self._facts(row, entry.file, value)
        if entry is self._previous.get(entry.file):  # shared with the snapshot before, which must stay as it is
            if table_id in entry.scope.table_ids and not is_news(entry, facts):
                return
            entry = entry.copy()
            self._snapshot.add_fresh(entry)
        if table_id not in entry.scope.table_ids:
            entry.enter(self._scopes.with_table(entry.scope, table_id))
        entry.merge(facts)
        self._note_state(row, entry, facts, value)

    def _facts(self, row: bytes, file: bytes, value: bytes) -> CellFacts:
        try:
            return parse_cell(value)
        except CorruptionError as error:
            self._snapshot.note_problem(f"{row!r} repl:{file.decode(errors='replace')}: {error}")
            return parse_cell(b"")

    def _note_state(self, row: bytes, entry: FileEntry, facts: CellFacts, value: bytes) -> None:
        if facts.closed and not entry.closed_in:
            self._snapshot.note_closed(entry)
        elif not entry.closed_in:
            self._snapshot.note_open(OpenCell(row, entry.file, value))


def tablet_view(row: Row) -> TabletView:
    """The tablet of a row. Raises CorruptionError when its key or cells do not parse."""
    table_id, end_row = keys.parse_tablet_row(row.key)
    prev_cell = row.cells.get(keys.PREV_ROW)
    dir_cell = row.cells.get(keys.DIR)
    location = row.cells.get(keys.LOCATION)
    prev_row = None if prev_cell is None else values.decode_prev_row(prev_cell.value)
    assigned = None if location is None else values.Location.decode(location.value)
    extent, directory = Extent(table_id, end_row, prev_row), "" if dir_cell is None else dir_cell.value.decode()
    replicas = replicas_of(row)
    lost = tuple(lost_cells(row)) if replicas else ()
    flush = row.cells.get(keys.FLUSH)
    flush_rank = 0 if flush is None else flush.rank
    if assigned is None:
        return TabletView(row.key, extent, directory, None, None, None, flush_rank, replicas, lost)
    if assigned.is_parked:
        return TabletView(row.key, extent, directory, None, None, assigned.session, flush_rank, replicas, lost)
    return TabletView(row.key, extent, directory, assigned.session, assigned.address, None, flush_rank, replicas, lost)


def verify_chain(before: TabletView | None, after: TabletView | None, online: Collection[str]) -> None:
    """Rule R16: tablets of one table follow each other without gap or overlap, from the first row to the last.

    References to a file move only to a row that sorts later, put before delete: a scan that met the tablets in an
    unbroken chain has met every reference. Tables that are being made or deleted are left out.
    """
    old = None if before is None else before.extent
    new = None if after is None else after.extent
    if old is not None and new is not None and old.table_id == new.table_id:
        if old.table_id in online and old.end_row != new.prev_row:
            raise BrokenChainError(
                f"table {old.table_id}: after row {old.end_row!r} comes a tablet from {new.prev_row!r}"
            )
        return
    if old is not None and old.table_id in online and old.end_row is not None:
        raise BrokenChainError(f"table {old.table_id}: no tablet follows the one that ends at {old.end_row!r}")
    if new is not None and new.table_id in online and new.prev_row is not None:
        raise BrokenChainError(f"table {new.table_id}: its first tablet starts at {new.prev_row!r}")


class Chains:
    """Rule R16 over one scan of tablets in order of their rows: every table of ``online`` has a whole chain, so each
    has a row. Only a scan that passes proves that a file is not referred to. Raises BrokenChainError.
    """

    def __init__(self, online: Collection[str]) -> None:
        self._online = online
        self._last: TabletView | None = None
        self._seen: set[str] = set()

    def add(self, view: TabletView) -> None:
        """The next tablet."""
        verify_chain(self._last, view, self._online)
        self._last = view
        self._seen.add(view.extent.table_id)

    def finish(self) -> None:
        """Check the last table and the missing ones, after the last tablet."""
        verify_chain(self._last, None, self._online)
        missing = missing_tables(self._online, self._seen)
        if missing:
            raise BrokenChainError(f"no tablets were found of tables {', '.join(missing)}: read them again")


def missing_tables(online: Collection[str], seen: Collection[str]) -> list[str]:
    """Tables that are online and of which a scan found no tablet."""
    return sorted(set(online) - set(seen))


def chained(parts: Iterable[Row], online: Collection[str]) -> Iterator[Row]:
    """The same rows, or parts of rows, read with the family ``tablet``. Raises BrokenChainError, at the latest at the
    end, if their tablets have a gap or an overlap (:class:`Chains`).
    """
    chains = Chains(online)
    key, tablet_cells = b"", dict[Column, Cell]()
    for part in parts:
        if part.key != key:
            _add_row(chains, key, tablet_cells)
            key, tablet_cells = part.key, {}
        tablet_cells.update((column, cell) for column, cell in part.cells.items() if column.family == "tablet")
        yield part
    _add_row(chains, key, tablet_cells)
    chains.finish()


def _add_row(chains: Chains, key: bytes, tablet_cells: Mapping[Column, Cell]) -> None:
    row = Row(key, tablet_cells)
    if keys.is_tablet(row):
        chains.add(tablet_view(row))


def online_tables(config: ClusterConfig) -> frozenset[str]:
    """Tables whose tablets have to join up: all but those that are being made or deleted."""
    return frozenset(table_id for table_id, table in config.tables.items() if table.state == "online")


def take_snapshot(
    rows: Iterable[Row],
    cycle: int,
    scopes: Scopes,
    online: Collection[str],
    previous: Outstanding,
    logs_on_hosts: LogsOnHosts = NO_LOGS_ON_HOSTS,
) -> Snapshot:
    """Fold all rows. Raises BrokenChainError and CorruptionError."""
    builder = SnapshotBuilder(cycle, scopes, online, previous, logs_on_hosts)
    for row in rows:
        builder.add(row)
    return builder.finish()
