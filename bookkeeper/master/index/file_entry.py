"""One outstanding file in the master's memory: its needed offset, its targets, and its barriers.

Arrives: values of `repl:` cells. Leaves: one :class:`FileEntry` a file, small enough for hundreds of thousands of them
(equal parts are shared, offsets of targets without progress cost nothing). A new leader folds it again from the books.
Rules: R5, R9, R16 and R24.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from msgspec import Struct

import combiners
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index import barriers as rules
from bookkeeper.master.index import file_entry_codec, log_names
from bookkeeper.master.index.barriers import FileBarrier, necessary_barriers
from bookkeeper.master.index.file_entry_codec import Parts
from bookkeeper.master.index.target_progress import NO_AMOUNT, NO_PROGRESS, Amount, Progress
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column
from bookkeeper.model import Target, TargetKey
from bookkeeper.replicas.naming import UNLIMITED
from combiners import CLOSED, ReplicationStatus


class CellFacts(NamedTuple):
    """A decoded `repl:` value: the needed side without barriers and shares, encoded, then barriers and shares.
    ``shares``: the needed records and bytes of each target, by its column.
    """

    status: bytes
    needed: int
    closed: bool
    barriers: tuple[FileBarrier, ...]
    shares: tuple[tuple[bytes, Amount], ...] = ()


class Scope(Struct, frozen=True):
    """The tables that refer to a file and the configured targets of those tables, in order of their keys.

    One object serves every file with the same tables. ``columns`` are the needed cells' columns, in the order of
    ``targets``; ``clusters`` where they are, each once; ``index_by_qualifier`` finds a target by the qualifier of its
    cells, ``index_by_key`` by its key.
    """

    table_ids: tuple[str, ...]
    targets: tuple[Target, ...]
    columns: tuple[Column, ...]
    clusters: tuple[str, ...]
    index_by_qualifier: Mapping[bytes, int]
    index_by_key: Mapping[TargetKey, int]


class FileEntry:
    """One outstanding file. ``needed`` is the offset that every target needs, ``safe`` the last offset of ranges: the
    needed offset before the read of the rows with the barriers (:func:`barriers.barriers_are_complete_to`).

    ``closed_in`` is the number of the first cycle of this reign that saw the file CLOSED, 0 while it is OPEN (rule R7).
    ``status`` is the encoded needed side (no barriers, nothing finished). ``progress`` is that of each target, in the
    order of ``scope.targets``; it may be empty while no target has anything. ``amounts`` say how much of what is needed
    is each target's, in the same order: a file holds records of other tables and targets, too. Most of this is in one
    value: ``file_entry_codec``.

    Python gives memory back only where all that lies together is free, so a file takes what it will need at once: room
    for the progress of a single target; and of nothing safe yet, which a first cycle says of every file, no number.

    ``directory`` is the name without its number (``log_names``): one object serves all logs of one directory.
    """

    __slots__ = ("_packed", "_unsafe", "directory", "scope")

    def __init__(self, file: bytes, facts: CellFacts, scope: Scope) -> None:
        self.directory, _ = log_names.split(file)
        self.scope = scope
        barriers = facts.barriers
        if len(barriers) > rules.BARRIERS_MAX:
            barriers = rules.coarser_barriers(file, necessary_barriers(barriers))
        progress = (NO_PROGRESS,) if len(scope.targets) == 1 else ()
        amounts = amounts_in(scope, facts.shares)
        self._packed = file_entry_codec.pack(file, Parts(facts.needed, progress, barriers, facts.status, 0, amounts))
        self._unsafe: int | None = None if facts.needed else 0

    def _parts(self) -> Parts:
        return file_entry_codec.unpack(self.file, self._packed)

    def _pack(self, parts: Parts) -> None:
        self._packed = file_entry_codec.pack(self.file, parts)

    @property
    def file(self) -> bytes:
        """The file's name."""
        return log_names.joined(self.directory, file_entry_codec.number_in(self._packed))

    @property
    def number(self) -> int:
        """The number of the log in its directory."""
        return file_entry_codec.number_in(self._packed)

    @property
    def needed(self) -> int:
        """The offset that every target needs."""
        return file_entry_codec.needed_in(self._packed)

    @property
    def closed_in(self) -> int:
        """The first cycle that saw the file CLOSED, 0 for none."""
        return file_entry_codec.closed_in(self._packed)

    def note_closed(self, cycle: int) -> None:
        """A cycle saw the file CLOSED. The first such cycle counts."""
        if not self.closed_in:
            self._packed = file_entry_codec.with_closed_in(self._packed, cycle)

    @property
    def safe(self) -> int:
        """The last offset that ranges may have."""
        return 0 if self._unsafe is None else self.needed - self._unsafe

    def _allow(self, safe: int) -> None:
        """Let ranges go up to ``safe``."""
        needed = self.needed
        self._unsafe = needed - safe if safe or not needed else None

    @property
    def status(self) -> bytes:
        """The needed side, encoded."""
        return file_entry_codec.status_in(self._packed)

    def says(self, status: bytes) -> bool:
        """Whether this is the needed side."""
        return file_entry_codec.is_status_in(self._packed, status)

    def need(self, needed: int, status: bytes) -> None:
        """Replace the needed side; ``safe`` stays."""
        safe = self.safe
        self._pack(self._parts()._replace(needed=needed, status=status))
        self._allow(safe)

    @property
    def progress(self) -> tuple[Progress, ...]:
        """The progress of each target."""
        return self._parts().progress

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """The needed records of each target; may be empty when no target gets any."""
        return self._parts().amounts

    def amount_at(self, index: int) -> Amount:
        """The needed records of the target at ``index``."""
        return file_entry_codec.amount_in(self._packed, index)

    def amount_of(self, target: TargetKey) -> Amount:
        """The needed records of a target; zero when the file has no such target."""
        index = self.index_of(target)
        return NO_AMOUNT if index is None else self.amount_at(index)

    def has_shares(self, shares: Iterable[tuple[bytes, Amount]]) -> bool:
        """Whether the amounts are at least these; those of targets that are not configured count for nothing."""
        by_qualifier = self.scope.index_by_qualifier
        for target, amount in shares:
            index = by_qualifier.get(target)
            if index is not None and not is_at_least(file_entry_codec.amount_in(self._packed, index), amount):
                return False
        return True

    def add_shares(self, shares: Iterable[tuple[bytes, Amount]]) -> None:
        """Raise the amounts to at least these."""
        parts = self._parts()
        self._pack(parts._replace(amounts=amounts_in(self.scope, shares, parts.amounts)))

    def enter(self, scope: Scope) -> None:
        """More tables refer to the file: drop the progress of targets, which is read again, and keep their amounts."""
        known = dict(zip(self.scope.columns, self.amounts, strict=False))
        self.scope = scope
        parts = self._parts()
        amounts = tuple(known.get(column, NO_AMOUNT) for column in scope.columns) if known else ()
        self._pack(parts._replace(progress=(), amounts=amounts))

    @property
    def barriers(self) -> tuple[FileBarrier, ...]:
        """The barriers, in order of offset."""
        return self._parts().barriers if file_entry_codec.barriers_in(self._packed) else ()

    def wait_for(self, barriers: tuple[FileBarrier, ...]) -> None:
        """Replace the barriers."""
        self._pack(self._parts()._replace(barriers=barriers))

    def merge(self, facts: CellFacts) -> None:
        """Fold in the value of one more tablet: statuses by the combiner, barriers as a set, the larger amounts."""
        if not self.says(facts.status):
            merged = merge_statuses(self.status, facts.status)
            self.need(merged.replication_needed_offset, merged.SerializeToString(deterministic=True))
        barriers = joined_barriers(self, facts)
        if barriers is not None:
            self.wait_for(barriers)
        if not self.has_shares(facts.shares):
            self.add_shares(facts.shares)

    def copy(self) -> FileEntry:
        """A second entry with the same content."""
        copied = object.__new__(FileEntry)
        copied._take(self.directory, self.scope, self._packed, self._unsafe)
        return copied

    def equals(self, other: FileEntry) -> bool:
        """Whether an entry of the same file has the same content, but for what is safe to ship."""
        return self._packed == other._packed and self.scope == other.scope

    def _take(self, directory: bytes, scope: Scope, packed: bytes, unsafe: int | None) -> None:
        self.directory, self.scope, self._packed, self._unsafe = directory, scope, packed, unsafe

    def take_over(self, previous: FileEntry, until: int) -> None:
        """Copy the facts of the file's entry in an earlier snapshot: its first cycle CLOSED, its safe offset, progress
        and amounts. ``until``: see :meth:`reach`.
        """
        if previous.closed_in and not self.closed_in and not previous.says(self.status):
            self.need(previous.needed, previous.status)
        if previous.scope.targets == self.scope.targets:
            if previous.progress != self.progress:
                self._pack(self._parts()._replace(progress=previous.progress))
            shares = tuple(zip(previous.scope.index_by_qualifier, previous.amounts, strict=False))
            if not self.has_shares(shares):
                self.add_shares(shares)
        self._allow(min(previous.safe, self.needed))
        self.reach(previous.needed, until)
        closed_in = previous.closed_in
        if closed_in and closed_in != self.closed_in:
            self._packed = file_entry_codec.with_closed_in(self._packed, closed_in)

    def name(self) -> str:
        """The file's name as a string."""
        return self.file.decode()

    def message(self) -> ReplicationStatus:
        """The needed side, decoded."""
        return ReplicationStatus.FromString(self.status)

    def is_closed(self) -> bool:
        """Whether no record can follow in the file."""
        return file_entry_codec.is_closed_in(self._packed)

    def is_settled(self) -> bool:
        """Whether the file is CLOSED and safe to its end: its cells can add no fact but another table."""
        return self._unsafe == 0 and file_entry_codec.is_closed_in(self._packed)

    def created_ms(self) -> int:
        """The creation time of the file, ms since the epoch; 0 when no cell has it."""
        return self.message().created_time

    def finished_at(self, index: int) -> int:
        """The finished offset of the target at ``index``."""
        return file_entry_codec.finished_in(self._packed, index)

    def progress_at(self, index: int) -> Progress:
        """The progress of the target at ``index``."""
        return file_entry_codec.progress_in(self._packed, index) or NO_PROGRESS

    def progress_of(self, target: TargetKey) -> Progress:
        """The progress of ``target``; zero when the file has no such target."""
        index = self.index_of(target)
        return NO_PROGRESS if index is None else self.progress_at(index)

    def index_of(self, target: TargetKey) -> int | None:
        """The index of a target in the file's scope, None when it is none of its configured targets."""
        return self.scope.index_by_key.get(target)

    def reach(self, known_before: int, until: int = UNLIMITED) -> None:
        """Raise ``safe`` after a read of the rows; ``known_before``: the needed offset before that read, ``until``: the
        offset up to which the rows hold nothing back (R15).
        """
        safe = min(rules.barriers_are_complete_to(known_before, self.needed), until)
        if safe > self.safe:
            self._allow(safe)

    def is_behind(self) -> bool:
        """Whether some target lacks a needed record."""
        needed, least = file_entry_codec.reach_in(self._packed)
        return needed > 0 and bool(self.scope.targets) if least is None else least < needed

    def advance(self, index: int, progress: Progress) -> None:
        """Raise the progress of the target at ``index`` to ``progress``: it never goes back."""
        if progress > self.progress_at(index):
            parts = self._parts()
            known = parts.progress or (NO_PROGRESS,) * len(self.scope.targets)
            self._pack(parts._replace(progress=(*known[:index], progress, *known[index + 1 :])))

    def share_directory(self, directory: bytes) -> None:
        """Use an equal object for the directory's name, the one that the other logs of the directory use."""
        self.directory = directory


