"""Queries of clients and administrators, answered from the books: tablet locations, disk usage, marks, and files below
a mark. The client stores its mark; the master does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import NO_TSERVER, NotFoundError, TransientError, UnavailableError
from bookkeeper.master.books.finished import read_done
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.index.file_entry import FileEntry, Scopes
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.snapshot import (
    SNAPSHOT_FAMILIES,
    BrokenChainError,
    Chains,
    Snapshot,
    TabletView,
    tablet_view,
    take_snapshot,
)
from bookkeeper.master.index.target_progress import NO_PROGRESS, Progress
from bookkeeper.master.queries.target_states import TargetState, pending_of_marks
from bookkeeper.master.queries.usage import FAMILIES, usage_of
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, Row, scan_parts
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import HostIdentity, Target, TargetKey
from bookkeeper.rpc.contract.messages import FileMark, TabletLocation, TableUsage, TargetStatus
from bookkeeper.storage.wal.writing.seal import read_seal

SCAN_TRIES_MAX = 5
MARK_AGAIN_MS = 100
MARK_TIMEOUT_MS = 25_000
"""How long a mark waits for a tserver that does not answer, or for the logs of a dead one to be sealed."""

LOCATION_FAMILIES = ("tablet", "location", keys.REPLICA_FAMILY)
"""The column families that say where tablets are."""

CONTENT_FAMILIES = ("tablet", "log")
"""The column families that :func:`holds_records` reads."""


class TabletStates(Protocol):
    """The states of tablets in the leader's memory (see ``placement``), by row."""

    @property
    def problems(self) -> Mapping[bytes, str]:
        """Reasons why tablets can't be loaded until an operator acts."""

    @property
    def warnings(self) -> Mapping[bytes, str]:
        """Errors of served tablets, and the hosts that others wait for."""

    def is_loaded(self, session: str, row: bytes) -> bool | None:
        """Whether a session serves a tablet; None = unknown."""


class LiveProcesses(Struct, frozen=True):
    """The addresses of live tservers, by session, and of those that hold a host's replicas, by host."""

    tservers: Mapping[str, str]
    hosts: Mapping[HostIdentity, str]

    @classmethod
    def of(cls, sessions: Iterable[SessionInfo]) -> LiveProcesses:
        """Those of the live sessions."""
        live = [info for info in sessions if info.alive]
        return cls(
            {info.session_id: info.address for info in live},
            {info.host: info.address for info in live if info.host is not None},
        )

    def with_replica(self, view: TabletView) -> tuple[str, ...]:
        """The addresses of the hosts that hold a replica of a tablet. A host that lost its disk holds none (P10)."""
        found = (self.hosts.get(HostIdentity(one.host, one.cell.incarnation)) for one in view.replicas)
        return tuple(address for address in found if address is not None)


