"""The reasons why the collector retains each file, by :func:`bookkeeper.master.gc.gc_rules.is_collectable_log`.

Arrives: logs on disk, every reference in the books, live sessions, marks. Leaves: for each log and each marked file its
reasons. Pure. A log has a reason other than its mark if and only if the collector may not delete it. Rules: R3, R4, R12
and R17.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from bookkeeper.master.index.log_files import LogFile
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column, Row
from bookkeeper.model import TargetKey
from bookkeeper.monitor.observation import Reason, RetainedFile

RETAINED_MAX = 20_000
"""Files with their reasons in one answer, the largest first."""


class _Needs(Struct):
    tablets: dict[tuple[str, str], int] = field(default_factory=dict)
    """Kind (recovery, replication) and table to the number of tablets whose row names the file."""
    targets: set[TargetKey] = field(default_factory=set)
    """Of needed cells."""
    ranges: dict[tuple[str, str], int] = field(default_factory=dict)
    """Table and cluster of ranges in quarantine."""
    holders: set[Reason] = field(default_factory=set)
    """Of holds."""


class RetentionReasons(Struct, frozen=True):
    """Folds rows, in the order in which the collector reads them, then gives the reasons for each file."""

    names: Mapping[str, str]
    lacks: Callable[[str, TargetKey], str | None] = lambda _file, _target: ""
    """For a file and target, why the target lacks records; None = it lacks none."""
    _needs: dict[str, _Needs] = field(default_factory=dict)

    def _of(self, file: str) -> _Needs:
        return self._needs.setdefault(file, _Needs())

    def tablet(self, row: Row) -> None:
        """A tablet's row, a remnant, or a part of its `repl:` cells: `log:` cells for recovery, `repl:` cells for
        replication.
        """
        table_id, _ = keys.parse_tablet_row(row.key)
        counted = {"log": "recovery", "repl": "replication"} if keys.is_tablet(row) else {"repl": "replication"}
        for column in row.cells:
            kind = counted.get(column.family)
            if kind is not None:
                tablets = self._of(keys.parse_file(column.qualifier)).tablets
                holder = (kind, self.names.get(table_id, table_id))
                tablets[holder] = tablets.get(holder, 0) + 1

    def books(self, row: Row) -> None:
        """A `~repl_` row: its needed cells; done cells retain nothing (rule R3)."""
        for column in row.cells:
            if column.family == "repl":
                self._of(keys.parse_repl_row(row.key)).targets.add(keys.parse_target(column.qualifier))

    def quarantined(self, key: RangeKey) -> None:
        """A range in quarantine: it retains its file."""
        ranges = self._of(key.file).ranges
        holder = (self.names.get(key.target.source_table_id, key.target.source_table_id), key.target.cluster)
        ranges[holder] = ranges.get(holder, 0) + 1

    def held(self, row: Row) -> None:
        """A `~hold_` row: the operations, logs and tservers that hold the file."""
        self._of(keys.parse_hold_row(row.key)).holders.update(map(reason_of_hold, row.cells))

    def reasons(self, file: str) -> list[Reason]:
        """The reasons why the books need a file, sorted; empty when they do not."""
        needs = self._needs.get(file)
        if needs is None:
            return []
        found = [self._of_target(file, target) for target in needs.targets]
        found += [
            Reason("quarantine", cluster, f"table {table}, {_count(number, 'range')}")
            for (table, cluster), number in needs.ranges.items()
        ]
        found += needs.holders
        for (kind, table), count in needs.tablets.items():
            if kind == "recovery":
                found.append(Reason(kind, f"table {table}", f"{_count(count, 'tablet')} not flushed beyond it"))
            elif not needs.targets:
                found.append(Reason("books", f"table {table}", "its books are made or closed"))
        return sorted(set(found))

    def _of_target(self, file: str, target: TargetKey) -> Reason:
        """The reason that a needed cell gives: the target lacks records, or it has all, and the file may still grow."""
        table, why = self.names.get(target.source_table_id, target.source_table_id), self.lacks(file, target)
        if why is None:
            return Reason("books", target.cluster, f"table {table}: it lacks nothing, and the file's books are open")
        return Reason("replication", target.cluster, f"table {table}: {why}" if why else f"table {table}")

    def retained(
        self, logs: Iterable[LogFile], sizes: Mapping[str, int], writers: Collection[str], marked: Iterable[str]
    ) -> list[RetainedFile]:
        """Every log and every marked file with its reasons, the largest first."""
        candidates = set(marked)
        found = []
        for log in logs:
            reasons = self.reasons(log.name)
            if not log.sealed and log.session in writers:
                reasons.append(
                    Reason("writer", log.session, "its tserver may still write to it, or is not recovered yet")
                )
            if log.name in candidates:
                reasons.append(Reason("deletion", "collector", "marked; goes with one of its next runs"))
            candidates.discard(log.name)
            found.append(RetainedFile(log.name, sizes.get(log.name, 0), log.sealed, log.session, tuple(reasons)))
        for name in candidates:
            reasons = [*self.reasons(name), Reason("deletion", "collector", "marked; goes with one of its next runs")]
            found.append(RetainedFile(name, sizes.get(name, 0), True, "", tuple(reasons)))
        return sorted(found, key=lambda file: (-file.bytes, file.file))[:RETAINED_MAX]


def reason_of_hold(column: Column) -> Reason:
    """The reason that a cell of a `~hold_` row gives. Raises CorruptionError."""
    if column.family == "log":
        return Reason("replication", keys.parse_log_hold(column.qualifier), "peers may take the file for this log")
    if column.family == "recv":
        return Reason("receiver", keys.parse_arrival(column.qualifier), "another cluster sends it the file")
    if column.family == keys.TAKING_FAMILY:
        return Reason("receiver", keys.parse_taking(column.qualifier), "it adds the file to a tablet")
    return Reason("operation", keys.parse_hold_column(column.qualifier), "it uses the file")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
