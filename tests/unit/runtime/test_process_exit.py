"""Real processes with a log, which are stopped or killed, and the end of a process that must not continue."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.runtime.process_exit import EXIT_CODE
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.submission import Durability
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_commits import PATIENCE_S, Bench

ROOT = Path(__file__).parents[3]


@contextmanager
def child(directory: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.wal_child", str(directory), mode]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_until_stopped(process: subprocess.Popen[bytes]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"the child ended: {status}"


def rows_of(name: str, last: int) -> list[bytes]:
    return [row for block in read_blocks(MACHINE, name, 1, last) for row in block.batch().column("row").to_pylist()]


@pytest.mark.parametrize(("mode", "sealed_at"), [("stop-at-fence", 2), ("stop-at-books", 1)])
def test_a_process_that_resumes_after_the_seal_acknowledges_nothing(tmp_path: Path, mode: str, sealed_at: int) -> None:
    name = name_at(tmp_path / "1.wal")
    with child(tmp_path, mode) as process:
        wait_until_stopped(process)
        seal = recover(MACHINE, name)
        assert seal.offset == sealed_at
        process.send_signal(signal.SIGCONT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == EXIT_CODE, errors
    assert output.decode().splitlines() == [f"{name} 1 first"]
    assert b"this process ends" in errors
    assert recover(MACHINE, name) == seal
    assert rows_of(name, sealed_at) == [b"first", b"second"][:sealed_at]
    if mode == "stop-at-books":
        assert path_of(name).stat().st_size > seal.position, "it did write, and no reader will ever see it"


def test_a_stopped_process_without_a_seal_continues(tmp_path: Path) -> None:
    with child(tmp_path, "stop-at-fence") as process:
        wait_until_stopped(process)
        process.send_signal(signal.SIGCONT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert [line.split()[1:] for line in output.decode().splitlines()] == [["1", "first"], ["2", "second"]]


def test_acknowledged_records_of_a_killed_process_are_in_the_recovered_logs(tmp_path: Path) -> None:
    with child(tmp_path, "load") as process:
        assert process.stdout is not None
        lines = list(itertools.islice(process.stdout, 1500))
        process.kill()
        lines += process.stdout.readlines()
    logs = sorted(tmp_path.glob("*.wal"))
    assert len(logs) > 1, "rolled under way"
    acknowledged: dict[str, dict[int, bytes]] = {name_at(path): {} for path in logs}
    for line in lines:
        log, offset, row = line.split()
        acknowledged[log.decode()][int(offset)] = row
    for name, rows in acknowledged.items():
        seal = recover(MACHINE, name)
        found = dict(enumerate(rows_of(name, seal.offset), 1)) if seal.offset else {}
        assert rows.items() <= found.items()
        assert [at.last_offset for at in read_headers(MACHINE, name)][-1:] == ([seal.offset] if seal.offset else [])


def test_a_process_ends_although_no_reader_takes_its_log_line() -> None:
    program = "from bookkeeper.runtime.process_exit import end_process; end_process('more than a pipe holds' * 100_000)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_S) == EXIT_CODE


def test_many_threads_all_get_their_answers_and_their_offsets(tmp_path: Path) -> None:
    """Every thread waits for each answer before its next write, so it would hang after a lost wake-up."""
    b = Bench(tmp_path, CommitLimits(wal_sync_interval_ms=1, group_count_max=3))

    def writer(number: int) -> dict[int, bytes]:
        mine = {}
        for index in range(60):
            row = b"%d-%d" % (number, index)
            future: Future[object] = b.committer.submit(b.write(row, durability=Durability((number + index) % 3 + 1)))
            answer = future.result(PATIENCE_S)
            assert isinstance(answer, tuple)
            mine[answer[0]] = row
        return mine

    with ThreadPoolExecutor(6) as pool:
        parts = list(pool.map(writer, range(6)))
    name = b.committer.wal_name
    b.committer.close()
    together = {offset: row for part in parts for offset, row in part.items()}
    assert dict(enumerate(rows_of(name, 360), 1)) == together


EXHAUSTED = """
import threading
from bookkeeper.runtime.process_exit import end_process

def exhausted(timer):
    raise RuntimeError("can't start new thread")

threading.Timer.start = exhausted
try:
    end_process("the test says so")
finally:
    print("still here", flush=True)
"""


def test_a_process_without_a_free_thread_for_its_log_line_ends() -> None:
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (EXIT_CODE, "")
