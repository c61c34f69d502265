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
BARRIERS_MAX = 4
"""Of one earlier log of the same tserver, that a file keeps: see :func:`coarser_barriers`."""

_PAIR = Struct("<QQ")
_OFFSET = Struct("<Q")
_COUNTS = Struct("<HH")


class FileEntry:
    """One outstanding file. ``needed`` is the offset that every target needs, ``safe`` how far ranges may go: the
    needed offset that was known before the rows with the barriers were read (:func:`barriers_are_complete_to`).

    ``closed_in`` is the number of the first cycle of this reign that saw the file CLOSED, 0 while it is OPEN (rule R7).
    ``status`` is the encoded needed side (no barriers, nothing finished). ``progress`` has offset and position of each
    target, in the order of ``scope.targets``; it is empty while no target has anything.

    An object for each of these would cost more than what it says. So one packed value has them: the numbers of barriers
    and of targets with progress, offset and end of each barrier, progress, status. The names of the files that barriers
    wait for are shared with those files; it is one name instead of a tuple when all have the same.
    """

    __slots__ = ("_packed", "_waits_for", "closed_in", "file", "needed", "safe", "scope")

    def __init__(self, file: bytes, facts: CellFacts, scope: Scope) -> None:
        self.file = file
        self.scope = scope
        self.needed = facts.needed
        self.safe = 0
        self.closed_in = 0
        self._waits_for: bytes | tuple[bytes, ...] = ()
        self._packed = _COUNTS.pack(0, 0) + facts.status
        if facts.barriers:
            self.barriers = facts.barriers

    def _pack(self, barriers: bytes, progress: bytes, status: bytes) -> None:
        counts = _COUNTS.pack(len(barriers) // _PAIR.size, len(progress) // _PAIR.size)
        self._packed = b"".join((counts, barriers, progress, status))

    def _bounds(self) -> tuple[int, int]:
        """Where progress begins, behind the barriers, and where it ends, before the status."""
        barriers, targets = _COUNTS.unpack_from(self._packed)
        begin = _COUNTS.size + barriers * _PAIR.size
        return begin, begin + targets * _PAIR.size

    @property
    def status(self) -> bytes:
        """The needed side, encoded."""
        barriers, targets = _COUNTS.unpack_from(self._packed)
        return self._packed[_COUNTS.size + (barriers + targets) * _PAIR.size :]

    @status.setter
    def status(self, status: bytes) -> None:
        self._packed = self._packed[: self._bounds()[1]] + status

    @property
    def progress(self) -> bytes:
        """Offset and position of each target."""
        begin, end = self._bounds()
        return self._packed[begin:end]

    @progress.setter
    def progress(self, progress: bytes) -> None:
        begin, end = self._bounds()
        self._pack(self._packed[_COUNTS.size : begin], progress, self._packed[end:])

    @property
    def barriers(self) -> tuple[FileBarrier, ...]:
        """What must be finished first, in order of offset."""
        names = self._waits_for
        if not names:
            return ()
        pairs = list(_PAIR.iter_unpack(self._packed[_COUNTS.size : self._bounds()[0]]))
        each = names if isinstance(names, tuple) else (names,) * len(pairs)
        return tuple(FileBarrier(offset, name, until) for (offset, until), name in zip(pairs, each, strict=True))

    @barriers.setter
    def barriers(self, barriers: Sequence[FileBarrier]) -> None:
        begin, end = self._bounds()
        pairs = b"".join([_PAIR.pack(barrier.offset, barrier.until_offset) for barrier in barriers])
        self._pack(pairs, self._packed[begin:end], self._packed[end:])
        names = tuple(barrier.file for barrier in barriers)
        self._waits_for = names[0] if names and names.count(names[0]) == len(names) else names

    def has_barriers(self) -> bool:
        """Whether some record may have to wait for another file."""
        return bool(self._waits_for)

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
        barriers, targets = _COUNTS.unpack_from(self._packed)
        if place >= targets:
            return 0
        offset: int = _OFFSET.unpack_from(self._packed, _COUNTS.size + (barriers + place) * _PAIR.size)[0]
        return offset

    def progress_at(self, place: int) -> Progress:
        """How far the target at ``place`` has the file."""
        begin, end = self._bounds()
        at = begin + place * _PAIR.size
        return Progress(*_PAIR.unpack_from(self._packed, at)) if at < end else NO_PROGRESS

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
        barriers, targets = _COUNTS.unpack_from(self._packed)
        if not targets:
            return self.needed > 0 and bool(self.scope.targets)
        begin = _COUNTS.size + barriers * _PAIR.size
        least, _ = min(_PAIR.iter_unpack(self._packed[begin : begin + targets * _PAIR.size]))
        return bool(least < self.needed)

    def advance(self, place: int, progress: Progress) -> None:
        """The target at ``place`` is as far as ``progress``, at least: it never goes back."""
        known = self.progress or bytes(_PAIR.size * len(self.scope.targets))
        start = place * _PAIR.size
        if progress > self.progress_at(place):
            self.progress = known[:start] + _PAIR.pack(*progress) + known[start + _PAIR.size :]


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
        known = entry.barriers
        barriers = coarser_barriers(entry.file, necessary_barriers((*known, *facts.barriers)))
        if barriers != known:
            entry.barriers = barriers


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


def coarser_barriers(file: bytes, barriers: tuple[FileBarrier, ...]) -> tuple[FileBarrier, ...]:
    """At most ``BARRIERS_MAX`` barriers of each earlier log of the tserver that wrote ``file``, whatever the number of
    tablets: the last ones become one, which holds back all that they do and a little more.

    A tserver begins a log when the one before is sealed. So whatever this file waits for is older than all its own
    records, as without this, and files never wait for each other in a circle. Of other tservers' logs that is not
    known: their barriers stay.
    """
    if len(barriers) <= BARRIERS_MAX:
        return barriers
    directory = file.rpartition(b"/")[0]
    by_file: dict[bytes, list[FileBarrier]] = {}
    for barrier in barriers:
        by_file.setdefault(barrier.file, []).append(barrier)
    kept: list[FileBarrier] = []
    for before, found in by_file.items():
        rest = found[BARRIERS_MAX - 1 :]
        if len(rest) > 1 and before.rpartition(b"/")[0] == directory:
            until = max(barrier.until_offset for barrier in rest)
            kept += [*found[: BARRIERS_MAX - 1], FileBarrier(rest[0].offset, before, until)]
        else:
            kept += found
    return tuple(sorted(kept))


def still_outstanding(barriers: tuple[FileBarrier, ...], files: Mapping[bytes, FileEntry]) -> tuple[FileBarrier, ...]:
    """Barriers of files that are outstanding, with their names as those hold them, so that each name is one object.

    ``files`` are all that a scan found. One of a file that is outstanding no more has been passed for good, because
    names are never used again.
    """
    kept = [(barrier, files.get(barrier.file)) for barrier in barriers]
    return tuple(barrier._replace(file=before.file) for barrier, before in kept if before is not None)


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
