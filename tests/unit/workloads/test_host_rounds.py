"""The soak's tools for hosts: plans repeat, disks are compared byte by byte, and nothing may stay for too long."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Row
from bookkeeper.metadata.values import FlushState, ReplicaCell, ReplicaRole
from tests.soak.hosts.host_files import compare, flip, lost_files, named_tablets, still_damaged
from tests.soak.hosts.host_plan import INNER_OF, LASTING, LOADED, STEPS_MAX, HostFault, plan_host_round
from tests.soak.hosts.host_rounds import OVERDUE_S, Patience
from tests.support.host_turns import HOST_TURN, TURNS, turn_of
from tests.support.hosted_cluster import HOSTS, REPLICAS

FILE, OTHER = "tables/1/t-00001/a.parquet", "tables/1/t-00001/b.parquet"


def test_a_plan_repeats_and_reaches_every_fault() -> None:
    plans = [plan_host_round(5, number) for number in range(300)]
    assert plans == [plan_host_round(5, number) for number in range(300)]
    assert {len(plan) for plan in plans} == set(range(1, STEPS_MAX + 1))
    steps = [step for plan in plans for step in plan]
    assert {step.fault for step in steps} == set(HostFault)
    assert {step.side for step in steps} == {"west", "east"}


def test_a_fault_inside_a_lasting_one_leaves_its_host_alone() -> None:
    steps = [step for number in range(300) for step in plan_host_round(6, number)]
    inside = [(step, inner) for step in steps for inner in step.inner]
    assert inside
    for step, inner in inside:
        assert step.fault in LASTING
        assert inner.fault not in LASTING
        assert inner.side == step.side
        assert inner.host != step.host or not step.host
        assert inner.fault in INNER_OF.get(step.fault, HostFault)


def test_the_number_of_a_round_decides_its_turn() -> None:
    numbers = (1, HOST_TURN, HOST_TURN + 1, 4 * HOST_TURN, 4 * HOST_TURN + 1)
    assert [turn_of(number) for number in numbers] == [TURNS[0], TURNS[0], TURNS[1], TURNS[3], TURNS[0]]
    assert {turn.logs for turn in TURNS} == {"shared", "host"}
    assert {turn.election for turn in TURNS} == {"master", "coordination"}
    assert all(bool(turn.failover) == turn.are_logs_on_hosts for turn in TURNS)


def test_operations_that_load_a_table_reach_the_cluster_with_load_alone() -> None:
    steps = [step for number in range(300) for step in plan_host_round(7, number)]
    every = [*steps, *(inner for step in steps for inner in step.inner)]
    assert {one.side for one in every if one.fault is HostFault.IMPORT} == {LOADED}


# ---- disks


def row(*files: str, **roles: ReplicaRole) -> Row:
    state = FlushState(1, {}, 1, 1, {}, (), files)
    cells = {keys.replica_column(host): Cell(1, ReplicaCell("p1", "d", role).encode()) for host, role in roles.items()}
    cells |= {keys.FLUSH: Cell(1, state.encode()), keys.PREV_ROW: Cell(1, values.encode_prev_row(None))}
    return Row(keys.tablet_row("1", None), cells)


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, Path]:
    for host in HOSTS:
        (tmp_path / host / REPLICAS / FILE).parent.mkdir(parents=True)
    return {host: tmp_path / host for host in HOSTS}


def roots(homes: dict[str, Path]) -> list[Path]:
    return [home / REPLICAS for home in homes.values()]


def put(homes: dict[str, Path], name: str, content: bytes, *hosts: str) -> None:
    for host in hosts:
        (homes[host] / REPLICAS / name).write_bytes(content)


def test_equal_replicas_are_as_they_should_be(homes: dict[str, Path]) -> None:
    tablets = named_tablets([row(FILE, host1="voter", host2="voter")])
    put(homes, FILE, b"x", "host1", "host2")
    looked = compare(tablets, homes)
    assert (looked.problems, looked.surplus, lost_files(tablets, roots(homes))) == ([], [], [])


def test_a_missing_a_different_and_a_needless_file_are_named(homes: dict[str, Path]) -> None:
    tablets = named_tablets([row(FILE, host1="voter", host2="voter", host3="voter")])
    put(homes, FILE, b"x", "host1")
    put(homes, FILE, b"y", "host2")
    put(homes, OTHER, b"z", "host2")
    looked = compare(tablets, homes)
    assert looked.problems == [f"host3 lacks {FILE}", f"{FILE} differs between host1, host2, host3"]
    assert looked.surplus == [f"host2 has {OTHER}, which no state names"]


def test_a_host_that_does_not_vote_is_a_surplus(homes: dict[str, Path]) -> None:
    tablets = named_tablets([row(FILE, host1="voter", host2="joining")])
    put(homes, FILE, b"x", "host1", "host2")
    looked = compare(tablets, homes)
    assert looked.problems == []
    assert looked.surplus == ["host2 is not to keep b'1<' as p1"], "and a later placement there is another line"


def test_a_part_of_a_file_is_a_surplus_when_its_sender_will_not_go_on(homes: dict[str, Path]) -> None:
    part = homes["host1"] / REPLICAS / "incoming" / "a.part"
    part.parent.mkdir()
    part.write_bytes(b"x")
    assert compare([], homes).surplus == []
    os.utime(part, (0, 0))
    assert compare([], homes).surplus == ["host1 has a part of a.part"]


def test_a_file_that_is_on_no_host_is_lost(homes: dict[str, Path]) -> None:
    tablets = named_tablets([row(FILE, OTHER, host1="voter", host2="voter")])
    put(homes, FILE, b"x", "host2")
    (line,) = lost_files(tablets, roots(homes))
    assert OTHER in line


def test_a_file_that_its_host_has_under_the_name_of_a_part_is_not_lost(homes: dict[str, Path]) -> None:
    tablets = named_tablets([row(FILE.replace("t-00001", "m-00002"), host1="voter", host2="voter")])
    assert len(lost_files(tablets, roots(homes))) == 1
    put(homes, FILE, b"x", "host1")
    assert lost_files(tablets, roots(homes)) == []


def test_a_tablet_with_one_replica_lies_on_no_host() -> None:
    assert named_tablets([row(FILE)]) == []


def test_a_flipped_byte_is_seen_until_it_is_mended_or_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"sound")
    assert flip(tmp_path / "none", random.Random(1)) is None
    assert flip(path, random.Random(1)) == b"sound"
    assert still_damaged({path: b"sound"}) == [path]
    path.write_bytes(b"sound")
    assert still_damaged({path: b"sound"}) == []
    path.unlink()
    assert still_damaged({path: b"sound"}) == []


# ---- patience


def test_a_line_is_overdue_when_each_look_has_it_for_too_long() -> None:
    patience, step_ns = Patience(), int(OVERDUE_S * 7e8)
    assert patience.overdue([("a", 1), ("b", 1)], 0) == []
    assert patience.overdue([("b", 1)], step_ns) == []
    assert patience.overdue([("a", 1), ("b", 1)], 2 * step_ns) == ["b"]
    assert patience.overdue([("a", 1), ("b", 2)], 3 * step_ns) == [], "the next leader waits anew"
    assert patience.overdue([("a", 1), ("b", 2)], 5 * step_ns) == ["a", "b"]
