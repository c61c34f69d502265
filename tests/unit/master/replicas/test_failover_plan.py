"""A log is given up after its host was away for the time that the table allows, and for no other reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bookkeeper.master.replicas.failover_plan import NO_HOME, AwayHomes, homes_away, plan_failover
from bookkeeper.metadata import keys, lost_logs, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, Row
from bookkeeper.metadata.values import FlushState, LogHome
from tests.support.faults import fault

OLD, NEW = "wal/s1/000001.wal", "wal/s1/000002.wal"
OTHER = "wal/s2/000001.wal"
HOME, OTHER_HOME = LogHome("host1", "9f3a"), LogHome("host2", "77aa")
HOMES = {"s1": HOME, "s2": OTHER_HOME}
KEY = keys.tablet_row("1", None)


def row(*columns: Column, serial: int = 3, lost: Mapping[str, int] | None = None) -> Row:
    """A tablet's row; ``lost``: logs with the ranks of their cells."""
    cells = {keys.PREV_ROW: Cell(1, values.encode_prev_row(None)), keys.SERIAL: Cell(serial, keys.SERIAL_VALUE)}
    cells |= {column: Cell(1, b"{}") for column in columns}
    cells |= {keys.lost_column(log): Cell(rank, HOME.encode()) for log, rank in (lost or {}).items()}
    return Row(KEY, cells)


def away(**ms: float) -> AwayHomes:
    """The homes that are away, by session."""
    return AwayHomes(HOMES, {HOMES[session]: since for session, since in ms.items()})


def given_up_by(plan_row: Row, failover_ms: int | None, homes: AwayHomes, holder: str | None) -> set[str]:
    put = plan_failover(plan_row, failover_ms, homes, holder).put
    return set() if put is None else {keys.parse_lost(column) for column in put.values}


@pytest.mark.parametrize(
    ("failover_ms", "away_ms", "expected"),
    [(None, 10**9, set()), (60_000, 59_999, set()), (60_000, 60_000, {NEW}), (60_000, 10**9, {NEW})],
)
def test_a_log_is_given_up_after_the_time_of_its_table(
    failover_ms: int | None, away_ms: float, expected: set[str]
) -> None:
    found = given_up_by(row(keys.log_column(NEW)), failover_ms, away(s1=away_ms), "s1")
    assert found == expected, "a host is given up although it may be back in time"


def test_a_served_tablet_and_a_host_that_is_here_give_nothing_up() -> None:
    needs = row(keys.log_column(NEW))
    assert given_up_by(needs, 1, away(s1=9), None) == set(), "a live session serves the tablet"
    assert given_up_by(needs, 1, away(), "s1") == set(), "the host is here, so its log can be read"
    assert not plan_failover(needs, 1, away(), "s1").is_released, "R15: a log that will be sealed is not waited for"


def test_the_cell_is_put_at_the_serial_of_the_tablet_and_says_where_the_log_is() -> None:
    plan = plan_failover(row(keys.log_column(NEW), serial=7), 1, away(s1=9), "s1")
    assert plan.put is not None
    assert plan.rank == 7
    assert plan.put.values == {keys.lost_column(NEW): HOME.encode()}
    assert plan.is_released


def test_peers_lack_an_older_log_too_so_its_order_is_given_up_with_it() -> None:
    both = row(keys.repl_column(OLD), keys.log_column(NEW))
    assert given_up_by(both, 1, away(s1=9), "s1") == {OLD, NEW}


def test_all_needed_logs_are_given_up_or_none() -> None:
    two = row(keys.log_column(NEW), keys.log_column(OTHER))
    assert given_up_by(two, 5, away(s1=9, s2=1), "s1") == set(), "the tablet waits for the second host anyway"
    assert not plan_failover(two, 5, away(s1=9, s2=1), "s1").is_released
    assert given_up_by(two, 5, away(s1=9, s2=9), "s1") == {NEW, OTHER}
    assert given_up_by(two, 5, away(s1=9), "s1") == {NEW}, "the log of a host that is here is replayed"


def test_a_tablet_that_needs_no_log_of_the_host_is_released_after_the_time() -> None:
    assert plan_failover(row(), 5, away(s1=9), "s1").is_released
    assert not plan_failover(row(), 5, away(s1=4), "s1").is_released
    assert not plan_failover(row(), None, away(s1=9), "s1").is_released, "table.failover = wait"


def test_a_log_on_the_clusters_volume_is_never_given_up() -> None:
    shared = row(keys.log_column("wal/s9/000001.wal"))
    assert given_up_by(shared, 1, away(s1=9), "s9") == set()
    assert not plan_failover(shared, 1, away(s1=9), "s9").is_released
    assert NO_HOME not in away(s1=9).away_ms


def test_cells_that_do_not_count_go_and_those_with_a_tail_stay() -> None:
    column = keys.lost_column(NEW)
    void = row(keys.log_column(NEW), lost={NEW: 2})
    assert plan_failover(void, None, away(), None).deletes == ((CellKey(KEY, column), 2),)
    tail = row(keys.log_column(NEW), lost={NEW: 3})
    assert plan_failover(tail, None, away(), None).deletes == (), "N6: its leader has not named the tail"
    only_peers = row(keys.repl_column(NEW), lost={NEW: 3})
    assert plan_failover(only_peers, None, away(s1=9), None).deletes == (), "R24: peers still lack the log"
    assert plan_failover(only_peers, None, away(), None).deletes == ((CellKey(KEY, column), 3),)


def test_a_host_with_another_disk_is_here_and_the_log_is_not() -> None:
    found, replaced = homes_away(HOMES, {"host1": "another", "host2": OTHER_HOME.incarnation})
    assert found == replaced == {HOME}
    assert homes_away(HOMES, {"host2": OTHER_HOME.incarnation}) == (frozenset({HOME}), frozenset())


# ---- the facts in a row


def test_n6_a_cell_that_the_next_holder_did_not_see_is_void() -> None:
    late = row(keys.log_column(NEW), serial=4, lost={NEW: 3})
    assert not lost_logs.given_up(late), "N6: a holder that has replayed a log merges it, too"


def test_red_n6_any_cell_counts() -> None:
    with fault("late-losses-count"), pytest.raises(AssertionError, match="a holder that has replayed a log"):
        test_n6_a_cell_that_the_next_holder_did_not_see_is_void()


def test_red_hosts_are_not_waited_for() -> None:
    with fault("hosts-are-given-up-at-once"), pytest.raises(AssertionError, match="a host is given up although"):
        test_a_log_is_given_up_after_the_time_of_its_table(60_000, 59_999, set())


def test_the_next_holder_renews_what_it_knows() -> None:
    known = row(serial=3, lost={OLD: 2, NEW: 3})
    assert lost_logs.renewed(known) == {keys.lost_column(NEW): HOME.encode()}
    assert lost_logs.renewed(Row(KEY, {})) == {}


def test_the_row_says_which_records_are_missing() -> None:
    state = FlushState(5, {NEW: 40}, 40, 900, {}, ())
    found = row(keys.log_column(NEW), lost={OLD: 3, NEW: 3})
    cells = {**found.cells, keys.FLUSH: Cell(5, state.encode())}
    old, new = lost_logs.lost_logs(Row(KEY, cells))
    assert (new.log, new.home, new.is_needed, new.after, new.known) == (NEW, HOME, True, 40, 0)
    assert not old.is_needed, "a named state has every record of a log without a log: cell"
