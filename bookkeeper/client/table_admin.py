"""Administration of tables; each method is a call of the leading master.

A call that is repeated after a lost answer succeeds when the first one succeeded.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bookkeeper.client.master_link import BUDGET_MS, MasterLink
from bookkeeper.clock import Clock
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, UnavailableError
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

Report = Callable[[int, str], None]
"""Takes how much of long work is left, and the unit: ``bytes``, or a plural such as ``tablets``."""


def no_report(left: int, unit: str) -> None:
    """Nobody looks."""
    del left, unit


def _check_rows(rows: Sequence[bytes]) -> None:
    for row in rows:
        if not isinstance(row, bytes):
            raise InvalidInputError(f"a split is bytes, not {row!r}")


class Tables:
    """``client.tables``: create, list, change, split, copy and delete tables.

    Every method raises the master's error, or UnavailableError when no master answers for 30 seconds; methods with
    ``budget_ms`` wait for that many milliseconds instead. A client repeats a call when the answer is lost; the call
    succeeds when the first one succeeded.
    """

    def __init__(self, master: MasterLink, clock: Clock, stopped: threading.Event) -> None:
        self._master = master
        self._clock = clock
        self._stopped = stopped

    def list(self, budget_ms: float = BUDGET_MS) -> Sequence[TableInfo]:
        """All tables."""
        tables: Sequence[TableInfo] = self._master.call("tables", budget_ms=budget_ms)
        return tables

    def get(self, name: str, budget_ms: float = BUDGET_MS) -> TableInfo:
        """One table. Raises NotFoundError."""
        for table in self.list(budget_ms):
            if table.name == name:
                return table
        raise NotFoundError(f"no table {name}; the command tables lists all tables")

    def create(
        self,
        name: str,
        splits: Sequence[bytes] = (),
        groups: Sequence[LocalityGroup] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableInfo:
        """Create a table; it is online on return. Each row of ``splits`` is the last row of a tablet. ``groups`` are
        the locality groups, ``properties`` those of ``bookkeeper.config.table_properties``. Raises ExistsError,
        InvalidInputError.
        """
        _check_rows(splits)
        arguments = (name, list(splits), list(groups), dict(properties or {}))
        made: TableInfo | None = self._master.call("create_table", *arguments, settled_by=ExistsError)
        return made or self.get(name)

    def delete(self, name: str) -> None:
        """Delete a table and its data. Raises NotFoundError, ReadOnlyError."""
        self._master.call("delete_table", name, settled_by=NotFoundError)

    def set_groups(self, name: str, groups: Sequence[LocalityGroup]) -> None:
        """Replace the locality groups of a table. Raises NotFoundError, InvalidInputError."""
        self._master.call("set_groups", name, list(groups))

    def change_properties(
        self, name: str, changes: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> TableInfo:
        """Set the properties ``changes`` and return those in ``removals`` to their defaults; in force on every tserver
        on return (rule R14). The keys stand in ``bookkeeper.config.table_properties``. Raises NotFoundError,
        InvalidInputError.
        """
        table: TableInfo = self._master.call("change_properties", name, dict(changes or {}), list(removals))
        return table

    def set_read_only(self, read_only: bool, name: str | None = None) -> None:
        """Refuse users' writes to a table, or accept them again; ``name`` None = to every table of the cluster. Peers
        may replicate into the table all the time. In force on every tserver on return (rule R14). Raises NotFoundError.
        """
        if name is None:
            self._master.call("set_read_only", read_only)
        elif read_only:
            self.change_properties(name, {"table.read_only": "true"})
        else:
            self.change_properties(name, removals=["table.read_only"])

    def is_read_only(self, name: str | None = None) -> bool:
        """Whether a table refuses users' writes by its own property; ``name`` None = whether the whole cluster does.
        Raises NotFoundError.
        """
        if name is None:
            cluster_is: bool = self._master.call("is_read_only")
            return cluster_is
        return self.get(name).properties.get("table.read_only") == "true"

    def flush(self, name: str) -> None:
        """Write the memtables of all tablets of a table to segments. Raises NotFoundError."""
        self._master.call("flush_table", name)

    def compact(
        self,
        name: str,
        begin_row: bytes | None = None,
        end_row: bytes | None = None,
        *,
        wait: bool = True,
        progress: Report = no_report,
    ) -> None:
        """Compact the tablets that hold rows from ``begin_row`` to ``end_row``, both included; None = no bound. All
        segments of a tablet become one for each locality group, without deleted cells and surplus versions. Returns
        when all tablets are compacted; with ``wait`` False when every tserver has the request. ``progress`` gets the
        number of tablets that are left, ten times a second. Raises NotFoundError.
        """
        tickets: Sequence[CompactionTicket] = self._master.call(
            "compact_table", CompactRequest(name, begin_row, end_row, ())
        )
        while [ticket for ticket in tickets if wait or not ticket.ticket]:
            progress(len(tickets), "tablets")
            if self._clock.wait(self._stopped, POLL_MS):
                raise UnavailableError(f"the client closed while it waited for the compaction of table {name}")
            tickets = self._master.call("compact_table", CompactRequest(name, begin_row, end_row, tuple(tickets)))

    def import_directory(
        self, name: str, directory: Path | str, time_ms: int | None = None, progress: Report = no_report
    ) -> int:
        """Import the Parquet and CSV files of a directory on the master's machine; returns the number of records.

        Records without a timestamp get ``time_ms`` (milliseconds since 1970), by default the time at which the import
        began. All records of a tablet become visible together. ``progress`` gets what is left of the present step,
        some times a second. Raises NotFoundError, ReadOnlyError, InvalidInputError for a file that can't be imported
        (then nothing is changed), RefusedError for a directory outside ``files.roots``.
        """
        request = ImportRequest(uuid.uuid4().hex, name, str(directory), time_ms)
        return self._until_done("import_directory", request, progress)

    def export(self, name: str, directory: Path | str, progress: Report = no_report) -> int:
        """Copy a table, with all records that were written before this call, into an empty or new directory on the
        master's machine; returns the number of records in the copied segments. ``progress``: see
        :meth:`import_directory`. Raises NotFoundError, ExistsError when the directory is not empty, RefusedError when
        it is outside ``files.roots``.
        """
        return self._until_done("export_table", CopyRequest(uuid.uuid4().hex, name, str(directory)), progress)

    def import_exported(self, name: str, directory: Path | str, progress: Report = no_report) -> int:
        """Create a table from a directory that :meth:`export` wrote, with the same tablets, groups, timestamps and
        properties except ``table.read_only``; returns the number of records in its segments. ``progress``: see
        :meth:`import_directory`. Raises ExistsError, RefusedError, InvalidInputError, CorruptionError; then there is no
        such table.
        """
        return self._until_done("import_table", CopyRequest(uuid.uuid4().hex, name, str(directory)), progress)

    def _until_done(self, method: str, request: ImportRequest | CopyRequest, progress: Report) -> int:
        while True:
            found: BulkProgress = self._master.call(method, request)
            if found.done:
                return found.records
            if found.left is not None and found.unit is not None:
                progress(found.left, found.unit)
            if self._stopped.is_set():
                raise UnavailableError(f"the client closed while an operation of table {request.table} goes on")

    def disk_usage(self, *names: str) -> Sequence[TableUsage]:
        """Segments, records and bytes on disk of the named tables, or of all; memory is not counted. Raises
        NotFoundError.
        """
        usages: Sequence[TableUsage] = self._master.call("disk_usage", list(names))
        return usages

    def splits(self, name: str) -> Sequence[bytes]:
        """The last row of each tablet of a table, in order, without the last tablet, which has none. Raises
        NotFoundError.
        """
        ends = (found.extent.end_row for found in self.locate(self.get(name).table_id))
        return [row for row in ends if row is not None]

    def add_splits(self, name: str, rows: Sequence[bytes], onto: Sequence[str] = ()) -> None:
        """Split tablets, so that tablets end at these rows, too. Writes and scans of the split tablets wait for the
        time of a flush. ``onto``: the tablets that end at these rows begin to move to these hosts, as many as the table
        has replicas. Raises NotFoundError, InvalidInputError, and RefusedError for a host that can't take replicas.
        """
        _check_rows(rows)
        self._master.call("add_splits", name, sorted(set(rows)), sorted(set(onto)))

    def merge(self, name: str, after: bytes | None = None, through: bytes | None = None) -> None:
        """Merge all tablets that hold rows between ``after``, excluded, and ``through``, included, into one tablet;
        None = no bound. Writes and scans of these tablets wait for the time of a flush. Raises NotFoundError,
        InvalidInputError, RefusedError.
        """
        self._master.call("merge_tablets", name, RowRange(after, through))

    def locate_tablet(self, table_id: str, row: bytes, budget_ms: float = BUDGET_MS) -> TabletLocation:
        """The tserver of the tablet that holds a row. If the tablet waits to be loaded, it is loaded next. Raises
        NotFoundError.
        """
        location: TabletLocation = self._master.call("locate_tablet", table_id, row, budget_ms=budget_ms)
        return location

    def locate(self, table_id: str, budget_ms: float = BUDGET_MS) -> Sequence[TabletLocation]:
        """The tserver of each tablet of a table, in the order of rows. Raises NotFoundError."""
        locations: Sequence[TabletLocation] = self._master.call("locate", table_id, budget_ms=budget_ms)
        return locations
