"""A command that changes replication says which records a peer lacks afterwards."""

from __future__ import annotations

from bookkeeper.coordination.config_tree import TableConfig
from bookkeeper.master.queries.target_states import TargetState, target_states
from bookkeeper.master.replication_changes import changed_keys, disabling_warnings, enabling_warnings
from bookkeeper.model import Target, TargetKey
from tests.support.master_values import EAST, NORTH, by_name, entry, name, shipping
from tests.unit.master.queries.test_status import NOW


def _lacking(*keys: TargetKey) -> list[TargetState]:
    files = by_name(entry(name("s1"), 9), entry(name("s2"), 5))
    return target_states(files, shipping(), NOW, lambda target: target.key in keys, 5)


def _table(*targets: Target) -> TableConfig:
    return TableConfig("1", "t", "online", (), {}, targets)


def test_a_new_target_of_a_table_with_records_never_gets_them() -> None:
    (message,) = enabling_warnings("t", "east", {EAST}, has_records=True)
    assert message.startswith(
        "table t holds records that were written before: east gets only those written from now on"
    )
    assert "while replication to it was disabled" in message
    assert "exporttable and importtable" in message


def test_an_empty_table_or_an_existing_target_needs_no_note() -> None:
    assert enabling_warnings("t", "east", {EAST}, has_records=False) == ()
    assert enabling_warnings("t", "east", set(), has_records=True) == ()


def test_records_that_waited_for_an_ended_target_are_counted() -> None:
    (message,) = disabling_warnings("t", "east", {EAST}, _lacking(EAST))
    assert message.startswith("up to 14 records of table t in 2 files had not reached east and are not sent any more")
    assert disabling_warnings("t", "east", {NORTH}, _lacking(EAST)) == ()
    assert disabling_warnings("t", "east", {EAST}, []) == ()
    assert disabling_warnings("t", "east", set(), None) == ()


def test_a_master_before_its_first_cycle_reports_no_count() -> None:
    (message,) = disabling_warnings("t", "east", {EAST}, None)
    assert message.startswith("this master has not read yet whether east had all of table t")


def test_a_target_that_loses_a_group_counts_as_changed() -> None:
    full, narrowed = Target(EAST, ("a", "b"), "i", "t"), Target(EAST, ("a",), "i", "t")
    other = Target(NORTH, None, "j", "t")
    assert changed_keys(_table(full, other), _table(narrowed), "east") == {EAST}
    assert changed_keys(_table(full, other), _table(full), "east") == set()
    assert changed_keys(_table(full, other), _table(other), "east") == {EAST}
