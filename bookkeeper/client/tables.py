"""Tables: made, listed, changed, flushed, deleted; each a call of the leading master.

A call that had to be repeated after a lost answer succeeds when the earlier attempt did.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from bookkeeper.client.master_link import BUDGET_MS, MasterLink
from bookkeeper.clock import Clock
from bookkeeper.errors import ExistsError, NotFoundError, UnavailableError
from bookkeeper.model import LocalityGroup, RowRange
from bookkeeper.rpc.contract.messages import (
    BulkProgress,
    CompactionTicket,
    CompactRequest,
    CopyRequest,
    ImportRequest,
    TableInfo,
    TabletLocation,
    TableUsage,
)

POLL_MS = 100


class Tables:
    """``client.tables``. Every method raises what the master says, or UnavailableError."""

    def __init__(self, master: MasterLink, clock: Clock, stopped: threading.Event) -> None:
        self._master = master
        self._clock = clock
        self._stopped = stopped

    def list(self, budget_ms: float = BUDGET_MS) -> Sequence[TableInfo]:
        """All tables."""
        tables: Sequence[TableInfo] = self._master.call("tables", budget_ms=budget_ms)
        return tables

    def get(self, name: str, budget_ms: float = BUDGET_MS) -> TableInfo:
        """One table; raises NotFoundError."""
        for table in self.list(budget_ms):
            if table.name == name:
                return table
        raise NotFoundError(f"no table {name}; the command tables lists those there are")

    def create(
        self,
        name: str,
        splits: Sequence[bytes] = (),
        groups: Sequence[LocalityGroup] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableInfo:
        """Make a table whose tablets end at ``splits`` (rows, included); raises ExistsError, InvalidInputError."""
        arguments = (name, list(splits), list(groups), dict(properties or {}))
        made: TableInfo | None = self._master.call("create_table", *arguments, settled_by=ExistsError)
        return made or self.get(name)

    def delete(self, name: str) -> None:
        """Delete a table and its data; raises NotFoundError."""
        self._master.call("delete_table", name, settled_by=NotFoundError)

    def set_groups(self, name: str, groups: Sequence[LocalityGroup]) -> None:
        """Replace the locality groups of a table; raises NotFoundError, InvalidInputError."""
        self._master.call("set_groups", name, list(groups))

    def change_properties(
        self, name: str, changes: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> TableInfo:
        """Set some properties of a table and take others away (then their defaults hold); in force on return. Raises
        NotFoundError, InvalidInputError. What there is: :mod:`bookkeeper.config.table_properties`.
        """
        table: TableInfo = self._master.call("change_properties", name, dict(changes or {}), list(removals))
        return table

    def set_read_only(self, read_only: bool, name: str | None = None) -> None:
        """Refuse users' writes to a table (None: to any table of the cluster), or take them again; replicated data
        comes in all the time. In force on every tserver on return. Raises NotFoundError.
        """
        if name is None:
            self._master.call("set_read_only", read_only)
        elif read_only:
            self.change_properties(name, {"table.read_only": "true"})
        else:
            self.change_properties(name, removals=["table.read_only"])

    def is_read_only(self, name: str | None = None) -> bool:
        """Whether a table refuses users' writes by its own setting (None: whether the whole cluster does)."""
        if name is None:
            cluster_is: bool = self._master.call("is_read_only")
            return cluster_is
        return self.get(name).properties.get("table.read_only") == "true"

    def flush(self, name: str) -> None:
        """Write what the tablets hold in memory to segments; raises NotFoundError."""
        self._master.call("flush_table", name)

    def compact(
        self, name: str, begin_row: bytes | None = None, end_row: bytes | None = None, *, wait: bool = True
    ) -> None:
        """Have the tablets with rows from ``begin_row`` to ``end_row`` (both included, None = no end) compacted: all
        segments of each become one for each locality group, and what counts no more goes. Returns when every tserver
        was asked or, to ``wait``, when it is done. Raises NotFoundError.
        """
        left: Sequence[CompactionTicket] = self._master.call(
            "compact_table", CompactRequest(name, begin_row, end_row, ())
        )
        while [ticket for ticket in left if wait or not ticket.ticket]:
            if self._clock.wait(self._stopped, POLL_MS):
                raise UnavailableError(f"nobody waits any more for the compaction of table {name}")
            left = self._master.call("compact_table", CompactRequest(name, begin_row, end_row, tuple(left)))

    def import_directory(self, name: str, directory: Path | str, time_ms: int | None = None) -> int:
        """Import the Parquet and CSV files of a directory on the master's machine; returns how many records. Those
        without a timestamp get ``time_ms``, by default that of the import's begin. Each tablet's records show at once.
        Raises NotFoundError, InvalidInputError (nothing was changed), ReadOnlyError, RefusedError.
        """
        request = ImportRequest(uuid.uuid4().hex, name, str(directory), time_ms)
        return self._until_done("import_directory", request)

    def export(self, name: str, directory: Path | str) -> int:
        """Copy a table into a directory on the master's machine that is empty or not there: all that was written
        before, with a manifest; returns how many records its segments hold. Raises NotFoundError, ExistsError.
        """
        return self._until_done("export_table", CopyRequest(uuid.uuid4().hex, name, str(directory)))

    def import_exported(self, name: str, directory: Path | str) -> int:
        """Make a table of an export: same tablets, groups, properties (but read-only) and timestamps; returns how many
        records its segments hold. Raises ExistsError, InvalidInputError, CorruptionError: then there is no such table.
        """
        return self._until_done("import_table", CopyRequest(uuid.uuid4().hex, name, str(directory)))

    def _until_done(self, method: str, request: ImportRequest | CopyRequest) -> int:
        while True:
            progress: BulkProgress = self._master.call(method, request)
            if progress.done:
                return progress.records
            if self._stopped.is_set():
                raise UnavailableError(f"nobody waits any more for what table {request.table} is about; it goes on")

    def disk_usage(self, *names: str) -> Sequence[TableUsage]:
        """What tables have on disk, all if none is named; what is in memory is not counted. Raises NotFoundError."""
        usages: Sequence[TableUsage] = self._master.call("disk_usage", list(names))
        return usages

    def splits(self, name: str) -> Sequence[bytes]:
        """The rows at which tablets of a table end, but for the last one; raises NotFoundError."""
        ends = (found.extent.end_row for found in self.locate(self.get(name).table_id))
        return [row for row in ends if row is not None]

    def add_splits(self, name: str, rows: Sequence[bytes]) -> None:
        """Let tablets end at these rows, too; raises NotFoundError, InvalidInputError. The tablets that change are away
        for the time of a flush; what writes and scans at the time is held up.
        """
        self._master.call("add_splits", name, sorted(set(rows)))

    def merge(self, name: str, after: bytes | None = None, through: bytes | None = None) -> None:
        """Make one tablet of all those with rows behind ``after`` (None: from the first one on) up to ``through``,
        included (None: to the last one). Raises NotFoundError, InvalidInputError, RefusedError. See :meth:`add_splits`.
        """
        self._master.call("merge_tablets", name, RowRange(after, through))

    def locate_tablet(self, table_id: str, row: bytes, budget_ms: float = BUDGET_MS) -> TabletLocation:
        """Where the tablet is that holds a row; if it is about to be loaded, it goes first. Raises NotFoundError."""
        location: TabletLocation = self._master.call("locate_tablet", table_id, row, budget_ms=budget_ms)
        return location

    def locate(self, table_id: str, budget_ms: float = BUDGET_MS) -> Sequence[TabletLocation]:
        """Where the tablets of a table are; raises NotFoundError."""
        locations: Sequence[TabletLocation] = self._master.call("locate", table_id, budget_ms=budget_ms)
        return locations
