"""Fault switches of operations that another master takes over, such as splits and merges, and of a tablet's state that
passes to its next holder.
"""

from __future__ import annotations

from tests.support.faults.switch import Switch

BORDERS: dict[str, Switch] = {
    "operations-begin-anew": Switch(
        "bookkeeper.master.fate.fate_store",
        "parse_record",
        old="decoded.step, decoded.state",
        new="FIRST_STEP, {}",
        breaks="a master that takes over repeats finished steps",
    ),
    "remnants-are-tablets": Switch(
        "bookkeeper.metadata.keys",
        "is_tablet",
        old="return PREV_ROW in row.cells",
        new="return True",
        breaks="R16: the remnant of a merged tablet breaks the chain for ever",
    ),
    "only-the-own-row-is-read": Switch(
        "bookkeeper.master.books.books_cycle",
        "predecessor_rows",
        old='return [row.key for row in table.scan(*keys.table_section(table_id), ("tablet",))]',
        new="return []",
        breaks="R24: a tablet's record overtakes one that its parent wrote to another log",
    ),
    "references-go-first": Switch(
        "bookkeeper.master.splits.split_rules",
        "in_order",
        old="return [write for write in writes if write.puts or write.deletes]",
        new="return [write for write in writes[::-1] if write.puts or write.deletes]",
        breaks="R16: a scan reads a row when a reference has gone from it, and has passed the row where it comes",
    ),
    "serials-begin-again": Switch(
        "bookkeeper.master.splits.split_rules",
        "next_serial",
        old="return 1 + max(map(serial_of, rows), default=0)",
        new="return 2",
        breaks="R1: a write to a row that comes back stays hidden below an older delete",
    ),
    "busy-tablets-split": Switch(
        "bookkeeper.master.splits.split_rules",
        "is_quiet",
        old='return not row.family("log") and not given_up(row)',
        new="return True",
        breaks="N3: a new tablet begins without records that no named state has, and their log goes",
    ),
    "halves-forget-streams": Switch(
        "bookkeeper.master.splits.split_rules",
        "part_state",
        old="""
        partial_high_waters={stream: parts for stream, parts in ahead.items() if parts},
        origin_intervals={root: held.inside(extent.rows) for root, held in flush.origin_intervals.items()},
        """,
        new="""
        high_water={},
        partial_high_waters={},
        origin_intervals={},
        """,
        breaks="R18: a new tablet applies a record again that the tablet before it has",
    ),
    "highest-of-merged-counts": Switch(
        "bookkeeper.master.splits.split_rules",
        "joined_high_waters",
        old="min(state",
        new="max(state",
        breaks="R18: a merged tablet drops records as duplicates that one of its parts lacks",
    ),
    "nothing-is-ahead": Switch(
        "bookkeeper.master.splits.split_rules",
        "rows_ahead",
        old="return tuple(part for part in found if part.offset > common)",
        new="return ()",
        breaks="R18: a merged tablet applies records again that one of its parts has",
    ),
    "one-predecessor-is-enough": Switch(
        "bookkeeper.master.splits.split_rules",
        "joined_state",
        old="tuple(sorted(highest(place for _, state in states for place in state.last_wals).items()))",
        new="states[-1][1].last_wals",
        breaks="R24: a merged tablet's record overtakes one that a part of it wrote to another log",
    ),
    "logs-of-parents-are-replayed": Switch(
        "bookkeeper.tserver.maintenance.sealed_logs",
        "positions_of",
        old="return positions.get(tablet_key(extent), ())",
        new="""
        of_table = (found for (table_id, _), found in positions.items() if table_id == extent.table_id)
        return sorted(at for found in of_table for at in found)
        """,
        breaks="R15: half of a split tablet replays records that its parent had flushed",
    ),
    "any-tserver-writes-it": Switch(
        "bookkeeper.tserver.write.request_dedup",
        "is_for_another",
        old="return known_rank is not None and known_rank < placed",
        new="return False",
        breaks="a write that its client gave up lands after a later one, when the tablet was elsewhere and came back",
    ),
    "every-use-of-another-session-is-late": Switch(
        "bookkeeper.tserver.maintenance.late_uses",
        "is_needed",
        old="return log in needed",
        new="return False",
        breaks="R4: the collector deletes a log whose records a holder has replayed into memory alone",
    ),
    "late-uses-stay": Switch(
        "bookkeeper.tserver.maintenance.late_uses",
        "LateUses.run_once",
        old="if tablet.accepting",
        new="if False",
        breaks="a log whose first use arrived late stays until its tablet is loaded again",
    ),
    "logs-in-use-may-be-late": Switch(
        "bookkeeper.tserver.maintenance.late_uses",
        "LateUses._is_late",
        old="if tablet.given_up.awaits(log) or read_seal(self._volume, log) is None:",
        new="""
        if not is_needed(log, tablet.flushes.logs_in_row(tablet.flushes.needed_logs())):
            return read_seal(self._volume, log) is not None
        if True:
        """,
        breaks="R4: a log that is sealed while it is looked at loses its cell, and records are in memory alone",
    ),
    "late-uses-of-given-up-logs-stay": Switch(
        "bookkeeper.tserver.maintenance.late_uses",
        "LateUses._is_late",
        old="tablet.given_up.awaits(log)",
        new="tablet.given_up.has_lost",
        breaks="R4: a log that was given up and whose first use arrived late stays until its tablet is loaded again",
    ),
    "late-uses-are-not-expected": Switch(
        "bookkeeper.tserver.tablets.flushed_logs",
        "FlushedLogs.flush",
        old="if now_ns - since_ns > self._flight_ns",
        new="if True",
        breaks="R4: a tablet is loaded, and a late first use makes it replay a log that its segments hold",
    ),
    "rows-ahead-do-not-count": Switch(
        "bookkeeper.tserver.origins.partial_high_water",
        "known_rows",
        old="for part in partial_high_waters:",
        new="for part in ():",
        breaks="R18: a merged tablet applies records again that one of its parts has",
    ),
    "shared-files-count-completely": Switch(
        "bookkeeper.master.splits.due_splits",
        "counted_bytes",
        old="known = measured is not None and measured.is_of(size)",
        new="known = False",
        breaks="two halves that share a file are split again and again, until each has one row group",
    ),
    "operations-hold-no-table": Switch(
        "bookkeeper.master.splits.due_splits",
        "due_tablets",
        old='and f"table {tablet.table}" not in locks',
        new="",
        breaks="a split begins while an import fills the table, at a row of the time before",
    ),
    "parking-is-optional": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "parse_tablet",
        old="place is None or place.is_parked",
        new="place is None",
        breaks="R7: a tablet is loaded while its borders are changed",
    ),
}
