"""Processes are forked from a warm one, and are as separate as processes that were started anew."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.standalone.children import forked_starts
from bookkeeper.standalone.children.forked_starts import (
    PR_SET_CHILD_SUBREAPER,
    WARM,
    ForkedStarts,
    StaleServerError,
    adopt_orphans,
    warm_modules,
)

FACTS = """
import json, os, sys
facts = {"parent": os.getppid(), "group": os.getpgid(0) == os.getpid(), "arguments": sys.argv[1:],
         "descriptors": [fd for fd in range(64) if os.path.exists(f"/proc/self/fd/{fd}")],
         "title": open("/proc/self/cmdline").read(), "warm": "marked" in sys.modules,
         "token": os.environ["BOOKKEEPER_SESSION_TOKEN"]}
print(json.dumps(facts), flush=True)
sys.exit(7)
"""
TOKEN = "0123456789abcdef" * 2
IDLE = "import signal\nsignal.pause()\n"


class Starter:
    """A supervisor's part that starts processes."""

    def __init__(self, directory: Path, warm: list[str]) -> None:
        self.directory, self.selector = directory, selectors.DefaultSelector()
        self.starts = ForkedStarts(warm, SystemClock(), self.selector)

    def ready(self) -> ForkedStarts:
        """The starts, with a fork server that takes orders."""
        while not self.starts.is_ready:
            self.starts.keep_open()
            for key, _ in self.selector.select(1):
                key.data.receive()
        return self.starts

    def start(self, module: str, *arguments: str) -> int:
        with (self.directory / "log").open("ab") as log:
            return self.ready().start(module, arguments, log.fileno(), TOKEN)

    def code(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("facts", FACTS), ("idle", IDLE), ("marked", ""), ("broken", "raise ImportError('broken')")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path


@pytest.fixture
def starter(modules: Path) -> Iterator[Starter]:
    adopt_orphans()
    started = Starter(modules, ["marked"])
    yield started
    started.starts.close()
    started.selector.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_a_forked_process_is_a_child_of_the_supervisor_with_nothing_of_the_fork_server(starter: Starter) -> None:
    pid = starter.start("facts", "one", "two words")
    assert starter.code(pid) == 7
    facts = json.loads(starter.said)
    assert (facts["parent"], facts["group"]) == (os.getpid(), True)
    assert facts["arguments"] == ["one", "two words"]
    assert facts["descriptors"] == [0, 1, 2], "a descriptor of the fork server or of another process is open"
    assert facts["title"].startswith(f"{sys.executable} -m facts one two words")
    assert facts["token"] == TOKEN
    assert TOKEN not in facts["title"], "everybody on the machine sees the token"
    assert facts["warm"], "it was not forked from the process that had imported this"


def test_the_fork_server_of_a_cluster_runs_one_thread(starter: Starter) -> None:
    real = Starter(starter.directory, warm_modules(WARM))
    pid = real.ready().pid
    try:
        assert psutil.Process(pid).num_threads() == 1, "a lock of another thread would be held for ever in each fork"
        warm = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert "bookkeeper.tserver.run" in warm, "it began again without the modules, because they started threads"
    finally:
        real.starts.close()


def test_the_death_of_the_fork_server_ends_no_process_and_the_next_one_starts_more(starter: Starter) -> None:
    first = starter.start("idle")
    server = starter.starts.pid
    assert server is not None
    os.kill(server, signal.SIGKILL)
    while starter.starts.is_ready:
        for key, _ in starter.selector.select(1):
            key.data.receive()
    second = starter.start("idle")
    for pid in (first, second):
        assert psutil.Process(pid).ppid() == os.getpid()
        os.kill(pid, signal.SIGKILL)
        assert starter.code(pid) == -signal.SIGKILL


def test_a_fork_server_that_is_stopped_is_replaced(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_starts, "ANSWER_TIMEOUT_S", 0.1)
    starter.ready()
    assert starter.starts.pid is not None
    os.kill(starter.starts.pid, signal.SIGSTOP)
    with pytest.raises(OSError, match="timed out"):
        starter.start("facts")
    assert not starter.starts.is_ready
    monkeypatch.setattr(forked_starts, "ANSWER_TIMEOUT_S", 60.0)
    assert starter.code(starter.start("facts")) == 7


def test_a_process_starts_with_code_that_was_changed_since(starter: Starter) -> None:
    starter.ready()
    changed = starter.directory / "marked.py"
    os.utime(changed, ns=(0, changed.stat().st_mtime_ns + 1))
    with pytest.raises(StaleServerError):
        starter.start("facts")
    assert starter.code(starter.start("facts")) == 7


def test_a_module_that_can_not_be_imported_tells_so_in_its_own_log(starter: Starter) -> None:
    broken = Starter(starter.directory, ["broken"])
    try:
        assert broken.code(broken.start("broken")) == 1
        assert "ImportError: broken" in broken.said
    finally:
        broken.starts.close()


def test_a_process_that_the_supervisor_does_not_know_runs_nothing(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor fails between the fork and the byte that lets the process run."""
    starter.ready()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: 1 / 0 if data == b"g" else write(fd, data))
    with pytest.raises(ZeroDivisionError):
        starter.start("facts")
    pid, status = os.waitpid(-1, 0)
    assert (os.waitstatus_to_exitcode(status), starter.said) == (0, ""), f"process {pid} ran its module"
