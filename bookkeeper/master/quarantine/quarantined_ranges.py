"""Ranges that fail for good: when one is set aside, what its row in the books is for, and who may pass it.

Arrives: permanent errors that workers narrowed to blocks (``shipments``), `~quar_` rows. Leaves: a row for each range
that a target's queue goes on without. The row is in the books before anything passes the range: workers are told of
ranges that have one, and of no others, and the collector keeps a file that a row names. So whatever is cut, the records
are in the queue or in a row. Survives a crash: the rows; how often a range has failed is counted anew by each master.

A row may stand for records that were shipped after all, if a deposed master was still writing it: they are kept too
long then, and never lost. Rules: R1, R7, R9, R17 and R19.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.config import ReplicationSettings
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index.shipments import Shipment, Shipments, WorkKey
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, TargetKey

LOG = logging.getLogger(__name__)

AUTOMATIC_RANGES_MAX = 100
"""Ranges of one peer that are set aside without a person: one that refuses more than that is no matter of records."""


@dataclass(frozen=True, slots=True, order=True)
class RangeKey:
    """A range in quarantine: its file, the target that did not get it, and its first record."""

    file: str
    target: TargetKey
    first: int

    @property
    def range_id(self) -> str:
        """A short name for people, the same whoever says it."""
        text = f"{self.file} {self.target.encode().decode()} {self.first}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def work(self) -> WorkKey:
        """Where the shipment of its stream is found."""
        return self.file.encode(), self.target

    @property
    def cell(self) -> CellKey:
        """Its cell in the books."""
        return CellKey(keys.quar_row(self.file), keys.quar_column(self.target, self.first))


def read_rows(rows: Iterable[Row]) -> dict[RangeKey, Quarantined]:
    """The ranges of `~quar_` rows. One that does not parse is left alone and said: its file is kept all the same."""
    found: dict[RangeKey, Quarantined] = {}
    for row in rows:
        for column, cell in row.cells.items():
            try:
                target, first = keys.parse_quar_column(column.qualifier)
                found[RangeKey(keys.parse_quar_row(row.key), target, first)] = Quarantined.decode(cell.value)
            except CorruptionError as error:
                LOG.error("cell %r of row %r is no quarantined range: %s", column, row.key, error.message)
    return found


def scan_rows(table: MetadataTable) -> dict[RangeKey, Quarantined]:
    """Every range in quarantine, as the books have it now. Raises TransientError."""
    return read_rows(table.scan(*keys.section(keys.QUAR_PREFIX), ("quar",)))


def write_rows(table: MetadataTable, reign: Reign, ranges: Mapping[RangeKey, Quarantined]) -> None:
    """Put rows at a rank of this reign; they are durable on return. Raises TransientError, LeaseLostError."""
    puts = [RowPut(key.cell.key, {key.cell.column: value.encode()}) for key, value in ranges.items()]
    if puts:
        table.put(puts, reign.next_rank())


def is_blocking(shipment: Shipment, tries: int) -> bool:
    """The same blocks have failed for good so often that waiting alone is no answer."""
    return shipment.failed is not None and shipment.failures >= tries


def blocking_ranges(shipping: Shipments, tries: int) -> Iterator[tuple[RangeKey, Shipment, BlockRange]]:
    """The ranges that keep their queue from going on now."""
    for (file, target), shipment in list(shipping.shipments.items()):
        if shipment.failed is not None and is_blocking(shipment, tries):
            yield RangeKey(file.decode(), target, shipment.failed.first), shipment, shipment.failed


def entry_of(shipment: Shipment, blocks: BlockRange, now_ms: int) -> Quarantined:
    """What the books say of a range that is set aside now."""
    return Quarantined(blocks, shipment.error_code or "permanent", shipment.error or "", now_ms)


@dataclass(slots=True)
class Quarantine:
    """One reign's view of what is set aside. Used by the master's thread; others read ``ranges``.

    ``give_up`` begins the removal of a range that nobody can get any more.
    """

    table: MetadataTable
    reign: Reign
    clock: Clock
    settings: ReplicationSettings
    give_up: Callable[[RangeKey], object]
    ranges: dict[RangeKey, Quarantined] = field(default_factory=dict)
    _passed: dict[WorkKey, tuple[BlockRange, ...]] = field(default_factory=dict)
    _unconfigured: frozenset[RangeKey] = frozenset()

    def refresh(self) -> None:
        """Read the rows, as part of a full cycle. Raises TransientError."""
        self._remember(scan_rows(self.table))

    def passed(self, key: WorkKey) -> tuple[BlockRange, ...]:
        """What a worker may pass over: ranges that have their row, and no others."""
        return self._passed.get(key, ())

    def hold_due(self, shipping: Shipments) -> list[RangeKey]:
        """With the policy ``auto``, set aside what blocks a queue; returns it. Raises TransientError."""
        if self.settings.quarantine != "auto":
            return []
        counts = Counter(key.target.cluster for key in self.ranges)
        due: dict[RangeKey, Quarantined] = {}
        for key, shipment, blocks in blocking_ranges(shipping, self.settings.quarantine_tries):
            if counts[key.target.cluster] < AUTOMATIC_RANGES_MAX:
                counts[key.target.cluster] += 1
                due[key] = entry_of(shipment, blocks, self.clock.wall_ms())
        self.hold(due)
        for key, value in due.items():
            LOG.warning("%s", told_of(key, value))
        return list(due)

    def hold(self, ranges: Mapping[RangeKey, Quarantined]) -> None:
        """Let these ranges be passed: their rows first, and only when those are durable does anybody hear of it."""
        if ranges:
            write_rows(self.table, self.reign, ranges)
            self._remember({**self.ranges, **ranges})

    def drop_unconfigured(self, configured: Collection[TargetKey]) -> None:
        """Rule R9: nothing is kept for a target that is configured no more. Rule R7: this reign's cycle before this
        one, which read the configuration as well, has to have found it so too.
        """
        gone = frozenset(key for key in self.ranges if key.target not in configured)
        for key in sorted(gone & self._unconfigured):
            self.give_up(key)
        self._unconfigured = gone

    def _remember(self, ranges: Mapping[RangeKey, Quarantined]) -> None:
        passed: dict[WorkKey, list[BlockRange]] = {}
        for key, value in ranges.items():
            passed.setdefault(key.work, []).append(value.blocks)
        self.ranges = dict(ranges)
        self._passed = {work: tuple(sorted(blocks)) for work, blocks in passed.items()}


def told_of(key: RangeKey, value: Quarantined) -> str:
    """One line about a range that was set aside."""
    blocks = value.blocks
    return (
        f"records {blocks.first} to {blocks.last} of {key.file} are in quarantine for {key.target.cluster} "
        f"({value.code}: {value.error}); what follows goes on, the file is kept: replication quarantine retry|skip "
        f"{key.range_id}"
    )


def advice(range_id: str, blocks: BlockRange, error: str | None, tries: int) -> str:
    """What the status says of a range that blocks its queue: why, and which command releases it."""
    return (
        f"records {blocks.first} to {blocks.last} fail for good, {tries} times by now: {error}; to go on without them: "
        f"replication quarantine hold {range_id}"
    )