class Queries(Struct, frozen=True):
    """The queries of one reign. Thread-safe."""

    table: MetadataTable
    tservers: TServers
    read_config: Callable[[], ClusterConfig]
    clock: Clock
    states: TabletStates | None = None
    """None: locations have only the facts of the books."""
    hurry: Callable[[str, bytes], None] = lambda _session, _row: None
    """Called with session and row of a tablet that a client waits for, so that it loads before others."""
    unsplit: Mapping[bytes, str] = field(default_factory=dict)
    """Rows of tablets that are too large and not split for now, and the reason."""
    are_books_away: Callable[[], bool] = lambda: False
    """While they are, nobody moves a tablet, so the last answer about a table holds."""
    answers: dict[str, list[TabletLocation]] = field(default_factory=dict)
    """The last answers of :meth:`locate`, by table id."""

    def locate(self, table_id: str) -> list[TabletLocation]:
        """The location of every tablet of a table, in order: its address (None while its tserver is dead or not
        chosen), whether the tserver serves it, the problem that an operator has to solve, the error of a served
        tablet, and the addresses of the hosts with a replica. While the books are away, it is the last answer: a
        tserver checks the tablet of each call.

        Raises NotFoundError, and BrokenChainError while a split or merge changes the tablets.
        """
        config = self.read_config()
        table = config.table(table_id)
        if (known := self._known(table_id)) is not None:
            return known
        found = self._locate(table)
        self.answers[table_id] = found
        for gone in self.answers.keys() - config.tables.keys():
            self.answers.pop(gone, None)
        return found

    def _known(self, table_id: str) -> list[TabletLocation] | None:
        """The last answer about a table while the books are away; None when there is none, or they answer."""
        known = self.answers.get(table_id) if self.are_books_away() else None
        if known is None:
            return None
        live = set(self.tservers.live().values())
        return [one if one.address in live else replace(one, address=None, loaded=None) for one in known]

    def _locate(self, table: TableConfig) -> list[TabletLocation]:
        """See :meth:`locate`, from the books."""
        table_id = table.table_id
        live = LiveProcesses.of(self.tservers.sessions())
        scanned = self.table.scan(*keys.table_section(table_id), LOCATION_FAMILIES)
        rows = [row for row in scanned if keys.is_tablet(row)]
        views = [tablet_view(row) for row in rows]
        chains = Chains((table_id,))
        for view in views:
            chains.add(view)
        if views or table.state == "online":
            chains.finish()
        return [self._location(view, row, live) for view, row in zip(views, rows, strict=True)]

    def _location(self, view: TabletView, row: Row, live: LiveProcesses) -> TabletLocation:
        session, states = view.session or "", self.states
        found = TabletLocation(
            view.extent, live.tservers.get(session), keys.location_rank(row), replicas=live.with_replica(view)
        )
        if states is None:
            return found
        return replace(
            found,
            problem=states.problems.get(row.key),
            warning="; ".join(filter(None, (states.warnings.get(row.key), self.unsplit.get(row.key)))) or None,
            loaded=states.is_loaded(session, row.key) if found.address is not None else None,
        )

    def locate_tablet(self, table_id: str, row: bytes) -> TabletLocation:
        """The location of the tablet with this row (see :meth:`locate`), without a scan of the table. The tablet loads
        before others, because a client waits for it. Raises NotFoundError, BrokenChainError.
        """
        self.read_config().table(table_id)
        for known in self._known(table_id) or ():
            if known.extent.contains(row):
                return known
        start, (_, stop) = keys.tablet_row(table_id, row), keys.table_section(table_id)
        found = next(filter(keys.is_tablet, self.table.scan(start, stop, LOCATION_FAMILIES)), None)
        if found is None or not tablet_view(found).extent.contains(row):
            raise BrokenChainError(f"table {table_id}: no tablet holds row {row!r}")
        view = tablet_view(found)
        if view.session is not None:
            self.hurry(view.session, view.row)
        return self._location(view, found, LiveProcesses.of(self.tservers.sessions()))

    def disk_usage(self, names: Sequence[str]) -> list[TableUsage]:
        """The disk usage of these tables (none = all), by name. Raises NotFoundError."""
        config = self.read_config()
        wanted = [config.table_named(name) for name in names] if names else config.tables.values()
        return [
            usage_of(table.name, self.table.scan(*keys.table_section(table.table_id), FAMILIES))
            for table in sorted(wanted, key=lambda table: table.name)
        ]

    def holds_records(self, table_id: str) -> bool:
        """Whether a tablet of the table has a segment, or a log with records that are in no segment yet."""
        return any(map(holds_records, self.table.scan(*keys.table_section(table_id), CONTENT_FAMILIES)))

    def pick_tserver(self, table_id: str) -> str:
        """A live tserver for data of a table; if possible, one that serves a tablet of it.

        Raises NotFoundError, and UnavailableError if no tserver is live.
        """
        serving = [location.address for location in self.locate(table_id) if location.address is not None]
        addresses = serving or list(self.tservers.live().values())
        if not addresses:
            text = "no tserver of this cluster is alive; start one, or wait for its restart"
            raise UnavailableError(text, {NO_TSERVER: "1"})
        return addresses[self.clock.boot_ns() % len(addresses)]

    # ---- marks

    def mark(self, name: str) -> list[FileMark]:
        """For every log with data of the table, the offset of the last record that was acknowledged before the call.

        Live tservers report the synced offsets of their own logs; the books have the offsets of sealed ones. Raises
        NotFoundError, and UnavailableError while a tserver does not answer and its logs are not sealed.
        """
        table = self.read_config().table_named(name)
        deadline_ns = self.clock.boot_ns() + MARK_TIMEOUT_MS * 1_000_000
        never = threading.Event()
        while True:
            try:
                return self._mark_once(table)
            except TransientError as error:
                if self.clock.boot_ns() > deadline_ns:
                    raise UnavailableError(f"can't tell what table {name} has written: {error.message}") from error
                self.clock.wait(never, MARK_AGAIN_MS)

    def _mark_once(self, table: TableConfig) -> list[FileMark]:
        marks: dict[str, int] = {}
        answered: set[str] = set()
        for session, address in self.tservers.live().items():
            for mark in self.tservers.at(address).wal_positions(table.table_id):
                marks[mark.file] = mark.offset
            answered.add(session)
        for entry in self._outstanding(table).files.values():
            name = entry.name()
            if name not in marks:
                marks[name] = self._final_offset(entry, self.tservers.session_of(name) in answered)
        return [FileMark(file, offset) for file, offset in sorted(marks.items()) if offset > 0]

    def _final_offset(self, entry: FileEntry, owner_answered: bool) -> int:
        """The last offset of an outstanding file that no live tserver has reported."""
        if entry.is_closed() or owner_answered:
            return entry.needed
        seal = read_seal(self.tservers.volume, entry.name())
        if seal is None:
            raise UnavailableError(f"the tserver of {entry.name()} does not answer, and the log is not sealed yet")
        return seal.offset

    def _outstanding(self, table: TableConfig) -> Snapshot:
        """The files that the tablets of one table refer to, read now. Raises TransientError."""
        scopes = Scopes({table.table_id: table.targets})
        for _ in range(SCAN_TRIES_MAX):
            rows = scan_parts(self.table, *keys.table_section(table.table_id), SNAPSHOT_FAMILIES)
            try:
                return take_snapshot(rows, 1, scopes, [table.table_id], Outstanding())
            except BrokenChainError as error:
                broken = error
        raise broken

    def pending(self, marks: Sequence[FileMark], name: str, cluster: str) -> list[tuple[FileEntry, Target, Progress]]:
        """The unfinished files below the marks, with target and progress. Empty once all records up to the marks are
        replicated.

        A file without `repl:` columns is done. ``cluster`` "" means every cluster. Raises NotFoundError if the table is
        not replicated to ``cluster``, or to none: then nothing is below the marks, and nothing is sent either.
        """
        table = self.read_config().table_named(name)
        targets = wanted_targets(table, cluster)
        snapshot = self._outstanding(table)
        wanted = {mark.file: mark.offset for mark in marks}
        entries = {file: snapshot.files[file.encode()] for file in wanted if file.encode() in snapshot.files}
        finished = {file: self._finished(entry) for file, entry in entries.items()}
        below = pending_of_marks(
            wanted, dict.fromkeys(entries, targets), lambda file, target: finished[file][target.key].offset
        )
        return [(entries[file], target, finished[file][target.key]) for file, target in below]

    def _finished(self, entry: FileEntry) -> dict[TargetKey, Progress]:
        row = self.table.get(keys.REPL_PREFIX + entry.file, ("done",))
        cells = {} if row is None else row.family("done")
        return {
            entry.scope.targets[index].key: (
                read_done(cells[qualifier], entry.file, []) if qualifier in cells else NO_PROGRESS
            )
            for qualifier, index in entry.scope.index_by_qualifier.items()
        }


