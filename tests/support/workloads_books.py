"""Leftovers: cells and files that must be gone once everything is replicated, on disk, in the books, at the receiver.

Arrives: a cluster's metadata table, its directories and its sessions, read from outside while it runs. Leaves: lines
of text, each naming one thing that nothing alive needs. Nothing was written for longer than the age at which a log
with data is rolled: so the logs that are not sealed are newborn, and nothing in the books may name a log at all.
Segments of tablets with several replicas lie on hosts, and are not looked for here.
Rules: R3, R4, R17 and R20.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import LOGS, TABLES
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.books import books_of
from tests.support.volumes import path_of

SMALL_SUFFIXES = (".seal", ".fence")

STRAY_GRACE_MS = 240_000
"""Segment files of cut flushes stay for longer than a write can be in flight, and are looked for once a minute."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster from outside. ``open_logs`` are the unsealed logs of live sessions; ``wal_files`` everything below
    the directory of logs; ``segment_files`` everything below that of tables, ``old_segments`` those of them that are
    older than :data:`STRAY_GRACE_MS`.
    """

    name: str
    instance_id: str
    rows: tuple[Row, ...]
    open_logs: frozenset[str]
    wal_files: tuple[str, ...]
    segment_files: tuple[str, ...]
    old_segments: tuple[str, ...]
    live_sessions: frozenset[str]
    dead_sessions: frozenset[str]


def look(settings: Settings, disks: Iterable[Path] = ()) -> ClusterView:
    """Read it all, logs also from the disks of hosts. Files are listed before the books, so that a file that is named
    after the listing is not missed.
    """
    coordination = open_coordination(settings)
    try:
        sessions = coordination.sessions("tserver")
    finally:
        coordination.close()
    now_ms = SystemClock().wall_ms()
    volume = open_volume(settings)
    places = [volume, *map(LocalVolume, disks)]
    listed = [(place, name) for place in places for name in place.list_names(LOGS)]
    segment_files = tuple(volume.list_names(TABLES))
    table = books_of(settings)
    try:
        rows = tuple(table.scan())
    finally:
        table.close()
    live = frozenset(info.session_id for info in sessions if info.alive)
    logs = [(place, name) for place, name in listed if name.endswith(".wal") and name.split("/")[1] in live]
    return ClusterView(
        name=settings.instance.name,
        instance_id=settings.instance.instance_id,
        rows=rows,
        open_logs=frozenset(log for place, log in logs if read_seal(place, log) is None),
        wal_files=tuple(name for _, name in listed),
        segment_files=segment_files,
        old_segments=tuple(name for name in segment_files if _is_old(path_of(name, settings.directory), now_ms)),
        live_sessions=live,
        dead_sessions=frozenset(info.session_id for info in sessions if not info.alive),
    )


def leftovers(view: ClusterView) -> list[str]:
    """Everything that nothing alive needs, one line each."""
    found = _Findings(view)
    for row in view.rows:
        found.judge(row)
    found.files()
    return [f"{view.name}: {line}" for line in found.lines]


@dataclass(slots=True)
class _Findings:
    view: ClusterView
    lines: list[str] = field(default_factory=list)
    segments: set[str] = field(default_factory=set)
    on_hosts: set[str] = field(default_factory=set)
    """Segments of tablets with several replicas; a move to hosts leaves its copies until a compaction replaces them."""
    candidates: list[str] = field(default_factory=list)
    """Files with a mark; one that the other half of a split names keeps it until that one replaces the file, too."""

    def judge(self, row: Row) -> None:
        """One row of the books."""
        if row.key.startswith(keys.REPL_PREFIX):
            self._replication_row(row)
        elif row.key.startswith(keys.RECV_PREFIX):
            self._received_row(row)
        elif row.key.startswith(keys.FATE_PREFIX):
            self._operation(row)
        elif row.key == keys.FATE_REIGN_ROW:
            pass  # which reign has taken over; it stays for ever
        elif row.key.startswith(keys.DEL_PREFIX):
            self.candidates.append(keys.parse_del_row(row.key))
        elif row.key.startswith(keys.HOME_PREFIX):
            self._home(row)
        elif row.key.startswith(keys.HOLD_PREFIX):
            self.lines.append(f"a file that something holds: {row.key!r}")
        else:
            self._tablet(row)

    def files(self) -> None:
        """Check that the disk has open logs with their small files and segments that the books name, nothing else."""
        for name in self.view.wal_files:
            log = name.rpartition(".")[0] if name.endswith(SMALL_SUFFIXES) else name
            if log not in self.view.open_logs:
                self.lines.append(f"a file of logs on disk: {name}")
        self.lines += [
            f"a deletion candidate: {name}" for name in self.candidates if name not in self.segments | self.on_hosts
        ]
        on_disk, old = set(self.view.segment_files), set(self.view.old_segments)
        self.lines += [
            f"a segment on disk that no tablet names: {name}" for name in sorted(old - self.segments - self.on_hosts)
        ]
        self.lines += [f"A SEGMENT IS MISSING ON DISK: {name}" for name in sorted(self.segments - on_disk)]
        self.lines += [f"a dead session that is not forgotten: {session}" for session in self.view.dead_sessions]

    def _home(self, row: Row) -> None:
        session = keys.parse_home_row(row.key)
        if session not in self.view.live_sessions:
            self.lines.append(f"the home of the logs of a dead session: {session}")

    def _tablet(self, row: Row) -> None:
        on_hosts = any(column.family == keys.REPLICA_FAMILY for column in row.cells)
        for column in sorted(row.cells):
            if column.family in ("log", "repl"):
                log = keys.parse_file(column.qualifier)
                self.lines.append(f"{column.family}: of tablet {row.key!r}: {log}")
            elif column.family == "segment":
                (self.on_hosts if on_hosts else self.segments).add(keys.parse_file(column.qualifier))
            elif keys.is_lost(column):
                self.lines.append(f"tablet {row.key!r} is served without {keys.parse_lost(column)}")
        location, flush = row.cells.get(keys.LOCATION), row.cells.get(keys.FLUSH)
        session = None if location is None else values.Location.decode(location.value).session
        if keys.is_tablet(row) and session not in self.view.live_sessions:
            self.lines.append(f"tablet {row.key!r} is not given to a live tserver")
        if flush is not None:
            for stream in values.FlushState.decode(flush.value).high_water:
                self.lines.append(f"a high-water mark of tablet {row.key!r} for {stream.file}")

    def _replication_row(self, row: Row) -> None:
        file = keys.parse_repl_row(row.key)
        kinds = sorted({column.family for column in row.cells})
        self.lines.append(f"~repl row with {' and '.join(kinds)}: {file}")

    def _received_row(self, row: Row) -> None:
        for column in row.cells:
            self.lines.append(f"~recv cell of {keys.parse_recv_cell(row.key, column.qualifier)}")

    def _operation(self, row: Row) -> None:
        op = values.FateOp.decode(row.cells[keys.FATE_OP].value) if keys.FATE_OP in row.cells else None
        step = values.FateStep.decode(row.cells[keys.FATE_STEP].value) if keys.FATE_STEP in row.cells else None
        self.lines.append(f"an operation: {row.key!r} {op} {step}")


def _is_old(path: Path, now_ms: int) -> bool:
    try:
        return now_ms - path.stat().st_mtime * 1000 > STRAY_GRACE_MS
    except FileNotFoundError:
        return False
