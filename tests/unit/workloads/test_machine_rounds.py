"""The tools of the demo and the soak on machines: plans repeat, and a record that was applied twice shows."""

from __future__ import annotations

import pyarrow as pa

from tests.cluster_demo.airports import BATCH_ROWS, Airports
from tests.soak.machines.machine_plan import LASTS_MS, STEPS_MAX, MachineFault, plan_machine_round
from tests.support.clusters_on_machines import HOSTS, applied_twice, newest_in
from tests.support.workloads import cells_after
from tests.support.zookeeper import Member, ZooKeeperServer

CELL = {"row": b"a", "family": b"f", "qualifier": b"q"}


def shown(*versions: tuple[int, bytes]) -> pa.Table:
    return pa.Table.from_pylist([{**CELL, "timestamp": timestamp, "value": value} for timestamp, value in versions])


def test_a_plan_repeats_and_reaches_every_fault_and_machine() -> None:
    plans = [plan_machine_round(5, number) for number in range(300)]
    assert plans == [plan_machine_round(5, number) for number in range(300)]
    assert {len(plan) for plan in plans} == set(range(2, STEPS_MAX + 1))
    steps = [step for plan in plans for step in plan]
    assert {step.fault for step in steps} == set(MachineFault)
    assert {step.machine for step in steps} == set(range(HOSTS))
    assert all(step.other != step.machine for step in steps)
    assert all((step.lasts_ms > 0) == (step.fault in LASTS_MS) for step in steps)


def test_a_step_says_what_it_does_and_to_whom() -> None:
    steps = [step for number in range(300) for step in plan_machine_round(6, number)]
    said = {step.fault: str(step) for step in steps}
    assert said[MachineFault.KILL].startswith("kill -9 of a process: m")
    assert " ms): m" in said[MachineFault.POWER]
    assert " to m" in said[MachineFault.CUT_ONE_WAY]


def test_a_record_that_one_cluster_applied_twice_shows_and_one_that_was_written_twice_does_not() -> None:
    once, twice = shown((3, b"c"), (2, b"b")), shown((3, b"c"), (2, b"b"), (2, b"b"))
    assert not applied_twice(twice, twice), "a writer that got no answer sends again"
    for west, east in ((twice, once), (once, twice)):
        (line,) = applied_twice(west, east)
        assert "b'b'" in line
    assert newest_in(once) == {(b"a", b"f", b"q"): (3, b"c")}


def test_the_load_of_the_demo_begins_anew_at_its_end() -> None:
    load, again = Airports(7), Airports(7)
    first = load.batch(0)
    assert len(first) == BATCH_ROWS
    assert again.batch(0) == first
    operations = len(load._operations)
    assert operations > 20_000
    at = operations // BATCH_ROWS
    assert load.batch(at)[operations % BATCH_ROWS :] == first[: BATCH_ROWS - operations % BATCH_ROWS]
    assert {row for row, _, _ in cells_after(load, 2)} <= {change.row for n in (0, 1) for change in load.batch(n)}


def test_a_server_of_zookeeper_names_all_ports_at_which_it_listens() -> None:
    lines = ["server.1=10.0.0.1:11:12", "server.2=10.0.0.2:21:22"]
    server = ZooKeeperServer.__new__(ZooKeeperServer)
    server.port, server._member = 1, Member(2, lines)
    assert server.ports == [1, 21, 22]
    server._member = None
    assert server.ports == [1]