def holds_records(row: Row) -> bool:
    """Whether a tablet has records in a current segment, or in a log and in no segment yet."""
    flush = row.cells.get(keys.FLUSH)
    has_segments = flush is not None and bool(FlushState.decode(flush.value).segments)
    return keys.is_tablet(row) and (has_segments or bool(row.family("log")))


def wanted_targets(table: TableConfig, cluster: str) -> tuple[Target, ...]:
    """The targets of a table at one cluster; "" means every cluster. Raises NotFoundError if there is none."""
    found = tuple(target for target in table.targets if cluster in ("", target.key.cluster))
    if not found:
        raise NotFoundError(
            f"table {table.name} is not replicated to {cluster or 'any cluster'}: enablereplication -t {table.name} "
            f"--all-loc-groups {cluster or 'CLUSTER'}"
        )
    return found


def status_message(state: TargetState, table_names: Mapping[str, str]) -> TargetStatus:
    """A state as a message of the wire contract."""
    key = state.target.key
    table = table_names.get(key.source_table_id, key.source_table_id)
    return TargetStatus(
        file=state.file,
        target=key,
        state="CLOSED" if state.closed else "OPEN",
        needed=state.needed,
        finished=state.finished,
        lag_records=state.lag_records,
        lag_bytes=state.lag_bytes,
        lag_seconds=state.lag_seconds,
        phase=state.phase,
        last_error=missing_table_advice(state, table) if state.lacks_table else state.last_error,
        next_try_in_ms=state.next_try_in_ms,
        worker=state.worker,
        records_shipped=state.records_shipped,
        bytes_shipped=state.bytes_shipped,
        resends=state.resends,
        table=table,
        groups=state.target.groups or (),
        cause=state.cause.kind if state.waits else None,
        root_cause=state.cause.at_root.kind if state.waits and state.cause.at_root is not None else None,
    )


def missing_table_advice(state: TargetState, table: str) -> str:
    """The advice for a target whose table id the peer does not have. Only an operator can decide whether a new table of
    the same name is the right one (R5).
    """
    key, remote_table = state.target.key, state.target.remote_table
    renamed = "" if remote_table == table else f" --remote-table {remote_table}"
    groups = " ".join(f"-lg {group}" for group in state.target.groups or ()) or "--all-loc-groups"
    chosen = f"-t {table} {groups}"
    return (
        f"{key.cluster} has no table {remote_table} with the id {key.remote_table_id} any more: it was deleted or "
        f"recreated there. To begin anew: disablereplication {chosen} {key.cluster}, then enablereplication "
        f"{chosen}{renamed} {key.cluster}. Records written before that are missing there until a copy brings them: "
        f"exporttable and importtable ({state.last_error})"
    )


def table_names(tables: Iterable[TableConfig]) -> dict[str, str]:
    """Table id to name."""
    return {table.table_id: table.name for table in tables}
