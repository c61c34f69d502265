"""One outstanding file as the master holds it in memory: what is needed, of whom, and what must come first.

Arrives: values of `repl:` cells. Leaves: one :class:`FileEntry` a file, small enough for hundreds of thousands of
them (equal parts are shared, offsets of targets that got nothing yet cost nothing). Survives a crash: nothing, all
of it is folded again from the books. Sources: design section 6; rules R5, R9, R16 and R24.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

import combiners
from bookkeeper.errors import CorruptionError
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import Column
from bookkeeper.model import Target, TargetKey
from combiners import CLOSED, ReplicationStatus


class FileBarrier(NamedTuple):
    """Rule R24: records from ``offset`` on wait until ``file`` is finished up to ``until_offset``."""

    offset: int
    file: bytes
    until_offset: int


class CellFacts(NamedTuple):
    """A `repl:` value taken apart: the needed side without its barriers, encoded, and what decisions ask for."""

    status: bytes
    needed: int
    closed: bool
    barriers: tuple[FileBarrier, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables that refer to a file and the configured targets of those tables, in order of their keys.

    One object serves every file with the same tables. ``columns`` are the needed cells' columns, in the order of
    ``targets``; ``index`` finds a target's place by the qualifier of its cells, ``places`` by its key.
    """

    table_ids: tuple[str, ...]
    targets: tuple[Target, ...]
    columns: tuple[Column, ...]
    index: Mapping[bytes, int]
    places: Mapping[TargetKey, int]


class Progress(NamedTuple):
    """How far one target has a file: the finished offset (records) and its position in the file (bytes)."""

    offset: int
    position: int


NO_PROGRESS = Progress(0, 0)
_PROGRESS = Struct("<QQ")


class FileEntry:
    """One outstanding file. ``status`` is the encoded needed side (no barriers, nothing finished).

    ``safe`` is how far ranges may go: the needed offset that was known before the rows with the barriers were read
    (:func:`barriers_are_complete_to`). ``closed_in`` is the number of the first cycle of this reign that saw the file
    CLOSED, 0 while it is OPEN (rule R7). Barriers are kept flat, without an object for each. ``progress`` packs offset
    and position of each target, in the order of ``scope.targets``; empty while no target has anything.
    """

    __slots__ = ("_barriers", "closed_in", "file", "needed", "progress", "safe", "scope", "status")

    def __init__(self, file: bytes, facts: CellFacts, scope: Scope) -> None:
        self.file = file
        self.status = facts.status
        self.needed = facts.needed
        self.closed_in = 0
        self._barriers: tuple[int | bytes, ...] = ()
        self.barriers = facts.barriers
        self.scope = scope
        self.safe = 0
        self.progress = b""

    @property
    def barriers(self) -> tuple[FileBarrier, ...]:
        """What must be finished first, in order of offset."""
        flat = self._barriers
        return tuple(FileBarrier(*flat[at : at + 3]) for at in range(0, len(flat), 3))  # type: ignore[arg-type]

    @barriers.setter
    def barriers(self, barriers: Iterable[FileBarrier]) -> None:
        self._barriers = tuple(part for barrier in barriers for part in barrier)

    def has_barriers(self) -> bool:
        """Whether some record may have to wait for another file."""
        return bool(self._barriers)

    def uri(self) -> str:
        """The file's name as a string."""
        return self.file.decode()

    def message(self) -> ReplicationStatus:
        """The needed side, decoded."""
        return ReplicationStatus.FromString(self.status)

    def is_closed(self) -> bool:
        """No record can ever be added to the file."""
        return self.closed_in > 0

    def is_settled(self) -> bool:
        """CLOSED and safe to its end: no cell of the file can say anything new, but which tables refer to it."""
        return self.closed_in > 0 and self.safe == self.needed

    def created_ms(self) -> int:
        """When the file was made, in ms since the epoch; 0 when no cell tells."""
        return self.message().created_time

    def finished_at(self, place: int) -> int:
        """The finished offset of the target at ``place``."""
        offset: int = _PROGRESS.unpack_from(self.progress, place * _PROGRESS.size)[0] if self.progress else 0
        return offset

    def progress_at(self, place: int) -> Progress:
        """How far the target at ``place`` has the file."""
        return Progress(*_PROGRESS.unpack_from(self.progress, place * _PROGRESS.size)) if self.progress else NO_PROGRESS

    def progress_of(self, target: TargetKey) -> Progress:
        """How far ``target`` has the file; nothing yet when it is not known to be a target."""
        place = self.place_of(target)
        return NO_PROGRESS if place is None else self.progress_at(place)

    def place_of(self, target: TargetKey) -> int | None:
        """Where a target stands in the file's scope, None when it is none of its configured targets."""
        return self.scope.places.get(target)

    def reach(self, known_before: int) -> None:
        """The rows were read after ``known_before`` was known to be needed: ranges may go as far as that makes safe."""
        self.safe = barriers_are_complete_to(known_before, self.needed)

    def is_behind(self) -> bool:
        """Some target lacks a record that is needed."""
        if not self.progress:
            return self.needed > 0 and bool(self.scope.targets)
        return any(offset < self.needed for offset, _ in _PROGRESS.iter_unpack(self.progress))

    def advance(self, place: int, progress: Progress) -> None:
        """The target at ``place`` is as far as ``progress``, at least: it never goes back."""
        if not self.progress:
            self.progress = bytes(_PROGRESS.size * len(self.scope.targets))
        if progress > self.progress_at(place):
            start = place * _PROGRESS.size
            self.progress = self.progress[:start] + _PROGRESS.pack(*progress) + self.progress[start + _PROGRESS.size :]


