"""The ranges in quarantine: their records fail with a permanent error again and again, and their stream skips them.

Arrives: permanent errors that workers narrowed to blocks (``shipments``), `~quar_` rows. Leaves: a row for each range
without which a stream continues. The row is in the books before a worker passes over the range, and the collector
retains a file that a row names. So after any crash the records are in the stream or in a row. A new leader starts all
failure counts at zero.

A late put of a deposed master may leave a row for records that were shipped. Their file is then retained longer, and
no record is lost. Rules: R1, R7, R9, R17 and R19.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field, structs

from bookkeeper.bulk.import_places import read_first_seq
from bookkeeper.clock import Clock
from bookkeeper.config.sections import ReplicationSettings
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index.shipments import Shipment, Shipments, WorkKey
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, TargetKey

LOG = logging.getLogger(__name__)

AUTOMATIC_RANGES_MAX = 100
"""At this number of ranges of one peer, automatic quarantine stops: the peer itself has a problem."""


class RangeKey(Struct, frozen=True, order=True):
    """The key of a range in quarantine: its file, the target that lacks it, and its first record."""

    file: str
    target: TargetKey
    first: int

    @property
    def range_id(self) -> str:
        """A short name for operators: a hash of the key, the same at every master."""
        text = f"{self.file} {self.target.encode().decode()} {self.first}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def work(self) -> WorkKey:
        """The key of its stream's shipment."""
        return self.file.encode(), self.target

    @property
    def cell(self) -> CellKey:
        """Its cell in the books."""
        return CellKey(keys.quar_row(self.file), keys.quar_column(self.target, self.first))


def read_rows(rows: Iterable[Row]) -> dict[RangeKey, Quarantined]:
    """The ranges of `~quar_` rows. A cell that does not parse is logged and stays; its row still retains the file."""
    found: dict[RangeKey, Quarantined] = {}
    for row in rows:
        for column, cell in row.cells.items():
            try:
                target, first = keys.parse_quar_column(column.qualifier)
                found[RangeKey(keys.parse_quar_row(row.key), target, first)] = Quarantined.decode(cell.value)
            except CorruptionError as error:
                LOG.error(
                    "cell %r of row %r can't be parsed as a range in quarantine: %s", column, row.key, error.message
                )
    return found


def scan_rows(table: MetadataTable) -> dict[RangeKey, Quarantined]:
    """Every range in quarantine, read from the books now. Raises TransientError."""
    return read_rows(table.scan(*keys.section(keys.QUAR_PREFIX), ("quar",)))


def write_rows(table: MetadataTable, reign: Reign, ranges: Mapping[RangeKey, Quarantined]) -> None:
    """Put rows at a rank of this reign; they are durable on return. Raises TransientError, LeaseLostError,
    CorruptionError.
    """
    puts = []
    for key, value in ranges.items():
        # The log's cell that has its place goes when the queue has passed the range.
        place = value.first_seq or read_first_seq(table, key.file, key.target)
        puts.append(RowPut(key.cell.key, {key.cell.column: structs.replace(value, first_seq=place).encode()}))
    if puts:
        table.put(puts, reign.next_rank())


def is_blocking(shipment: Shipment, tries: int) -> bool:
    """Whether the same blocks have failed for good ``tries`` times, so that they block their queue."""
    return shipment.failed is not None and shipment.failures >= tries


def blocking_ranges(shipping: Shipments, tries: int) -> Iterator[tuple[RangeKey, Shipment, BlockRange]]:
    """The ranges that block their queue now."""
    for (file, target), shipment in list(shipping.shipments.items()):
        if shipment.failed is not None and is_blocking(shipment, tries):
            yield RangeKey(file.decode(), target, shipment.failed.first), shipment, shipment.failed


def entry_of(shipment: Shipment, blocks: BlockRange, now_ms: int) -> Quarantined:
    """The value in the books of a range that enters the quarantine now."""
    return Quarantined(blocks, shipment.error_code or "permanent", shipment.error or "", now_ms)


def note_write_time(shipping: Shipments, key: RangeKey, shipment: Shipment, now_ns: int) -> None:
    """A range enters the quarantine: its first block is the first that the target lacks now, and the range keeps that
    time when its queue goes on.
    """
    written_ns = shipping.times.written_ns(key.work, shipment.share.records, now_ns)
    shipping.times.note_range((*key.work, key.first), written_ns)


class Quarantine(Struct):
    """A leader's copy of the ranges in quarantine. Used by the master's thread; others read ``ranges``.

    ``give_up`` starts the removal of a range whose target is not configured any more.
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
        """The ranges of a stream that a worker may pass over: only those with a row in the books."""
        return self._passed.get(key, ())

    def hold_due(self, shipping: Shipments) -> list[RangeKey]:
        """With the policy ``auto``, put blocking ranges in quarantine, up to the maximum of a peer; returns them.
        Raises TransientError, LeaseLostError.
        """
        if self.settings.quarantine != "auto":
            return []
        counts = Counter(key.target.cluster for key in self.ranges)
        due: dict[RangeKey, Quarantined] = {}
        for key, shipment, blocks in blocking_ranges(shipping, self.settings.quarantine_tries):
            if counts[key.target.cluster] < AUTOMATIC_RANGES_MAX:
                counts[key.target.cluster] += 1
                note_write_time(shipping, key, shipment, self.clock.boot_ns())
                due[key] = entry_of(shipment, blocks, self.clock.wall_ms())
        self.hold(due)
        for key, value in due.items():
            LOG.warning("%s", quarantine_message(key, value))
        return list(due)

    def hold(self, ranges: Mapping[RangeKey, Quarantined]) -> None:
        """Put these ranges in quarantine: workers may pass over them once their rows are durable. Raises
        TransientError, LeaseLostError.
        """
        if ranges:
            write_rows(self.table, self.reign, ranges)
            self._remember({**self.ranges, **ranges})

    def drop_unconfigured(self, configured: Collection[TargetKey]) -> None:
        """Start the removal of ranges of targets that are not configured any more (rule R9). Rule R7: this cycle and
        the previous one of this reign must both have read such a configuration.
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


def quarantine_message(key: RangeKey, value: Quarantined) -> str:
    """The log line about a range that entered the quarantine."""
    blocks = value.blocks
    return (
        f"records {blocks.first} to {blocks.last} of {key.file} are in quarantine for {key.target.cluster} "
        f"({value.code}: {value.error}); later records are shipped, the file is retained; to end this: "
        f"replication quarantine retry|skip {key.range_id}"
    )


def advice(range_id: str, blocks: BlockRange, error: str | None, tries: int) -> str:
    """The status text of a range that blocks its queue: its error, and the command that releases the queue."""
    return (
        f"records {blocks.first} to {blocks.last} failed {tries} times with a permanent error: {error}; to go on "
        f"without them: replication quarantine hold {range_id}"
    )
