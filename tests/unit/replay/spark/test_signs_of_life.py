"""The watch over the JVM and the workers: what hangs, what has ended, and clocks that jump."""

from __future__ import annotations

import os
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.replay.spark.signs_of_life import HUNG_MS, PREFIX, SignsOfLife, beating
from tests.support.jumping_clock import TestClock
from tests.support.tservers import wait_until

NEARLY_MS = HUNG_MS - 5_000


def watch(directory: Path, clock: TestClock) -> SignsOfLife:
    """A JVM that answered now."""
    return SignsOfLife(directory, 7, lambda: None, clock)


def test_a_jvm_without_an_answer_hangs_until_it_answers(tmp_path: Path) -> None:
    clock = TestClock()
    signs = watch(tmp_path, clock)
    clock.jump(NEARLY_MS)
    assert signs.problem() == ""
    clock.jump(HUNG_MS)
    assert signs.problem() == "its JVM (process 7) hangs: it does not answer"
    signs.note_answer()
    assert signs.problem() == ""


def test_a_worker_hangs_when_its_file_stays_as_it_is_whatever_its_time_says(tmp_path: Path) -> None:
    clock = TestClock()
    file = tmp_path / f"{PREFIX}{os.getpid()}"
    file.touch()
    os.utime(file, (0, 0))
    signs = watch(tmp_path, clock)
    assert signs.problem() == "", "a wall clock that jumped makes a worker dead"
    for changed_ns in (1, 2):
        clock.jump(NEARLY_MS)
        os.utime(file, ns=(changed_ns, changed_ns))
        signs.note_answer()
        assert signs.problem() == ""
    clock.jump(HUNG_MS + 1)
    signs.note_answer()
    assert signs.problem() == f"its Python workers hang: processes {os.getpid()}"
    os.utime(file, (0, 0))
    assert signs.problem() == "", "a worker that moves again is still named"


def test_the_file_of_a_worker_that_was_killed_goes(tmp_path: Path) -> None:
    gone = tmp_path / f"{PREFIX}{2**22 + 1}"
    gone.touch()
    clock = TestClock()
    signs = watch(tmp_path, clock)
    assert signs.problem() == ""
    assert not gone.exists()


def test_a_task_leaves_nothing_behind_also_without_its_directory(tmp_path: Path) -> None:
    file = tmp_path / f"{PREFIX}{os.getpid()}"
    with beating(tmp_path, SystemClock()):
        wait_until(file.exists, "a sign of life")
    assert not file.exists()
    with beating(tmp_path / "missing", SystemClock()):
        pass
