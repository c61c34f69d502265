"""Retention reasons: the monitor shows the reasons for which the collector keeps a file."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.retention_reasons import RetentionReasons
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from tests.support.faults import fault
from tests.support.master_values import EAST, books_row, name, status_value

NAMES = {"1": "cities"}
FILES = [name(session).decode() for session in ("s1", "s2", "s3")]
LIVE = {"s1", "s2"}
Cells = dict[str, set[str]]


@dataclass
class Found:
    """Rows of the books, as the collector reads them."""

    tablets: list[Row]
    books: list[Row] = field(default_factory=list)
    ranges: list[RangeKey] = field(default_factory=list)
    holds: list[Row] = field(default_factory=list)


def rows_of(needs: dict[str, set[str]]) -> Found:
    """Rows of the books in which each file has these needs."""
    tablet = {keys.PREV_ROW: Cell(1, values.encode_prev_row(None))}
    remnant: dict[Column, Cell] = {}
    found_rows = Found([])
    for file, found in needs.items():
        tablet |= {Column(kind, file.encode()): Cell(1, b"") for kind in ("log", "repl") if kind in found}
        remnant |= {Column(kind[4:], file.encode()): Cell(1, b"") for kind in ("old-log", "old-repl") if kind in found}
        if found & {"needed", "done"}:
            needed = {EAST: status_value(3)} if "needed" in found else None
            found_rows.books.append(books_row(file.encode(), needed, {EAST: 1} if "done" in found else None))
        if "quarantine" in found:
            found_rows.ranges.append(RangeKey(file, EAST, 2))
        if "held" in found:
            found_rows.holds.append(Row(keys.hold_row(file), {keys.hold_column("0c"): Cell(1, values.EMPTY)}))
    found_rows.tablets += [Row(b"1;m", remnant), Row(b"1<", tablet)]
    return found_rows


def reasons_of(rows: Found) -> RetentionReasons:
    reasons = RetentionReasons(NAMES)
    for row in rows.tablets:
        reasons.tablet(row)
    for row in rows.books:
        reasons.books(row)
    for key in rows.ranges:
        reasons.quarantined(key)
    for row in rows.holds:
        reasons.held(row)
    return reasons


def disagreement(needs: dict[str, set[str]], sealed: dict[str, bool], marked: set[str]) -> list[str]:
    """Files of which the collector and the reasons say different things."""
    rows = rows_of(needs)
    ranges = [Row(keys.quar_row(k.file), {keys.quar_column(k.target, k.first): Cell(1, b"")}) for k in rows.ranges]
    referenced = {file.decode() for file in gc_rules.references(rows.tablets, rows.books, ranges, rows.holds)}
    logs = [LogFile(file, session, sealed[file]) for file, session in zip(FILES, ("s1", "s2", "s3"), strict=True)]
    retained = {file.file: file for file in reasons_of(rows).retained(logs, {}, LIVE, marked)}
    return [
        log.name
        for log in logs
        if any(reason.kind != "deletion" for reason in retained[log.name].reasons)
        is gc_rules.is_collectable_log(log, referenced, LIVE)
    ]


NEEDS = st.sets(st.sampled_from(["log", "repl", "old-log", "old-repl", "needed", "done", "quarantine", "held"]))


@given(
    st.fixed_dictionaries(dict.fromkeys(FILES, NEEDS)),
    st.fixed_dictionaries({file: st.booleans() for file in FILES}),
    st.sets(st.sampled_from(FILES)),
)
def test_a_log_has_a_reason_if_and_only_if_the_collector_keeps_it(
    needs: dict[str, set[str]], sealed: dict[str, bool], marked: set[str]
) -> None:
    assert disagreement(needs, sealed, marked) == []


def test_the_law_fails_when_a_reason_is_left_out() -> None:
    needs: dict[str, set[str]] = {file: {"quarantine"} for file in FILES}
    with fault("quarantine-keeps-silently"):
        assert disagreement(needs, dict.fromkeys(FILES, True), set()) == FILES
    needs = {file: {"held"} for file in FILES}
    with fault("holds-keep-silently"):
        assert disagreement(needs, dict.fromkeys(FILES, True), set()) == FILES


def test_reasons_say_for_whom() -> None:
    first, second, third = FILES
    needs = {first: {"log", "needed", "repl"}, second: {"repl"}, third: {"quarantine", "held"}}
    reasons = reasons_of(rows_of(needs))
    assert [(found.kind, found.who, found.detail) for found in reasons.reasons(first)] == [
        ("recovery", "table cities", "1 tablet not flushed beyond it"),
        ("replication", "east", "table cities"),
    ]
    assert [(found.kind, found.who) for found in reasons.reasons(second)] == [("books", "table cities")]
    assert [(found.kind, found.detail) for found in reasons.reasons(third)] == [
        ("operation", "it uses the file"),
        ("quarantine", "table cities, 1 range"),
    ]


def test_a_log_of_which_no_peer_lacks_anything_is_not_kept_for_replication() -> None:
    first, second, third = FILES
    lacks = {first: "lacks 3 records (peer_full)", second: None, third: ""}
    reasons = RetentionReasons(NAMES, lambda file, _target: lacks[file])
    for row in rows_of({file: {"needed"} for file in FILES}).books:
        reasons.books(row)
    assert [(found.kind, found.who, found.detail) for file in FILES for found in reasons.reasons(file)] == [
        ("replication", "east", "table cities: lacks 3 records (peer_full)"),
        ("books", "east", "table cities: it lacks nothing, and the file's books are open"),
        ("replication", "east", "table cities"),
    ]


def test_each_holder_of_a_file_is_named() -> None:
    columns = [
        keys.hold_column("0c"),
        keys.log_hold_column(FILES[0]),
        keys.arrival_column("tserver-1"),
        keys.taking_column("tserver-2", "order"),
    ]
    reasons = RetentionReasons(NAMES)
    reasons.held(Row(keys.hold_row("f"), dict.fromkeys(columns, Cell(1, values.EMPTY))))
    assert [(found.kind, found.who, found.detail) for found in reasons.reasons("f")] == [
        ("operation", "0c", "it uses the file"),
        ("receiver", "tserver-1", "another cluster sends it the file"),
        ("receiver", "tserver-2", "it adds the file to a tablet"),
        ("replication", FILES[0], "peers may take the file for this log"),
    ]


def test_the_largest_come_first_and_marked_files_are_there_too() -> None:
    first, second, third = FILES
    segment = "tables/1/t/a.parquet"
    logs = [LogFile(first, "s1", False), LogFile(second, "s2", True)]
    found = RetentionReasons(NAMES).retained(logs, {first: 5, second: 9, segment: 7}, LIVE, {second, segment})
    assert [(file.file, file.bytes, [reason.kind for reason in file.reasons]) for file in found] == [
        (second, 9, ["deletion"]),
        (segment, 7, ["deletion"]),
        (first, 5, ["writer"]),
    ]
    assert third not in {file.file for file in found}
