"""The history of every record, read from the logs, and the laws that can be judged at once.

Arrives: blocks as they are appended, synced and lost; finished cells and deletions as they are written. Leaves: broken
laws, in words. Independent of the product's decisions: it knows only what a block's header says, where records went,
and the configuration that was in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb, origin_from_pb
from bookkeeper.tserver.tablets.given_up import session_directory
from tests.support.simulation.setting_aside import SettingAside, is_refused
from tests.support.simulation.tablets import Entry, entries_of

PairKey = tuple[str, str, str, int]
"""Source instance, source table, target table, incarnation: where a record came through."""

TabletKey = tuple[str, bytes | None]

Excused = Callable[[str, TargetKey, int, Sequence[Entry]], bool]
"""Whether a target may lack a block: log, target, first record, records."""


class LoggedBlock(Struct, frozen=True):
    """A block in a log."""

    file: str
    first: int
    last: int
    tablet: TabletKey
    block_targets: frozenset[BlockTarget]
    provenance: tuple[str, ...]
    came_through: PairKey | None
    groups: Mapping[bytes, str]
    entries: tuple[Entry, ...]
    write_ms: int = 0
    """When a tserver took the records."""

    def meant_for(self, of: Callable[[TargetKey], bool]) -> list[Entry]:
        """The records for targets of that kind: in force when the block was written, and for the record's group."""
        block_targets = [block_target for block_target in self.block_targets if of(block_target.target)]
        return [
            entry
            for entry in self.entries
            if any(
                block_target.groups is None or self.groups[entry.family] in block_target.groups
                for block_target in block_targets
            )
        ]


@dataclass
class LoggedFile:
    """A log of one cluster."""

    name: str
    instance: str
    machine: str
    blocks: list[LoggedBlock] = field(default_factory=list)
    durable: int = 0
    sealed: bool = False
    deleted: bool = False
    lost: list[LoggedBlock] = field(default_factory=list)

    def last(self) -> int:
        """The last offset."""
        return self.blocks[-1].last if self.blocks else 0

    def durable_blocks(self) -> list[LoggedBlock]:
        """The blocks that survive a power failure."""
        return [block for block in self.blocks if block.last <= self.durable]


