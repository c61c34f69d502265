"""Fault switches of operations that another master takes over, such as splits and merges, and of a tablet's state that
passes to its next holder (see ``faults``).
"""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.master.books import books_cycle
from bookkeeper.master.fate import fate_store
from bookkeeper.master.fate.fate_store import FIRST_STEP, FateRecord
from bookkeeper.master.fate.fate_store import parse_record as _parse_record
from bookkeeper.master.splits import due_splits, split_rules
from bookkeeper.master.splits.split_rules import Change, TabletFacts, Write
from bookkeeper.master.splits.split_rules import in_order as _in_order
from bookkeeper.master.splits.split_rules import part_state as _part_state
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent
from bookkeeper.tserver.maintenance import sealed_logs
from bookkeeper.tserver.maintenance.sealed_logs import Positions
from bookkeeper.tserver.origins import partial_high_water
from bookkeeper.tserver.tablets import flushed_logs, load_plan
from bookkeeper.tserver.write import request_dedup
from tests.support.replacement import Fault


def _at_its_first_step(row: Row) -> FateRecord | None:
    record = _parse_record(row)
    return None if record is None else replace(record, step=FIRST_STEP, state={})


def _without_streams(facts: TabletFacts, extent: Extent, serial: int) -> FlushState:
    return replace(_part_state(facts, extent, serial), high_water={}, partial_high_waters={}, origin_intervals={})


def _backwards(change: Change) -> list[Write]:
    return _in_order(change)[::-1]


def _of_the_table(extent: Extent, positions: Positions) -> list[int]:
    return sorted(at for (table_id, _), found in positions.items() if table_id == extent.table_id for at in found)


BORDER_FAULTS: dict[str, Fault] = {
    "operations-begin-anew": Fault(
        fate_store.parse_record,
        _at_its_first_step,
        "a master that takes over repeats finished steps",
    ),
    "remnants-are-tablets": Fault(
        keys.is_tablet,
        lambda row: True,  # noqa: ARG005
        "R16: the remnant of a merged tablet breaks the chain for ever",
    ),
    "only-the-own-row-is-read": Fault(
        books_cycle.predecessor_rows,
        lambda table, table_id: [],  # noqa: ARG005
        "R24: a tablet's record overtakes one that its parent wrote to another log",
    ),
    "references-go-first": Fault(
        split_rules.in_order,
        _backwards,
        "R16: a scan reads a row when a reference has gone from it, and has passed the row where it comes",
    ),
    "serials-begin-again": Fault(
        split_rules.next_serial,
        lambda rows: 2,  # noqa: ARG005
        "R1: a write to a row that comes back stays hidden below an older delete",
    ),
    "busy-tablets-split": Fault(
        split_rules.is_quiet,
        lambda row: True,  # noqa: ARG005
        "N3: a new tablet begins without records that no named state has, and their log goes",
    ),
    "halves-forget-streams": Fault(
        split_rules.part_state,
        _without_streams,
        "R18: a new tablet applies a record again that the tablet before it has",
    ),
    "highest-of-merged-counts": Fault(
        split_rules.common_high_water,
        max,
        "R18: a merged tablet drops records as duplicates that one of its parts lacks",
    ),
    "nothing-is-ahead": Fault(
        split_rules.rows_ahead,
        lambda states, stream, common: (),  # noqa: ARG005
        "R18: a merged tablet applies records again that one of its parts has",
    ),
    "one-predecessor-is-enough": Fault(
        split_rules.joined_last_wals,
        lambda states: list(states)[-1].last_wals,
        "R24: a merged tablet's record overtakes one that a part of it wrote to another log",
    ),
    "logs-of-parents-are-replayed": Fault(
        sealed_logs.positions_of,
        _of_the_table,
        "R15: half of a split tablet replays records that its parent had flushed",
    ),
    "any-tserver-writes-it": Fault(
        request_dedup.is_for_another,
        lambda meant, placed: False,  # noqa: ARG005
        "a write that its client gave up lands after a later one, when the tablet was elsewhere and came back",
    ),
    "late-uses-are-not-expected": Fault(
        flushed_logs.may_come_late,
        lambda over_since_ns, now_ns, flight_ns: False,  # noqa: ARG005
        "R4: a tablet is loaded, and a late first use makes it replay a log that its segments hold",
    ),
    "rows-ahead-do-not-count": Fault(
        partial_high_water.known_rows,
        lambda block, ahead: [],  # noqa: ARG005
        "R18: a merged tablet applies records again that one of its parts has",
    ),
    "shared-files-count-completely": Fault(
        due_splits.counted_bytes,
        lambda size, measured: size.whole_bytes + size.shared_bytes,  # noqa: ARG005
        "two halves that share a file are split again and again, until each has one row group",
    ),
    "operations-hold-no-table": Fault(
        due_splits.is_held,
        lambda table, locks: False,  # noqa: ARG005
        "a split begins while an import fills the table, at a row of the time before",
    ),
    "parking-is-optional": Fault(
        load_plan.assigned_to,
        lambda location: location.session,
        "R7: a tablet is loaded while its borders are changed",
    ),
}