def is_at_least(one: Amount, other: Amount) -> bool:
    """Whether neither number is below the other's."""
    return one.records >= other.records and one.size >= other.size


def amounts_in(
    scope: Scope, shares: Iterable[tuple[bytes, Amount]], known: Sequence[Amount] = ()
) -> tuple[Amount, ...]:
    """Amounts in the order of the scope's targets, the greatest of each; empty when there is none."""
    amounts = list(known)
    for target, amount in shares:
        index = scope.index_by_qualifier.get(target)
        if index is not None:
            amounts = amounts or [NO_AMOUNT] * len(scope.targets)
            before = amounts[index]
            amounts[index] = amount if is_at_least(amount, before) else Amount(*map(max, amount, before))
    return tuple(amounts)


def parse_cell(value: bytes) -> CellFacts:
    """Decode a `repl:` value. Raises CorruptionError when the bytes are no status."""
    try:
        message = ReplicationStatus.FromString(value)
    except DecodeError as error:
        raise CorruptionError(f"{len(value)} bytes in a repl cell are no replication status: {error}") from error
    barriers: tuple[FileBarrier, ...] = ()
    shares: tuple[tuple[bytes, Amount], ...] = ()
    if message.barriers or message.shares:
        barriers = tuple(sorted([FileBarrier(b.offset, b.file.encode(), b.until_offset) for b in message.barriers]))
        shares = tuple([(s.target.encode(), Amount(s.records, s.bytes)) for s in message.shares])
        message.ClearField("barriers")
        message.ClearField("shares")
        value = message.SerializeToString(deterministic=True)
    return CellFacts(value, message.replication_needed_offset, message.state == CLOSED, barriers, shares)


