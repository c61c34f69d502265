"""A cluster that does not start says why: with the end of its supervisor's log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Never

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError, UnavailableError
from bookkeeper.standalone.cluster_process import LOG_END_BYTES, ClusterProcess
from tests.support.cluster import standalone_command


def test_a_supervisor_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    settings = new_settings(tmp_path / "west", "west")
    settings.logs_dir.mkdir(parents=True)
    process = ClusterProcess(settings, standalone_command(settings.directory))
    process.log.write_text("old line\n" * LOG_END_BYTES)
    process.start()
    with pytest.raises(RefusedError, match="runs already"):
        process.start()
    with pytest.raises(UnavailableError, match=r"standalone ended \(\d+\):\n") as caught:
        process.wait_until(lambda: False, "answer", 60)
    process.stop(60)
    *before, last = caught.value.message.strip().splitlines()
    assert str(settings.directory) in last
    assert len("\n".join(before)) < 2 * LOG_END_BYTES


def test_an_interrupt_while_one_waits_leaves_a_supervisor_that_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Popen's lock stays locked when an interrupt comes right behind the moment in which ``poll`` took it."""
    settings = new_settings(tmp_path / "west", "west")
    settings.logs_dir.mkdir(parents=True)
    process = ClusterProcess(settings, [sys.executable, "-c", "import signal; signal.pause()"])
    process.start()

    def interrupted(child: Any) -> Never:
        child._waitpid_lock.acquire()
        raise AssertionError("an interrupt leaves the lock of Popen locked")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "poll", interrupted)
        with pytest.raises(UnavailableError, match="no answer after"):
            process.wait_until(lambda: False, "answer", 0.1)
    process.stop(60)
