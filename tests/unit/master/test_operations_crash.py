"""A crash between any two writes of every operation: the next master finishes it, and it ends as if nothing had been.

Each operation is cut at its first write (to the books, to the configuration), at its second, and so on: before the
write, when everything before it was done, calls of other processes included; and behind it, when nobody else knows.
So it is cut between any two steps, too, and between a step's writes and the record that the step was reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bookkeeper.master.operations import replicate
from bookkeeper.standalone.directory import init_cluster
from tests.support.cuts import Crash, cut_at
from tests.support.faults import fault
from tests.support.master_world import UNHURRIED
from tests.support.masters import LocalMaster
from tests.support.operation_scenes import SCENES, EndState, end_state, scene_at


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMaster]:
    """Shared by all: each cluster has its own identity."""
    home: Path = tmp_path_factory.mktemp("peer")
    with LocalMaster(init_cluster(home / "peer", "peer", overrides=UNHURRIED)) as made:
        made.calls.create_table("remote", [], [], {})
        yield made
        made.leadership.stop()


def test_every_kind_of_operation_is_cut(tmp_path: Path, peer: LocalMaster) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        assert set(SCENES) == {*scene.master.fate.kinds, replicate.KIND}, "an operation without a scene"


def uncut(kind: str, directory: Path, peer: LocalMaster) -> tuple[EndState, EndState]:
    """What is there before an operation, and after it."""
    with scene_at(directory / "west", peer) as scene:
        args = SCENES[kind].prepare(scene)
        before = end_state(scene)
        SCENES[kind].run(scene, args)
        return before, end_state(scene)


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("kind", SCENES)
def test_the_next_master_finishes_what_a_crash_cut(kind: str, behind: bool, tmp_path: Path, peer: LocalMaster) -> None:
    play = SCENES[kind]
    before, after = uncut(kind, tmp_path / "uncut", peer)
    assert (before != after) is (kind != replicate.KIND)
    for write in itertools.count():
        with scene_at(tmp_path / str(write) / "west", peer) as scene:
            args = play.prepare(scene)
            with cut_at(scene.world, write, behind) as has_died:
                with suppress(Crash):
                    play.run(scene, args)
                cut = has_died()
            scene.master = scene.world.depose(scene.master)
            play.go_on(scene)
            assert [running.error for running in scene.master.fate.pending() if running.error is not None] == []
            unknown = write == 0 and not behind
            assert end_state(scene) == (before if unknown else after), f"cut at write {write}"
        if not cut:
            assert write > 2
            return


def test_without_its_record_a_step_is_done_again_by_who_takes_over(tmp_path: Path, peer: LocalMaster) -> None:
    with fault("operations-begin-anew"), pytest.raises(AssertionError):
        test_the_next_master_finishes_what_a_crash_cut("create_table", True, tmp_path, peer)
