"""The administration of the quarantine: lists ranges, and holds, retries or skips one of them by its short id.

Rows in the books and operations survive a crash. The count of failures does not: the next master lists a range as
blocking after as many failures of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import NotFoundError
from bookkeeper.master.cycle.event_queue import EventQueue
from bookkeeper.master.fate.engine import FateEngine, Running
from bookkeeper.master.index.shipments import Shipment, Shipments
from bookkeeper.master.operations.quarantine import range_args, range_of
from bookkeeper.master.quarantine.quarantined_ranges import (
    RangeKey,
    blocking_ranges,
    entry_of,
    note_write_time,
    quarantine_message,
    scan_rows,
    write_rows,
)
from bookkeeper.master.queries.causes import QUARANTINED
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.rpc.contract.messages import FileMark, QuarantinedRange, TargetStatus

PHASES = {"retry_range": "retrying", "skip_range": "skipping"}

Held = Mapping[RangeKey, Quarantined]
"""Ranges in quarantine."""


class QuarantineAdmin(Struct, frozen=True):
    """The quarantine's commands in one reign. A range blocks its queue after ``tries`` failures. Thread-safe."""

    table: MetadataTable
    reign: Reign
    clock: Clock
    fate: FateEngine
    event_queue: EventQueue
    shipping: Shipments
    tries: int

    def list_ranges(self, table_names: Mapping[str, str], held: Held | None = None) -> list[QuarantinedRange]:
        """The blocking ranges, then the held ones, each sorted. ``held``: those of the latest cycle; None: read the
        books, which may not answer. Raises TransientError.
        """
        self.reign.check()
        rows = scan_rows(self.table) if held is None else held
        blocking = self._blocking()
        phase_of = phases(self.fate.pending())
        found = [
            message_of(key, entry_of(shipment, blocks, 0), "blocking", shipment.failures, table_names)
            for key, (shipment, blocks) in sorted(blocking.items())
            if key not in rows
        ]
        return found + [
            message_of(key, value, phase_of.get(key, "held"), 0, table_names) for key, value in sorted(rows.items())
        ]

    def hold(self, range_id: str, table_names: Mapping[str, str]) -> QuarantinedRange:
        """Hold a range that blocks its queue, so that the queue continues. Returns once the books have the range. May
        be repeated. Raises NotFoundError, TransientError.
        """
        rows = scan_rows(self.table)
        key = find_range(range_id, rows)
        if key is None:
            key, value = self._hold_blocking(range_id)
        else:
            value = rows[key]
        return message_of(key, value, "held", 0, table_names)

    def _hold_blocking(self, range_id: str) -> tuple[RangeKey, Quarantined]:
        blocking = self._blocking()
        key = get_range(range_id, blocking)
        shipment, blocks = blocking[key]
        value = entry_of(shipment, blocks, self.clock.wall_ms())
        note_write_time(self.shipping, key, shipment, self.clock.boot_ns())
        write_rows(self.table, self.reign, {key: value})
        self.event_queue.ask_full()
        return key, value

    def retry(self, range_id: str, timeout_ms: int) -> None:
        """Ship a held range and return once the peer has it; or ship a blocking range at once, in its order.

        Raises NotFoundError, the error of the run, and UnavailableError after the time limit.
        """
        key = find_range(range_id, scan_rows(self.table))
        if key is not None:
            self.fate.run("retry_range", range_args(key), timeout_ms)
        else:
            self.event_queue.press(get_range(range_id, self._blocking()).work)

    def skip(self, range_id: str, timeout_ms: int) -> None:
        """Give up a blocking or held range; returns once the range no longer retains its file.

        Raises NotFoundError, and UnavailableError after the time limit.
        """
        key = find_range(range_id, scan_rows(self.table))
        if key is None:
            key, _ = self._hold_blocking(range_id)
        self.fate.run("skip_range", range_args(key), timeout_ms)

    def _blocking(self) -> dict[RangeKey, tuple[Shipment, BlockRange]]:
        return {key: (shipment, blocks) for key, shipment, blocks in blocking_ranges(self.shipping, self.tries)}

    # ---- for the status

    def statuses(
        self, wanted_table: str | None, table_names: Mapping[str, str], held: Held | None = None
    ) -> list[TargetStatus]:
        """Held ranges as rows of the replication status; ``held`` as for :meth:`list_ranges`."""
        rows = scan_rows(self.table) if held is None else held
        return [
            status_of(key, value, table_names, self._age_s(key))
            for key, value in sorted(rows.items())
            if wanted_table in (None, key.target.source_table_id)
        ]

    def statuses_below(
        self, marks: Iterable[FileMark], table_id: str, cluster: str, table_names: Mapping[str, str]
    ) -> list[TargetStatus]:
        """Held ranges below marks: they are finished for the queue, and not replicated."""
        offsets = {mark.file: mark.offset for mark in marks}
        return [
            status_of(key, value, table_names, self._age_s(key))
            for key, value in sorted(scan_rows(self.table).items())
            if key.target.source_table_id == table_id and cluster in ("", key.target.cluster)
            if value.blocks.first <= offsets.get(key.file, 0)
        ]

    def _age_s(self, key: RangeKey) -> float | None:
        """The age of a range's first block; None: it is unknown until its header is read."""
        written_ns = self.shipping.times.ranges.get((*key.work, key.first))
        return None if written_ns is None else max(0.0, (self.clock.boot_ns() - written_ns) / 1e9)


