"""The failure tests' own tools: expectations follow from the seed, and lost and left-over rows are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.metadata.values import FlushState, Location
from bookkeeper.model import StreamKey, TargetKey
from tests.soak.__main__ import TURN, store_of, turns
from tests.soak.faults import InvariantError
from tests.soak.plan import HBASE_FAULTS, STEPS_MAX, Fault, plan_round
from tests.soak.schedules import run_schedules
from tests.soak.trace import Trace
from tests.support.faults import fault
from tests.support.workloads import Expectation, LinkedList, Mix, Workload, cells_after, undefined_pointers
from tests.support.workloads_books import ClusterView, leftovers
from tests.support.workloads_run import DIFFERENCES_MAX, differences, replica_differences

LOG = "w/tserver-1-a/000001.wal"
STREAM = StreamKey("west", LOG, "1", "1", 1)


@pytest.mark.parametrize("workload", [LinkedList(3), Mix(3)])
def test_a_batch_depends_on_seed_and_number_alone(workload: Workload) -> None:
    again = type(workload)(3)  # type: ignore[call-arg]
    later_first = [workload.batch(number) for number in (5, 2)]
    assert later_first == [again.batch(5), again.batch(2)]
    assert workload.batch(2) != workload.batch(3)
    assert workload.batch(2) != type(workload)(4).batch(2)  # type: ignore[call-arg]


def test_a_list_has_no_undefined_pointer_until_a_row_is_lost() -> None:
    cells = cells_after(LinkedList(1, width=10), 5)
    assert len({row for row, _, _ in cells}) == 50
    assert undefined_pointers(cells) == []
    lost = LinkedList(1, width=10).row(2, 7)
    assert undefined_pointers({key: value for key, value in cells.items() if key[0] != lost}) == [lost]


@pytest.mark.parametrize("workload", [LinkedList(3), Mix(3)])
def test_what_is_expected_is_the_same_in_one_step_and_in_many(workload: Workload) -> None:
    expectation = Expectation(workload)
    steps = [dict(expectation.after(count)) for count in (0, 3, 3, 20)]
    assert steps == [cells_after(type(workload)(3), count) for count in (0, 3, 3, 20)]  # type: ignore[call-arg]


def test_a_row_of_the_last_batch_is_missed_by_the_expectation() -> None:
    expected = cells_after(LinkedList(1, width=3), 2)
    found = {key: (1, value) for key, value in expected.items() if key[0] != LinkedList(1, width=3).row(1, 0)}
    assert len(differences(expected, found, "east")) == 2


def test_the_mix_puts_overwrites_and_deletes() -> None:
    workload = Mix(7)
    flat = [change for number in range(50) for row in workload.batch(number) for change in row.changes]
    assert sum(value is None for _, _, value in flat) > len(flat) / 10
    cells = cells_after(workload, 50)
    assert 0 < len(cells) < len({(f, q) for f, q, _ in flat}) * workload.rows
    assert b"not this" not in cells.values()


def test_every_kind_of_difference_is_named() -> None:
    a, b, c = ((b"r", b"f", qualifier) for qualifier in (b"a", b"b", b"c"))
    lines = differences({a: b"1", b: b"1"}, {b: (5, b"2"), c: (5, b"3")}, "east")
    assert [word for line in lines for word in ("lost", "not b'1'", "should not be there") if word in line] == [
        "lost",
        "not b'1'",
        "should not be there",
    ]
    many = {(b"r", b"f", b"%d" % n): b"" for n in range(50)}
    assert len(differences(many, {}, "east")) == DIFFERENCES_MAX + 1


def test_a_replica_differs_also_in_its_timestamps() -> None:
    key = (b"r", b"f", b"q")
    assert replica_differences({key: (1, b"v")}, {key: (1, b"v")}, "t") == []
    assert len(replica_differences({key: (1, b"v")}, {key: (2, b"v")}, "t")) == 1


# ---- leftovers


def view(*rows: Row, wal_files: tuple[str, ...] = (), segments: tuple[str, ...] = ()) -> ClusterView:
    return ClusterView(
        "east", "east-1", rows, frozenset(), wal_files, segments, segments, frozenset({"s"}), frozenset()
    )


def tablet(**families: dict[bytes, bytes]) -> Row:
    location = Location("s", "h:1").encode()
    cells = {keys.LOCATION: Cell(1, location)}
    for family, found in families.items():
        cells |= {Column(family, qualifier): Cell(1, value) for qualifier, value in found.items()}
    return Row(b"1<", cells)


def test_a_quiet_cluster_has_nothing_left_behind() -> None:
    assert leftovers(view(tablet())) == []


def test_whatever_nobody_needs_is_named() -> None:
    log = LOG.encode()
    target = TargetKey("east", "1", "1", 1)
    state = FlushState(1, {}, 1, 1, {STREAM: 7}, ()).encode()
    recv = keys.recv_cell(STREAM)
    first = Cell(1, values.encode_prev_row(None))
    dead = Cell(1, Location("dead", "h:1").encode())
    rows = {
        "log:": tablet(log={log: b"{}"}),
        "repl:": tablet(repl={log: b""}),
        "high-water": tablet(tablet={b"flush": state}),
        "SEGMENT IS MISSING": tablet(segment={b"tables/1/t/x.parquet": b""}),
        "~repl row with done": Row(keys.repl_row(LOG), {keys.done_column(target): Cell(1, b"")}),
        "~repl row with repl": Row(keys.repl_row(LOG), {keys.needed_column(target): Cell(1, b"")}),
        "~recv": Row(recv.key, {recv.column: Cell(1, values.Received(7).encode())}),
        "deletion candidate": Row(keys.del_row(LOG), {keys.DEL: Cell(1, b"")}),
        "is served without": tablet(tablet={keys.lost_column(LOG).qualifier: b""}),
        "home of the logs of a dead session": Row(keys.home_row("tserver-1-a"), {keys.HOME: Cell(1, b"")}),
        "something holds": Row(keys.hold_row(LOG), {keys.hold_column("7"): Cell(1, b"")}),
        "operation": Row(keys.fate_row("7"), {keys.FATE_OP: Cell(1, values.FateOp("x", {}, 1).encode())}),
        "not given to a live tserver": Row(b"1<", {keys.PREV_ROW: first, keys.LOCATION: dead}),
    }
    for word, row in rows.items():
        lines = leftovers(view(row))
        assert len(lines) == 1, (word, lines)
        assert word in lines[0]


def test_the_remnant_of_a_merge_is_no_tablet_without_a_tserver() -> None:
    parked = {keys.SERIAL: Cell(1, b""), keys.LOCATION: Cell(1, Location("dead", "").encode())}
    assert leftovers(view(Row(b"1;m", parked))) == []
    nobody = Row(b"1<", {keys.SERIAL: Cell(1, b""), keys.PREV_ROW: Cell(1, values.encode_prev_row(None))})
    assert leftovers(view(nobody)) == ["east: tablet b'1<' is not given to a live tserver"]


def test_files_that_nothing_names_are_left_behind() -> None:
    log, segment = "wal/tserver-1-a/000001.wal", "tables/1/t-0001/x.parquet"
    lines = leftovers(view(wal_files=(log, log + ".seal"), segments=(segment,)))
    assert len(lines) == 3


def test_the_home_of_a_live_session_and_copies_on_the_volume_may_stay() -> None:
    segment = "tables/1/t-0001/x.parquet"
    moved = tablet(segment={segment.encode(): b""}, replica={b"host1": b""})
    home = Row(keys.home_row("s"), {keys.HOME: Cell(1, b"")})
    assert leftovers(view(moved, home, segments=(segment,))) == []


# ---- the soak's plan


@pytest.mark.parametrize("hbase", [False, True])
def test_a_plan_is_bounded_repeatable_and_reaches_every_fault(hbase: bool) -> None:
    plans = [plan_round(5, number, hbase=hbase) for number in range(200)]
    assert plans == [plan_round(5, number, hbase=hbase) for number in range(200)]
    assert {len(plan) for plan in plans} == set(range(1, STEPS_MAX + 1))
    there = set(Fault) if hbase else set(Fault) - set(HBASE_FAULTS)
    assert {step.fault for plan in plans for step in plan} == there


def test_each_store_has_its_turn_and_a_round_has_the_same_one_in_every_run() -> None:
    assert turns(1, 12, TURN) == [range(1, 6), range(6, 11), range(11, 13)]
    assert turns(4, 3, TURN) == [range(4, 6), range(6, 7)]
    assert turns(7, 1, TURN) == [range(7, 8)]
    for first, count in ((1, 12), (4, 3), (9, 30)):
        for rounds in turns(first, count, TURN):
            assert len({store_of(number) for number in rounds}) == 1
    assert [store_of(number) for number in (1, 5, 6, 10, 11)] == ["sqlite", "sqlite", "hbase", "hbase", "sqlite"]


def test_a_schedule_that_breaks_a_law_is_told_by_its_seed_and_how_it_came_about(tmp_path: Path) -> None:
    trace = Trace(SystemClock())
    run_schedules(tmp_path, [5], trace)
    assert "1 schedules of three clusters held" in trace.lines[-1]
    with fault("paths-are-not-compared"), pytest.raises(InvariantError, match="--first-schedule 5") as told:
        run_schedules(tmp_path, [5], trace)
    assert "twice" in str(told.value)
    assert "rpc-replicate" in (tmp_path / "schedule-5.txt").read_text()
