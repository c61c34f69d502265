"""Crashes between any two writes of every operation: the next master finishes it with the same end state.

The master dies at the first write of an operation (to the books or to the configuration), at the second, and so on:
immediately before the write, or immediately after it. So it also dies between any two steps, and between a step's
writes and the record of the next step.

Every write of each operation is cut before it, and each third behind it: a cut behind a write leaves the same books as
one before the next write. A command that ends with the repair has several operations and some 30 writes; each third of
them is cut, others before it than behind it. A long test cuts them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import UnavailableError
from bookkeeper.master.cycle import replicate_file
from bookkeeper.master.fate.engine import FAILED_RETENTION_NS, Args
from bookkeeper.master.operations.replica_hosts import COPIES_WAIT_MS
from bookkeeper.master.operations.split_merge import (
    MERGE_KIND,
    SPLIT_KIND,
    add_splits_args,
    claimed_rows,
    merging_rows,
)
from bookkeeper.master.operations.table_lifecycle import create_table_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell
from tests.support.cuts import Crash, cut_at
from tests.support.faults import fault
from tests.support.hosted_scenes import HOSTED, MERGE, SPLIT, views_of
from tests.support.masters import LocalMaster
from tests.support.operation_plays import OPERATIONS, PLAYS, Outcomes
from tests.support.operation_scenes import NAME, Scene, end_state, scene_at
from tests.support.repair_scenes import COMMANDS

SOON_MS = 1_000
"""Less than operations wait for hosts, and more than they wait until they look again."""

EVERY = 3
"""One of so many writes is cut where not all are."""


def test_every_kind_of_operation_is_cut(scene: Scene) -> None:
    played = {play.kind for play in OPERATIONS.values()}
    assert played == {*scene.master.fate.kinds, replicate_file.KIND}, "an operation without a scene"


def check_cuts(
    name: str, writes: Iterable[int], behind: bool, directory: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    """Each master that dies at one of these writes has a successor that finishes the play. Ends at the first write that
    the play does not have.
    """
    play = PLAYS[name]
    before, after = outcomes.of(name)
    assert (before != after) is (name != replicate_file.KIND)
    for write in writes:
        with scene_at(directory / str(write) / "west", peer) as scene:
            args = play.prepare(scene)
            with cut_at(scene.world, write, behind) as has_died:
                with suppress(Crash):
                    play.run(scene, args)
                cut = has_died()
            scene.master = scene.world.depose(scene.master)
            if play.is_repeated:
                play.run(scene, args)
            else:
                play.go_on(scene)
            assert [running.error for running in scene.master.fate.pending() if running.error is not None] == [], (
                "a step that was done is done again"
            )
            unknown = write == 0 and not behind and not play.is_repeated
            assert end_state(scene) == (before if unknown else after), f"cut at write {write}"
        if not cut:
            assert write > 2
            return


@pytest.mark.parametrize(
    ("behind", "every"),
    [(False, 1), (True, EVERY), pytest.param(True, 1, marks=pytest.mark.long)],
    ids=["before it", "behind it", "behind each"],
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_next_master_finishes_an_interrupted_operation(
    name: str, behind: bool, every: int, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    check_cuts(name, itertools.count(0, every), behind, tmp_path, peer, outcomes)


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_next_master_finishes_an_interrupted_command(
    name: str, behind: bool, every: int, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    check_cuts(name, itertools.count(behind % every, every), behind, tmp_path, peer, outcomes)


def test_a_split_waits_until_enough_voters_have_linked_the_files(tmp_path: Path, peer: LocalMaster) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        play = HOSTED[SPLIT]
        args = play.prepare(scene)
        scene.start_host("h3")
        joining = ReplicaCell("p-h3", "disk-h3", JOINING).encode()
        table_id = scene.world.config().table_named(NAME).table_id
        rows = [keys.tablet_row(table_id, end) for end in (b"m", None)]
        scene.world.table.put([RowPut(row, {keys.replica_column("h3"): joining}) for row in rows], 1)
        scene.hosts[1].trouble["divide_replica"] = UnavailableError("its disk is full")
        running = scene.master.fate.submit(SPLIT_KIND, args)
        steps_of(scene)
        assert running.step == "divide", "a joining host counts as a copy"
        assert "has 1 of 2, start its hosts (h2: its disk is full)" in running.note
        assert claimed_rows([running]) >= set(rows)
        scene.hosts[1].trouble.clear()
        play.go_on(scene)
        assert running.error is None


def test_a_merge_waits_until_its_tablets_are_on_the_same_hosts_and_enough_of_them_have_all_data(
    tmp_path: Path, peer: LocalMaster
) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        play = HOSTED[MERGE]
        args = play.prepare(scene)
        scene.late_ms = SOON_MS
        table_id = scene.world.config().table_named(NAME).table_id
        row, column = keys.tablet_row(table_id, b"t"), keys.replica_column("h2")
        scene.world.table.put([RowPut(row, {column: ReplicaCell("p-h2", "disk-h2", JOINING).encode()})], 2)
        held = scene.hosts[1].holds[2]
        assert held.extent.end_row == b"t"
        scene.hosts[1].holds[2] = replace(held, complete=())
        running = scene.master.fate.submit(MERGE_KIND, args)
        steps_of(scene)
        assert (running.step, claimed_rows([running])) == ("gather", set())
        assert "prev_row=b'm') on h1: replicas are copied" in running.note
        assert merging_rows([running]) == [[keys.tablet_row(table_id, end) for end in (b"m", b"t", None)]]
        scene.world.table.put([RowPut(row, {column: ReplicaCell("p-h2", "disk-h2", VOTER).encode()})], 3)
        steps_of(scene)
        assert (running.step, running.note) == ("gather", "1 of 2 hosts hold the data of all 3 tablets (h1)")
        scene.hosts[1].trouble["replicas"] = UnavailableError("it does not answer")
        steps_of(scene)
        assert running.note == "1 of 2 hosts hold the data of all 3 tablets (h1; h2: it does not answer)"
        scene.hosts[1].trouble.clear()
        scene.hosts[1].holds[2] = held
        play.go_on(scene)
        assert running.error is None
        assert merging_rows([running]) == []


def test_a_merge_begins_again_when_a_host_has_lost_data_while_the_tablets_were_let_go(
    tmp_path: Path, peer: LocalMaster
) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        play = HOSTED[MERGE]
        args = play.prepare(scene)
        scene.late_ms = SOON_MS
        table_id = scene.world.config().table_named(NAME).table_id
        held = scene.hosts[1].holds[2]

        def lose(method: str) -> None:
            if method == "unload_tablet":
                scene.hosts[1].holds[2] = replace(held, complete=())

        scene.hosts[0].look = lose
        running = scene.master.fate.submit(MERGE_KIND, args)
        steps_of(scene)
        assert (running.step, claimed_rows([running])) == ("gather", set()), "tablets merge with too few copies"
        assert len([row for row in scene.world.table.scan(*keys.table_section(table_id)) if keys.is_tablet(row)]) == 4
        scene.hosts[0].look = lambda _method: None
        scene.hosts[1].holds[2] = held
        play.go_on(scene)
        assert running.error is None


def test_a_merge_ends_when_its_tablets_do_not_come_together(tmp_path: Path, peer: LocalMaster) -> None:
    """It would keep all other operations from the table. It waits anew whenever something changes."""
    with scene_at(tmp_path / "west", peer) as scene:
        play = HOSTED[MERGE]
        args = play.prepare(scene)
        scene.late_ms = SOON_MS
        held = scene.hosts[1].holds[2:4]
        scene.hosts[1].holds[2:4] = [replace(one, complete=()) for one in held]
        running = scene.master.fate.submit(MERGE_KIND, args)
        for changes in range(3):
            scene.hosts[1].trouble["replicas"] = UnavailableError(f"it does not answer {changes}")
            steps_of(scene)
            scene.world.clock.jump(scene.world.settings.replicas.repair_after_ms)
            scene.master.fate.step_once()
            assert (running.step, running.ended) == ("gather", False)
        scene.world.clock.jump(COPIES_WAIT_MS)
        steps_of(scene)
        assert isinstance(running.error, UnavailableError)
        assert "1 of 2 hosts hold the data of all 3 tablets (h1; h2: it does not answer 2)" in running.error.message
        assert "start these hosts, or repeat the merge when others have copies" in running.error.message
        scene.hosts[1].trouble.clear()
        scene.hosts[1].holds[2:4] = held
        play.run(scene, args)
        assert len(views_of(scene)) == 2


def steps_of(scene: Scene) -> None:
    """Go on, and wait where an operation waits."""
    for _ in range(8):
        scene.world.clock.jump(scene.late_ms)
        scene.master.fate.step_once()


def test_without_its_record_the_next_master_repeats_a_step(
    tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    with fault("operations-begin-anew"), pytest.raises(AssertionError, match="a step that was done is done again"):
        test_the_next_master_finishes_an_interrupted_operation("create_table", True, 1, tmp_path, peer, outcomes)


# ---- failures


def _of_a_name_that_is_taken(scene: Scene) -> tuple[str, Args]:
    scene.create_table()
    return "create_table", create_table_args(NAME, [b"m"], [], {})


FAILING: dict[str, Callable[[Scene], tuple[str, Args]]] = {
    "create_table of a name that is taken": _of_a_name_that_is_taken,
    "add_splits of no table": lambda _: (SPLIT_KIND, add_splits_args("nothing", [b"m"])),
    "delete_table of no table": lambda _: ("delete_table", {"name": "nothing"}),
}


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("case", FAILING)
def test_a_failure_stays_over_changes_of_the_master_and_is_listed_once(
    case: str, behind: bool, tmp_path: Path, peer: LocalMaster
) -> None:
    for write in itertools.count():
        with scene_at(tmp_path / str(write) / "west", peer) as scene:
            kind, args = FAILING[case](scene)
            before = end_state(scene)
            with cut_at(scene.world, write, behind) as has_died:
                with suppress(Crash):
                    scene.master.fate.submit(kind, args)
                    scene.finish()
                cut = has_died()
            scene.master = scene.world.depose(scene.master)
            scene.finish()
            failed = [(running.op.type, running.error is not None) for running in scene.master.fate.pending()]
            assert failed == ([] if write == 0 and not behind else [(kind, True)])
            scene.world.clock.jump(FAILED_RETENTION_NS // 1_000_000 + 1)
            scene.master.run_fate()
            assert end_state(scene) == before
        if not cut:
            assert write > 1
            return
