"""``run_standalone`` in a directory with a running supervisor, and its threads with an unreadable store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.errors import RefusedError
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.foreground import Task, _announce, _fence, run_standalone
from bookkeeper.standalone.supervisor import Supervisor


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_second_standalone_changes_nothing(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    first = Supervisor(settings.directory, [], print, 1_000)
    first.acquire()
    try:
        before = contents(settings.directory)
        reports: list[str] = []
        with pytest.raises(RefusedError, match="another standalone process runs this cluster; stop it first"):
            run_standalone(settings, reports.append)
        assert contents(settings.directory) == before
        assert not reports
    finally:
        first.release()


@pytest.mark.parametrize("task", [_fence, _announce])
def test_a_damaged_store_is_reported_and_ends_no_supervisor(tmp_path: Path, task: Task) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    (settings.directory / "coordination" / COORDINATION_FILE).write_bytes(b"rubbish" * 1_000)
    reports: list[str] = []
    reported = threading.Event()

    def report(text: str) -> None:
        reports.append(text)
        reported.set()

    task([settings], report, SystemClock(), reported)
    (line,) = reports
    assert line.startswith("waiting: the coordination store ")
    assert "is damaged: " in line
