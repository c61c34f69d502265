"""The supervisor keeps real processes running, and only one supervisor runs a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.coordination.lease import TOKEN_VARIABLE, is_token
from bookkeeper.errors import RefusedError
from bookkeeper.standalone.children.forked_starts import (
    RESTART_DELAY_MAX_MS,
    RESTART_DELAY_MIN_MS,
    STABLE_AFTER_MS,
    restart_delay_ms,
)
from bookkeeper.standalone.supervisor import Role, Supervisor
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.tservers import wait_until

LIMIT_MS = 60_000

RUNNER = """
import sys
from pathlib import Path
from bookkeeper.standalone.supervisor import Role, Supervisor
home = Path(sys.argv[1])
Supervisor(home, [Role("idle", "idle", home)], print, 10_000).run()
"""

IDLE = "import signal\nsignal.pause()\n"
IDLE_TITLE = "idle"
"""In the command line of each process of the role."""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "idle.py").write_text(IDLE)
    return tmp_path


def _supervise(cluster: Path, **variables: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(cluster / "modules"), **variables}
    return subprocess.Popen([sys.executable, "-c", RUNNER, str(cluster)], env=environment)


def _pid_after(cluster: Path, starts: int) -> int:
    """Pid of the role once it was started ``starts`` times."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.boot_ns() + LIMIT_MS * 1_000_000
    path = cluster / "run" / "idle.json"
    while clock.boot_ns() < deadline:
        if path.exists() and (state := json.loads(path.read_text()))["starts"] >= starts:
            return int(state["pid"])
        clock.wait(never, 20)
    raise AssertionError(f"no start number {starts} within {LIMIT_MS} ms")