def find_range(range_id: str, ranges: Iterable[RangeKey]) -> RangeKey | None:
    """The range with this short id, or None."""
    return next((key for key in ranges if key.range_id == range_id), None)


def get_range(range_id: str, ranges: Iterable[RangeKey]) -> RangeKey:
    """The range with this short id. Raises NotFoundError."""
    key = find_range(range_id, ranges)
    if key is None:
        raise NotFoundError(f"no range {range_id} blocks a queue or is in quarantine; see: replication quarantine list")
    return key


def phases(pending: Iterable[Running]) -> dict[RangeKey, str]:
    """The phases of ranges that a running operation retries or skips."""
    return {
        range_of(running.op.args): PHASES[running.op.type]
        for running in pending
        if running.op.type in PHASES and not running.ended
    }


def message_of(
    key: RangeKey, value: Quarantined, state: str, tries: int, table_names: Mapping[str, str]
) -> QuarantinedRange:
    """A range as a message of the wire contract."""
    return QuarantinedRange(
        range_id=key.range_id,
        table=name_of(key.target, table_names),
        target=key.target,
        file=key.file,
        blocks=value.blocks,
        state=state,
        error_code=value.code,
        error=value.error,
        since_ms=value.since_ms,
        tries=tries,
    )


def status_of(key: RangeKey, value: Quarantined, table_names: Mapping[str, str], age_s: float | None) -> TargetStatus:
    """A range as a row of the replication status: unfinished, although its queue has passed it. The lag counts complete
    blocks, which may have records of other targets; ``age_s``: the age of the first one.
    """
    blocks = value.blocks
    return TargetStatus(
        file=key.file,
        target=key.target,
        state="CLOSED",
        needed=blocks.last,
        finished=blocks.first - 1,
        lag_records=blocks.last - blocks.first + 1,
        lag_bytes=max(0, blocks.end_position - blocks.start_position),
        lag_seconds=age_s,
        phase="quarantined",
        last_error=quarantine_message(key, value),
        next_try_in_ms=None,
        worker=None,
        records_shipped=0,
        bytes_shipped=0,
        resends=0,
        table=name_of(key.target, table_names),
        groups=(),
        cause=QUARANTINED,
    )


def name_of(target: TargetKey, table_names: Mapping[str, str]) -> str:
    """The table's name, or its id if the table is deleted."""
    return table_names.get(target.source_table_id, target.source_table_id)
