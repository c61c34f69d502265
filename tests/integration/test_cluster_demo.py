"""``make cluster-demo``: nothing is left of it after SIGTERM and kill -9; its own verdict takes minutes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.clusters_on_machines import why_not
from tests.support.tservers import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.machines,
    pytest.mark.timeout(1200),
]

LIMIT_S = 1_000.0
GONE_S = 60.0


@pytest.fixture(autouse=True)
def _machines() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(f"{reason}; the cluster demo was not tested")


def start(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster_demo", "--dir", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def left_behind(directory: Path) -> list[str]:
    """Command lines that name the directory."""
    lines = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(directory) in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_cluster_demo_that_is_ended_from_outside(number: signal.Signals, tmp_path: Path) -> None:
    demo = start(tmp_path / "demo")
    assert demo.stdout is not None
    while "ZooKeeper answers" not in (line := demo.stdout.readline()):
        assert line, "the demo ended before its ZooKeeper answered"
    os.kill(demo.pid, number)
    demo.communicate(timeout=LIMIT_S)
    assert demo.returncode != 0
    wait_until(lambda: not left_behind(tmp_path / "demo"), "the end of all processes", GONE_S)