def _words_after(cluster: Path, starts: int) -> list[str]:
    """The words that the role has said once each of ``starts`` processes has said one."""
    log = cluster / "logs" / "idle.log"
    wait_until(lambda: len(log.read_text().split()) >= starts, f"{starts} words")
    return log.read_text().split()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_zombie(process: psutil.Process) -> bool:
    """One that is gone is none."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return False


def _is_idle(process: psutil.Process) -> bool:
    """Whether it is a process of the role, and runs."""
    with suppress(psutil.NoSuchProcess):
        return IDLE_TITLE in process.cmdline()
    return False


def test_a_killed_process_is_started_again_and_stops_with_its_supervisor(cluster: Path) -> None:
    (cluster / "modules" / "idle.py").write_text(
        f"import os\nprint(os.environ[{TOKEN_VARIABLE!r}], flush=True)\n{IDLE}"
    )
    supervisor = _supervise(cluster)
    try:
        first = _pid_after(cluster, 1)
        _words_after(cluster, 1)
        os.kill(first, signal.SIGKILL)
        second = _pid_after(cluster, 2)
        assert second != first
        tokens = _words_after(cluster, 2)
        assert len(set(filter(is_token, tokens))) == 2, "a start has no token of its own"
        supervisor.terminate()
        assert supervisor.wait(LIMIT_MS / 1000) == 0
        assert not psutil.pid_exists(second)
    finally:
        supervisor.kill()
        supervisor.wait()


def test_children_of_a_killed_process_do_not_outlive_it(cluster: Path) -> None:
    (cluster / "modules" / "idle.py").write_text("import subprocess\nsubprocess.run(['sleep', '600'])\n")
    supervisor = _supervise(cluster)
    try:
        first = _pid_after(cluster, 1)
        clock, never, left = SystemClock(), threading.Event(), psutil.Process(first)
        while not left.children():
            clock.wait(never, 20)
        child = left.children()[0]
        os.kill(first, signal.SIGKILL)
        _pid_after(cluster, 2)
        while _lives(child):
            clock.wait(never, 20)
        parent = psutil.Process(supervisor.pid)
        while any(_is_zombie(one) for one in parent.children()):
            clock.wait(never, 20)  # the supervisor adopted it, and takes its exit code
    finally:
        supervisor.terminate()
        supervisor.wait()


def test_children_die_with_a_killed_supervisor(cluster: Path) -> None:
    supervisor = _supervise(cluster)
    child = psutil.Process(_pid_after(cluster, 1))
    supervisor.kill()
    supervisor.wait()
    psutil.wait_procs([child], LIMIT_MS / 1000)
    assert not _lives(child)


def test_no_child_starts_for_a_supervisor_that_was_killed_before_the_child_asks_for_its_death(cluster: Path) -> None:
    """The child sets up its parent-death signal; a supervisor that ends before that causes no signal."""
    starter = cluster / "starter"
    os.mkfifo(starter)
    slow = cluster / "bin" / "setpriv"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nread go <{starter}\nexec {shutil.which("setpriv")} "$@"\n')
    slow.chmod(0o700)
    supervisor = _supervise(cluster, PATH=f"{slow.parent}:{os.environ['PATH']}")
    clock, never, parent = SystemClock(), threading.Event(), psutil.Process(supervisor.pid)
    while not parent.children():
        clock.wait(never, 20)
    child = parent.children()[0]
    supervisor.kill()
    supervisor.wait()
    starter.write_text("go\n")
    psutil.wait_procs([child], LIMIT_MS / 1000)
    try:
        assert not _lives(child)
    finally:
        if _lives(child):
            child.kill()


def test_a_second_supervisor_of_one_directory_is_refused(cluster: Path) -> None:
    supervisor = _supervise(cluster)
    try:
        _pid_after(cluster, 1)
        with pytest.raises(RefusedError, match="another standalone process"):
            Supervisor(cluster, [Role("idle", "idle", cluster)], print, 10_000).run()
    finally:
        supervisor.terminate()
        supervisor.wait()


HOSTS_RUNNER = """
import sys
from pathlib import Path
from bookkeeper.standalone.supervisor import Role, Supervisor
home, far = Path(sys.argv[1]), Path(sys.argv[2])
supervisor = Supervisor(home, [Role("idle", "idle", home)], lambda text: print(text, flush=True), 10_000)
supervisor.add_host(far, [Role("host2.idle", "idle", far)])
supervisor.run()
"""


def test_a_lost_directory_ends_the_processes_of_its_host_alone_and_is_reported_once(cluster: Path) -> None:
    far = cluster / "hosts" / "host2"
    far.mkdir(parents=True)
    (far / SETTINGS_FILE).touch()
    environment = {**os.environ, "PYTHONPATH": str(cluster / "modules")}
    command = [sys.executable, "-c", HOSTS_RUNNER, str(cluster), str(far)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        try:
            first, other = _pid_after(cluster, 1), psutil.Process(_pid_after(far, 1))
            with pytest.raises(RefusedError, match="host2: another standalone process"):
                Supervisor(far, [], print, 1_000).acquire()
            shutil.rmtree(far)
            assert re.match(
                rf"host2.idle is stopped: the directory {far} of its host was", supervisor.stdout.readline()
            )
            psutil.wait_procs([other], LIMIT_MS / 1000)
            assert not _lives(other)
            far.mkdir()
            (far / SETTINGS_FILE).touch()
            assert _pid_after(far, 2) != other.pid
            assert _pid_after(cluster, 1) == first
            os.kill(first, signal.SIGKILL)
            assert supervisor.stdout.readline().startswith("idle ended (signal SIGKILL)"), "the loss is reported once"
        finally:
            supervisor.terminate()
            assert supervisor.wait(LIMIT_MS / 1000) == 0


@contextmanager
def _disk(directory: Path) -> Iterator[SmallDisk]:
    try:
        with small_disk(directory, 1 << 20) as disk:
            yield disk
    except NoMountError as error:
        pytest.skip(str(error))


def test_a_full_disk_ends_no_supervisor(tmp_path: Path) -> None:
    with _disk(tmp_path / "disk") as disk:
        (disk.directory / "modules").mkdir()
        (disk.directory / "modules" / "idle.py").write_text(IDLE)
        supervisor = _supervise(disk.directory)
        try:
            first = _pid_after(disk.directory, 1)
            disk.fill()
            os.kill(first, signal.SIGKILL)
            clock, never = SystemClock(), threading.Event()
            parent = psutil.Process(supervisor.pid)
            while not [child for child in parent.children() if child.pid != first and _is_idle(child)]:
                clock.wait(never, 20)
            assert supervisor.poll() is None
            assert json.loads((disk.directory / "run" / "idle.json").read_text())["pid"] == first
            disk.release()
            assert _pid_after(disk.directory, 2) != first
        finally:
            supervisor.terminate()
            assert supervisor.wait(LIMIT_MS / 1000) == 0


def test_restarts_back_off_until_a_process_lives_long() -> None:
    delays = [restart_delay_ms(None, lived_ms=5)]
    for _ in range(10):
        delays.append(restart_delay_ms(delays[-1], lived_ms=5))
    assert delays[:2] == [0, RESTART_DELAY_MIN_MS], "the first restart is at once"
    assert delays == sorted(delays)
    assert delays[-1] == RESTART_DELAY_MAX_MS
    assert restart_delay_ms(delays[-1], lived_ms=STABLE_AFTER_MS) == 0