@dataclass
class Ledger:
    """All logs of all clusters. ``broken`` are the laws that were broken, in words."""

    files: dict[str, LoggedFile] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    received: dict[tuple[str, PairKey], dict[bytes, str]] = field(default_factory=dict)
    """(instance, pair) to the values that its logs hold, and in which file. Tablets are split and merged; what one of
    them has taken, no other may take again.
    """
    set_aside: SettingAside = field(default_factory=SettingAside)
    durable_values: dict[str, set[tuple[str, bytes]]] = field(default_factory=dict)
    """Instance to (table, value) in durable blocks."""
    given_up: set[tuple[TabletKey, str]] = field(default_factory=set)
    """Tablets, and the directories of the logs that they went on without."""
    on_broken: Callable[[str], None] = lambda _law: None
    lies_in: Callable[[str, TabletKey, bytes], bool] = lambda _instance, _tablet, _row: True
    """Whether a row lies in a tablet of a cluster."""

    def break_law(self, law: str) -> None:
        """Remember a broken law."""
        if law not in self.broken:
            self.broken.append(law)
            self.on_broken(law)

    # ---- logs

    def appended(self, name: str, instance: str, machine: str, blocks: Iterable[Block]) -> None:
        """Blocks were written to a log."""
        file = self.files.setdefault(name, LoggedFile(name, instance, machine))
        for block in blocks:
            logged = logged_block(name, block)
            if file.sealed:
                file.lost.append(logged)
                continue
            if logged.came_through is not None:
                self._judge_received(instance, logged)
            file.blocks.append(logged)

    def synced(self, name: str) -> None:
        """Everything in the log is durable."""
        file = self.files.get(name)
        if file is not None and file.durable != file.last():
            for block in file.blocks:
                if file.durable < block.last:
                    known = self.durable_values.setdefault(file.instance, set())
                    known |= {(block.tablet[0], entry.value) for entry in block.entries}
            file.durable = file.last()

    def named(self, name: str, instance: str, machine: str, blocks: Iterable[LoggedBlock]) -> None:
        """A tablet has taken an import: the log of what it took counts, and is durable."""
        file = self.files.setdefault(name, LoggedFile(name, instance, machine))
        for block in blocks:
            if block.came_through is not None:
                self._judge_received(instance, block)
            file.blocks.append(block)
        self.synced(name)

    def took(self, instance: str, block: LoggedBlock) -> None:
        """A tablet has taken files of another cluster."""
        self._judge_received(instance, block)
        known = self.durable_values.setdefault(instance, set())
        known |= {(block.tablet[0], entry.value) for entry in block.entries}

    def power_lost(self, machine: str) -> None:
        """A machine forgot what was not synced."""
        for file in self.files.values():
            if file.machine == machine:
                file.lost += [block for block in file.blocks if block.last > file.durable]
                for block in [block for block in file.blocks if block.last > file.durable]:
                    self._forget_received(file.instance, block)
                file.blocks = file.durable_blocks()

    def cut(self, name: str, instance: str, machine: str, offset: int) -> None:
        """A seal ends the log: what lies behind, or is written there by a zombie, never counts."""
        file = self.files.setdefault(name, LoggedFile(name, instance, machine))
        file.sealed = True
        behind = [block for block in file.blocks if block.last > offset]
        for block in behind:
            self._forget_received(file.instance, block)
        file.lost += behind
        file.blocks = [block for block in file.blocks if block.last <= offset]

    def _forget_received(self, instance: str, block: LoggedBlock) -> None:
        if block.came_through is not None:
            known = self.received.get((instance, block.came_through), {})
            for entry in block.entries:
                known.pop(entry.value, None)

    # ---- L3 (no gap), L4 (nothing twice) and L5 (no loop)

    def _judge_received(self, instance: str, block: LoggedBlock) -> None:
        assert block.came_through is not None
        if instance in block.provenance or not block.provenance:
            self.break_law(f"loop: {instance} takes data that has passed {block.provenance}")
        known = self.received.setdefault((instance, block.came_through), {})
        for entry in block.entries:
            if entry.value in known:
                self.break_law(f"twice: {entry.value!r} is applied again in tablet {block.tablet} of {instance}")
            known[entry.value] = block.file
        taken = self.taken(instance, block.came_through[2])
        for entry in block.entries:
            self._judge_gap(instance, block, entry, taken)

    def taken(self, instance: str, table: str) -> set[bytes]:
        """The received records of a table, by all paths."""
        pairs = (known for (of, pair), known in self.received.items() if of == instance and pair[2] == table)
        return {value for known in pairs for value in known}

    def _judge_gap(self, instance: str, block: LoggedBlock, entry: Entry, known: set[bytes]) -> None:
        """Everything for this target that was written before the record is here too, by this path or another: to its
        row, in any tablet that had the row, and else by the record's tablet for the tablet that takes it.
        """
        assert block.came_through is not None
        source, source_table, target_table, incarnation = block.came_through
        home = self.find(source, source_table, entry.value)
        if home is None:
            self.break_law(f"garbage: {entry.value!r} came to {block.tablet} and no user wrote it")
            return
        home_block, home_entry = home
        if home_block.last > self.files[home_block.file].durable:
            self.break_law(f"not durable: {entry.value!r} travels and its own cluster may still lose it")
        key = (source_table, target_table, incarnation)
        if home_entry not in home_block.meant_for(lambda target: pair_of(target) == key):
            self.break_law(f"not meant: {entry.value!r} came through {block.came_through} and is not stamped for it")
        for other in self.blocks_of(source, source_table):
            if instance in other.provenance or is_refused(other.entries) or self._is_given_up(other, home_block):
                continue
            for earlier in other.meant_for(lambda target: pair_of(target) == key):
                if earlier.seq >= home_entry.seq or earlier.value in known:
                    continue
                if earlier.row == home_entry.row or (
                    other.tablet == home_block.tablet and self.lies_in(instance, block.tablet, earlier.row)
                ):
                    self.break_law(f"gap: {entry.value!r} is applied in {block.tablet} before {earlier.value!r}")

    def note_given_up(self, tablet: TabletKey, log: str) -> None:
        """A tablet goes on without the logs of a session: what it writes later waits for none of them."""
        self.given_up.add((tablet, session_directory(log)))

    def _is_given_up(self, earlier: LoggedBlock, later: LoggedBlock) -> bool:
        """Whether a block may come behind one of another session."""
        there = session_directory(earlier.file)
        return (earlier.tablet, there) in self.given_up and there != session_directory(later.file)

    def find(self, instance: str, table: str, value: bytes) -> tuple[LoggedBlock, Entry] | None:
        """The block in which a cluster's table wrote a record."""
        for file in self.files.values():
            if file.instance != instance:
                continue
            for block in file.blocks:
                if block.tablet[0] == table:
                    for entry in block.entries:
                        if entry.value == value:
                            return block, entry
        return None

    def blocks_of(self, instance: str, table: str) -> Iterable[LoggedBlock]:
        """The blocks that a table's tablets wrote."""
        for file in self.files.values():
            if file.instance == instance:
                yield from (block for block in file.blocks if block.tablet[0] == table)

    # ---- L2: no file goes early

    def missing_at(self, file: LoggedFile, target: TargetKey, peer: str, through: int, excused: Excused) -> list[bytes]:
        """The records of a log, up to an offset, that a target lacks durably, without excused blocks."""
        there = self.durable_values.get(peer, set())
        return [
            entry.value
            for block in file.blocks
            if block.last <= through and peer not in block.provenance
            if not excused(file.name, target, block.first, block.entries)
            for entry in block.meant_for(lambda other: other == target)
            if (target.remote_table_id, entry.value) not in there
        ]

    def finished(self, name: str, target: TargetKey, peer: str, offset: int) -> None:
        """A worker says that a target has everything up to an offset."""
        file = self.files.get(name)
        if file is not None and (missing := self.missing_at(file, target, peer, offset, self.set_aside.may_be_passed)):
            self.break_law(f"claimed: {target} is finished up to {offset} of {name} and lacks {missing}")

    def deleting(self, name: str, configured: dict[TargetKey, str]) -> None:
        """A log goes. ``configured`` targets with the instance behind them."""
        file = self.files.get(name)
        if file is None or file.deleted:
            return
        file.deleted = True
        for target, peer in configured.items():
            missing = self.missing_at(file, target, peer, file.last(), self.set_aside.may_be_missing)
            if missing:
                self.break_law(f"deleted early: {name} goes and {target} lacks {missing}")


def pair_of(target: TargetKey) -> tuple[str, str, int]:
    """A target as its stream names it."""
    return target.source_table_id, target.remote_table_id, target.incarnation


def logged_block(name: str, block: Block) -> LoggedBlock:
    """The entries of a block, from its header and records."""
    header = block.header
    came_through: PairKey | None = None
    if header.HasField("origin"):
        stream = origin_from_pb(header.origin).stream
        came_through = (
            stream.source_instance_id,
            stream.source_table_id,
            stream.target_table_id,
            stream.incarnation,
        )
    return LoggedBlock(
        name,
        block.first_offset,
        block.last_offset,
        (header.table_id, header.end_row if header.HasField("end_row") else None),
        frozenset(map(block_target_from_pb, header.block_targets)),
        tuple(header.provenance),
        came_through,
        {family: group.name for group in header.groups for family in group.families},
        tuple(entries_of(block.batch(), header.first_seq)),
        header.write_time_ms,
    )
