"""The demo with fewer rows: real clusters, real kills, a real verdict, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from bookkeeper.clock import SystemClock
from tests.support.hbase import HBaseInstance, running_hbase, why_no

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = "1500"
LIMIT_S = 600


def _start(directory: Path, metadata: str = "sqlite") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shell.demo", "--rows", ROWS, "--dir", str(directory)]
    environment = {**os.environ, "METADATA": metadata}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _left_behind(directory: Path) -> list[str]:
    """Command lines that name the directory."""
    lines = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(directory) in line]


def _wait_until_gone(directory: Path) -> None:
    clock, never = SystemClock(), threading.Event()
    deadline = clock.boot_ns() + 60 * 10**9
    while left := _left_behind(directory):
        assert clock.boot_ns() < deadline, left
        clock.wait(never, 100)


def _judge(demo: subprocess.Popen[str], directory: Path) -> str:
    try:
        text, _ = demo.communicate(timeout=LIMIT_S)
    finally:
        demo.kill()
    assert demo.returncode == 0, text
    assert len(re.findall(r"kill -9 west tserver1 |kill -9 west master |kill -9 east host2.tserver1 ", text)) == 3
    assert text.count("was started again") == 3
    lost = re.findall(r"kill -9 (west host2|east host3) \(pid \d+\), and its directory is removed$", text, re.MULTILINE)
    assert lost == ["west host2", "east host3"], text
    for cluster in ("west", "east"):
        roles = r"master \d+, tserver1 \d+, host2.tserver1 \d+, host3.tserver1 \d+, replay \d+"
        assert re.search(rf"  {cluster} answers at \S+ \(pids: {roles}\)$", text, re.MULTILINE), text
        assert re.search(rf"{cluster}: createtable copied: 4 tablets on [23] tservers, 3 replicas of each,", text), text
        for table in ("airports", "copied"):
            assert re.search(rf"^{cluster} {table} +[\d,]+ +0 +0 +0 +equal$", text, re.MULTILINE), text
    assert "verdict: every cell is right on both clusters, timestamps equal too" in text
    pattern = r"^shipped: \d+ files, ([\d,]+) of ([\d,]+) records, [\d.,]+ MB sent, [\d,]+ records sent again$"
    shipped = re.search(pattern, text, re.MULTILINE)
    assert shipped is not None, text
    assert shipped[1] == shipped[2], text
    assert "the true figures may be higher" not in text, text
    assert re.search(r"^lag of a row while loading: p50 [\d,]+ ms, max [\d,]+ ms", text, re.MULTILINE)
    _wait_until_gone(directory)
    for log in (directory / "west" / "logs" / "replay.log", directory / "east" / "logs" / "replay.log"):
        assert not re.search(r"^Traceback|CRITICAL|Error", log.read_text(), re.MULTILINE), log.read_text()
    return text


@pytest.mark.long
def test_the_demo_proves_itself_and_leaves_nothing_running(tmp_path: Path) -> None:
    text = _judge(_start(tmp_path / "demo"), tmp_path / "demo")
    assert "\x1b" not in text


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_interrupted_or_killed_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    demo = _start(tmp_path / "demo")
    assert demo.stdout is not None
    while "answers at" not in (line := demo.stdout.readline()):
        assert line, "the demo ended before its clusters answered"
    demo.send_signal(number)
    demo.communicate(timeout=LIMIT_S)
    assert demo.returncode != 0
    _wait_until_gone(tmp_path / "demo")


def test_a_wrong_place_for_the_books_is_told_before_anything_starts(tmp_path: Path) -> None:
    demo = _start(tmp_path / "demo", "mysql://x")
    text, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 1
    assert "METADATA=mysql://x" in text.splitlines()[-1]


@pytest.mark.long
@pytest.mark.hbase
@pytest.mark.container
def test_the_demo_keeps_its_books_in_a_real_hbase(tmp_path: Path) -> None:
    if (reason := why_no("container")) is not None:
        pytest.skip(f"NO REAL HBASE (container): {reason}")
    hbase: HBaseInstance
    with running_hbase(tmp_path / "hbase", "container") as hbase:
        books = f"hbase://{hbase.host}:{hbase.thrift_port}"
        _judge(_start(tmp_path / "demo", books), tmp_path / "demo")