def is_news(entry: FileEntry, facts: CellFacts) -> bool:
    """Whether folding the value in would change ``entry``."""
    if not (entry.says(facts.status) and entry.has_shares(facts.shares)):
        return True
    return joined_barriers(entry, facts) is not None


def joined_barriers(entry: FileEntry, facts: CellFacts) -> tuple[FileBarrier, ...] | None:
    """The barriers of both, None when the entry has them all."""
    if not facts.barriers:
        return None
    known = entry.barriers
    if all(rules.imply(known, barrier) for barrier in facts.barriers):
        return None
    barriers = rules.coarser_barriers(entry.file, necessary_barriers((*known, *facts.barriers)))
    return None if barriers == known else barriers


def merge_statuses(*values: bytes) -> ReplicationStatus:
    """Fold encoded statuses through the one combiner. Raises CorruptionError when one does not parse."""
    try:
        return combiners.combine([ReplicationStatus.FromString(value) for value in values])
    except DecodeError as error:
        raise CorruptionError(f"a value in the books is no replication status: {error}") from error


class Scopes:
    """Hands out one shared :class:`Scope` for each combination of tables, under one configuration."""

    def __init__(self, targets_by_table: Mapping[str, Sequence[Target]], generation: int = 0) -> None:
        self.generation = generation
        self._targets = targets_by_table
        self._known: dict[tuple[str, ...], Scope] = {}

    def under(self, targets_by_table: Mapping[str, Sequence[Target]], generation: int) -> Scopes:
        """The scopes of another configuration: these, where the targets of all tables are the same."""
        if targets_by_table != self._targets:
            return Scopes(targets_by_table, generation)
        self.generation = generation
        return self

    def of(self, table_ids: tuple[str, ...]) -> Scope:
        """The scope of files that exactly these tables (sorted) refer to."""
        scope = self._known.get(table_ids)
        if scope is None:
            targets = configured_targets(table_ids, self._targets)
            columns = tuple(keys.needed_column(target.key) for target in targets)
            by_qualifier = {column.qualifier: index for index, column in enumerate(columns)}
            by_key = {target.key: index for index, target in enumerate(targets)}
            clusters = tuple(sorted({target.key.cluster for target in targets}))
            scope = self._known[table_ids] = Scope(table_ids, targets, columns, clusters, by_qualifier, by_key)
        return scope

    def with_table(self, scope: Scope, table_id: str) -> Scope:
        """The scope of a file that ``table_id`` refers to as well."""
        return self.of(tuple(sorted({*scope.table_ids, table_id})))


def configured_targets(
    table_ids: Iterable[str], targets_by_table: Mapping[str, Sequence[Target]]
) -> tuple[Target, ...]:
    """Rule R9: the targets of a file are the present ones of the tables that refer to it.

    Rule R5: the complete key identifies a target, so two tables that map to one remote table have two targets.
    """
    found = {target.key: target for table_id in table_ids for target in targets_by_table.get(table_id, ())}
    return tuple(found[key] for key in sorted(found))