def parse_cell(value: bytes) -> CellFacts:
    """Take a `repl:` value apart. Raises CorruptionError when the bytes are no status."""
    try:
        message = ReplicationStatus.FromString(value)
    except DecodeError as error:
        raise CorruptionError(f"{len(value)} bytes in a repl cell are no replication status: {error}") from error
    barriers: tuple[FileBarrier, ...] = ()
    if message.barriers:
        barriers = tuple(sorted(FileBarrier(b.offset, b.file.encode(), b.until_offset) for b in message.barriers))
        message.ClearField("barriers")
        value = message.SerializeToString(deterministic=True)
    return CellFacts(value, message.replication_needed_offset, message.state == CLOSED, barriers)


def merge_into(entry: FileEntry, facts: CellFacts) -> None:
    """Fold the value of one more tablet into ``entry``: statuses by the combiner, barriers as a set."""
    if facts.status != entry.status:
        merged = merge_statuses(entry.status, facts.status)
        entry.status = merged.SerializeToString(deterministic=True)
        entry.needed = merged.replication_needed_offset
    if facts.barriers:
        entry.barriers = necessary_barriers((*entry.barriers, *facts.barriers))


def merge_statuses(*values: bytes) -> ReplicationStatus:
    """Fold encoded statuses through the one combiner. Raises CorruptionError when one does not parse."""
    try:
        return combiners.combine([ReplicationStatus.FromString(value) for value in values])
    except DecodeError as error:
        raise CorruptionError(f"a value in the books is no replication status: {error}") from error


def necessary_barriers(barriers: Iterable[FileBarrier]) -> tuple[FileBarrier, ...]:
    """Leave out every barrier that an earlier one implies: same file, no higher offset, no lower ``until_offset``."""
    highest: dict[bytes, int] = {}
    kept: list[FileBarrier] = []
    for barrier in sorted(set(barriers), key=lambda b: (b.offset, -b.until_offset)):
        if barrier.until_offset > highest.get(barrier.file, 0):
            highest[barrier.file] = barrier.until_offset
            kept.append(barrier)
    return tuple(sorted(kept))


def still_outstanding(barriers: tuple[FileBarrier, ...], files: Mapping[bytes, FileEntry]) -> tuple[FileBarrier, ...]:
    """Barriers of files that are outstanding, with names and ends as those hold them: equal parts are one object.

    ``files`` are all that a scan found.

    One of a file that is outstanding no more has been passed for good, because names are never used again.
    """
    kept = []
    for barrier in barriers:
        before = files.get(barrier.file)
        if before is not None:
            until = before.needed if before.needed == barrier.until_offset else barrier.until_offset
            kept.append(FileBarrier(barrier.offset, before.file, until))
    return tuple(kept)


class Scopes:
    """Hands out one shared :class:`Scope` for each combination of tables, under one configuration."""

    def __init__(self, targets_by_table: Mapping[str, Sequence[Target]], generation: int = 0) -> None:
        self.generation = generation
        self._targets = targets_by_table
        self._known: dict[tuple[str, ...], Scope] = {}

    def of(self, table_ids: tuple[str, ...]) -> Scope:
        """The scope of files that exactly these tables (sorted) refer to."""
        scope = self._known.get(table_ids)
        if scope is None:
            targets = configured_targets(table_ids, self._targets)
            columns = tuple(keys.needed_column(target.key) for target in targets)
            index = {column.qualifier: place for place, column in enumerate(columns)}
            places = {target.key: place for place, target in enumerate(targets)}
            scope = self._known[table_ids] = Scope(table_ids, targets, columns, index, places)
        return scope

    def with_table(self, scope: Scope, table_id: str) -> Scope:
        """The scope of a file that ``table_id`` refers to as well."""
        return self.of(tuple(sorted({*scope.table_ids, table_id})))


def configured_targets(
    table_ids: Iterable[str], targets_by_table: Mapping[str, Sequence[Target]]
) -> tuple[Target, ...]:
    """Rule R9: the targets that count for a file are those configured now for the tables that refer to it.

    Rule R5: each is told apart by its whole key, so two tables that map to one remote table both count.
    """
    found = {target.key: target for table_id in table_ids for target in targets_by_table.get(table_id, ())}
    return tuple(found[key] for key in sorted(found))


def barriers_are_complete_to(known_before: int, needed: int) -> int:
    """Up to which offset all barriers are known, given the needed offset known before the rows were read.

    A tablet's first use of a file, barrier included, is in the books before its first record there is appended, and
    a needed offset is written after that record is synced. So whoever knew ``known_before`` and only then read the
    rows has seen every barrier at or below it. The rows may already show a higher ``needed``, but a row that was
    read early may lack a barrier that lies below that one.
    """
    return min(known_before, needed)
