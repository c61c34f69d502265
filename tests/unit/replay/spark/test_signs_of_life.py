"""The watch over the JVM and the Python processes: what hangs, what has ended, and clocks that jump."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.replay.spark.signs_of_life import (
    ENDED_MS,
    GAP_MS,
    HUNG_MS,
    JVM_ENDED_MS,
    NO_WORK,
    PREFIX,
    WORDS_MS,
    LifeFile,
    SignsOfLife,
    TaskLife,
    Work,
    started_at,
    work_at,
)
from tests.support.jumping_clock import TestClock
from tests.support.ranges import a_range
from tests.support.tservers import wait_until

HERE = a_range("wal/s/w", 1, 10)
OTHER = a_range("wal/s/v", 1, 10)
WORK = Work(HERE.file, HERE.target.cluster, HERE.peer_instance_id)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def file_of(directory: Path, pid: int, work: Work) -> Path:
    path = directory / f"{PREFIX}{pid}-{started_at(pid)}"
    path.write_bytes(msgspec.json.encode(work))
    return path


def watch(directory: Path, clock: TestClock, ended: list[int] | None = None) -> SignsOfLife:
    """A JVM that answered now. With ``ended`` no process is ended, as when each waits for a disk."""
    end = None if ended is None else lambda pid, _started: ended.append(pid)
    return SignsOfLife(directory, 7, lambda: None, clock, end)


def look_for(signs: SignsOfLife, clock: TestClock, ms: int) -> str:
    """Look each second for so long, while the JVM answers."""
    problem = signs.look()
    for _ in range(ms // GAP_MS + 1):
        clock.jump(GAP_MS)
        signs.note_answer()
        problem = signs.look()
    return problem


def test_a_jvm_without_an_answer_hangs_until_it_answers(tmp_path: Path) -> None:
    clock = TestClock()
    signs = watch(tmp_path, clock)
    for _ in range(HUNG_MS // GAP_MS):
        assert signs.look() == ""
        clock.jump(GAP_MS)
    clock.jump(GAP_MS)
    signs.look()
    assert signs.look() == "its JVM (process 7) hangs: it does not answer"
    signs.note_answer()
    assert signs.look() == ""


def test_a_jvm_that_does_not_answer_for_long_is_ended(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    clock = TestClock()
    signs = SignsOfLife(tmp_path, process.pid, lambda: None, clock)
    for _ in range(JVM_ENDED_MS // GAP_MS):
        clock.jump(GAP_MS)
        signs.look()
    assert process.poll() is None, "a JVM that may answer again is ended"
    clock.jump(GAP_MS)
    signs.look()
    assert process.wait(60) < 0


def test_a_worker_that_hangs_is_ended_and_only_what_it_ships_fails(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    clock = TestClock()
    hung, works = file_of(tmp_path, process.pid, WORK), file_of(tmp_path, os.getpid(), Work("another", "east", "e"))
    signs = watch(tmp_path, clock)
    for n in range(HUNG_MS // GAP_MS + 2):
        os.utime(works, ns=(n, n))
        assert look_for(signs, clock, 0) == "", "one worker that hangs is said to keep all from work"
    assert process.wait(60) < 0, "a worker that hangs is not ended"
    of_tasks = [signs.ended_task(HERE.target.cluster), signs.ended_task("nobody")]
    words = signs.take_ended([HERE, OTHER])
    assert set(words) == {work_at(HERE)}
    assert of_tasks == [words[work_at(HERE)], ""]
    named = f"process {process.pid}, which ships {HERE.file} to {HERE.target.cluster}, hung"
    assert words[work_at(HERE)].startswith(named)
    assert signs.take_ended([HERE]) == {}, "a later failure of this range has another reason"
    signs.look()
    assert (hung.exists(), works.exists()) == (False, True)


def test_an_end_long_ago_is_no_reason(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    clock = TestClock()
    file_of(tmp_path, process.pid, WORK)
    signs = watch(tmp_path, clock)
    look_for(signs, clock, HUNG_MS)
    clock.jump(WORDS_MS + 1)
    assert signs.ended_task(HERE.target.cluster) == ""
    assert signs.take_ended([HERE]) == {}


def test_the_end_of_a_process_without_a_task_is_told_once(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    clock = TestClock()
    file_of(tmp_path, process.pid, Work(parent=True))
    signs = watch(tmp_path, clock)
    look_for(signs, clock, HUNG_MS)
    process.wait(60)
    words = signs.take_ended([HERE, OTHER])
    assert set(words) == {NO_WORK}
    assert words[NO_WORK].startswith(f"process {process.pid}, the parent of the Python workers, hung")
    assert signs.take_ended([HERE, OTHER]) == {}


def test_a_process_that_can_not_be_ended_keeps_only_its_own_run(tmp_path: Path) -> None:
    clock, ended = TestClock(), list[int]()
    file = file_of(tmp_path, os.getpid(), WORK)
    signs = watch(tmp_path, clock, ended)
    assert look_for(signs, clock, HUNG_MS + ENDED_MS) == ""
    assert ended == [os.getpid()], "it is ended once"
    assert signs.stuck([OTHER]) == ""
    assert "hangs and can't be ended" in signs.stuck([OTHER, HERE])
    file.unlink()
    signs.look()
    assert signs.stuck([HERE]) == ""


def test_time_in_which_nobody_looked_makes_no_process_dead(tmp_path: Path) -> None:
    clock, ended = TestClock(), list[int]()
    file = file_of(tmp_path, os.getpid(), WORK)
    os.utime(file, (0, 0))
    signs = watch(tmp_path, clock, ended)
    for _ in range(3):
        clock.jump(100 * HUNG_MS)
        signs.look()
    assert ended == [], "a machine that was asleep, or a wall clock that jumped, makes a process dead"


def test_the_file_of_a_process_that_has_ended_goes_and_its_number_may_come_again(tmp_path: Path) -> None:
    clock, ended = TestClock(), list[int]()
    files = [tmp_path / f"{PREFIX}{2**22 + 1}-1", tmp_path / f"{PREFIX}{os.getpid()}-1"]
    for file in files:
        file.touch()
    signs = watch(tmp_path, clock, ended)
    look_for(signs, clock, HUNG_MS)
    assert ended == [], "another process with the number of one that has ended"
    assert not any(file.exists() for file in files)


def life_of(directory: Path, clock: TestClock) -> TaskLife:
    life = TaskLife(directory, clock)
    life.gets_on()
    return life


def test_a_task_without_a_step_gives_no_sign_though_its_thread_beside_runs(tmp_path: Path) -> None:
    life = life_of(tmp_path, TestClock())
    assert life.gets_on(), "a worker without a task gets on"
    with life.task():
        assert life.gets_on()
        assert not life.gets_on(), "a task that is blocked gives a sign of life"
        life.begin(HERE)
        assert life.gets_on()
        assert not life.gets_on()
    assert life.gets_on()


def test_a_wait_with_a_limit_is_no_hang_until_the_limit(tmp_path: Path) -> None:
    clock = TestClock()
    life = life_of(tmp_path, clock)
    with life.task():
        life.step(30_000)
        for _ in range(3):
            clock.jump(9_900)
            assert life.gets_on()
        clock.jump(1_000)
        assert not life.gets_on()
        life.step(30_000)
        life.wait(1_000)
        clock.jump(2_000)
        assert all(life.gets_on() for _ in range(2)), "a shorter wait within a longer one ends it"
        life.step()
        assert life.gets_on()
        assert not life.gets_on(), "the wait is over"


def test_the_file_has_the_work_and_the_start_of_its_process(tmp_path: Path) -> None:
    life = TaskLife(tmp_path, SystemClock())
    (file,) = tmp_path.iterdir()
    assert file.name == f"{PREFIX}{os.getpid()}-{started_at(os.getpid())}"
    with life.task():
        life.begin(HERE)
        assert msgspec.json.decode(file.read_bytes(), type=Work) == WORK
    assert msgspec.json.decode(file.read_bytes(), type=Work) == Work()
    touched_ns = file.stat().st_mtime_ns
    wait_until(lambda: file.stat().st_mtime_ns > touched_ns, "a sign of life between tasks")


def test_a_process_without_its_directory_goes_on(tmp_path: Path) -> None:
    file = LifeFile(tmp_path / "missing")
    file.write(WORK)
    file.touch()
