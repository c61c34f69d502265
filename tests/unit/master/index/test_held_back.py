"""Up to which offset tablets with replicas hold back logs that lie on hosts' disks (R15)."""

from __future__ import annotations

import pytest

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index.file_entry import FileEntry, parse_cell
from bookkeeper.master.index.held_back import HeldBack, LogsOnHosts, is_one_copy_enough
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.snapshot import Snapshot, take_snapshot
from bookkeeper.master.index.tablet_replicas import NO_REPLICAS, replicas_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Row
from bookkeeper.metadata.values import JOINING, VOTER, FlushState, ReplicaCell
from bookkeeper.replicas.naming import UNLIMITED
from tests.support.master_values import EAST, name, scopes, status_value, tablet_row

LOG, OTHER = name("s1"), name("s2")
TWO_OF_THREE = parse_properties({"table.replicas": "3", "table.copies_min": "2"})
ONE_OF_THREE = parse_properties({"table.replicas": "3", "table.copies_min": "1"})
ON_HOSTS = LogsOnHosts({"s1"}, {"1": TWO_OF_THREE})


def row_with(
    end: bytes | None, *logs: bytes, named: dict[bytes, int] | None = None, prev: bytes | None = None, needed: int = 9
) -> Row:
    """A tablet with three replicas that uses these logs; its named state has ``named``."""
    row = tablet_row(end, prev, {log: status_value(needed) for log in logs})
    through = {log.decode(): offset for log, offset in (named or {}).items()}
    cells = {keys.log_column(log.decode()): Cell(1, values.LOG) for log in logs}
    cells |= {
        keys.replica_column(f"h{number}"): Cell(1, ReplicaCell(f"p{number}", "disk", VOTER).encode())
        for number in (1, 2, 3)
    }
    if named is not None:
        cells[keys.FLUSH] = Cell(7, FlushState(7, through, 0, 0, {}, ()).encode())
    return Row(row.key, {**row.cells, **cells})


def held(row: Row, rules: LogsOnHosts = ON_HOSTS) -> dict[bytes, HeldBack]:
    return rules.held_back_by(row, replicas_of(row))


def test_a_log_on_a_host_is_held_back_from_what_the_named_state_lacks() -> None:
    row = row_with(None, LOG, OTHER, named={LOG: 4, OTHER: 6})
    assert held(row) == {LOG: HeldBack(4, row.key)}, "the other log lies on the Volume"
    assert held(row_with(None, LOG)) == {LOG: HeldBack(0, row.key)}, "no state is named"
    assert held(row_with(None, LOG, named={})) == {LOG: HeldBack(0, row.key)}
    assert held(row_with(None, named={LOG: 4})) == {}, "no log cell: nothing of the log is in memory alone"


def test_a_table_that_asks_for_one_copy_holds_nothing_back() -> None:
    row = row_with(None, LOG)
    assert held(row, LogsOnHosts({"s1"}, {"1": ONE_OF_THREE})) == {}
    assert ON_HOSTS.held_back_by(row, NO_REPLICAS) == {}
    assert held(row, LogsOnHosts({"s1"}, {})) != {}, "a table without properties asks for a majority of the voters"


@pytest.mark.parametrize(
    ("voters", "replicas", "copies_min", "expected"),
    [(1, 1, 0, True), (2, 2, 0, False), (2, 1, 0, False), (1, 2, 0, False), (3, 3, 1, True), (1, 3, 2, False)],
)
def test_copies_that_a_table_asks_for(voters: int, replicas: int, copies_min: int, expected: bool) -> None:
    properties = parse_properties({"table.replicas": str(replicas), "table.copies_min": str(copies_min)})
    row = row_with(None)
    roles = [VOTER] * voters + [JOINING] * (3 - voters)
    cells = {
        keys.replica_column(f"h{number}"): Cell(1, ReplicaCell(f"p{number}", "disk", role).encode())
        for number, role in enumerate(roles, 1)
    }
    assert is_one_copy_enough(replicas_of(Row(row.key, {**row.cells, **cells})), properties) is expected


def test_a_state_that_does_not_parse_is_no_reason_to_ship() -> None:
    row = row_with(None, LOG)
    with pytest.raises(CorruptionError, match="flush state"):
        held(Row(row.key, {**row.cells, keys.FLUSH: Cell(7, b"{")}))


def look(rows: list[Row], before: Snapshot | None = None) -> Snapshot:
    files = Outstanding() if before is None else before.files
    return take_snapshot(rows, 1, SCOPES, ("1",), files, ON_HOSTS)


SCOPES = scopes(EAST)


def test_the_tablet_that_lacks_most_decides_and_nothing_goes_back() -> None:
    low, high = row_with(b"m", LOG, named={LOG: 3}), row_with(None, LOG, named={LOG: 7}, prev=b"m")
    first = look([low, high])
    assert first.held_back == {LOG: HeldBack(3, low.key)}
    second = look([low, high], first)
    assert (second.files[LOG].safe, second.until(LOG)) == (3, 3)
    third = look([row_with(b"m", named={LOG: 8}), high], second)
    assert third.files[LOG].safe == 7
    again = look([row_with(b"m", LOG, named={LOG: 3}), high], third)
    assert again.files[LOG].safe == 7, "what was safe stays safe"
    last = look([row_with(b"m", named={LOG: 8}), row_with(None, named={LOG: 9}, prev=b"m")], again)
    assert (last.held_back, last.until(LOG)) == ({}, UNLIMITED)


def test_a_sealed_log_is_held_back_as_an_open_one() -> None:
    row = row_with(None, LOG, named={LOG: 3})
    sealed = Row(row.key, {**row.cells, keys.repl_column(LOG.decode()): Cell(99, status_value(9, True))})
    seen = look([sealed])
    for _ in range(3):
        seen = look([sealed], seen)
    assert (seen.files[LOG].safe, seen.files[LOG].is_settled()) == (3, False)
    free = Row(sealed.key, {c: cell for c, cell in sealed.cells.items() if c != keys.log_column(LOG.decode())})
    assert look([free], seen).files[LOG].safe == 9


def test_an_entry_goes_as_far_as_it_may() -> None:
    entry = FileEntry(LOG, parse_cell(status_value(9)), SCOPES.of(("1",)))
    entry.reach(9, 4)
    assert entry.safe == 4
    entry.reach(9, 2)
    assert entry.safe == 4
    entry.reach(6)
    assert entry.safe == 6
