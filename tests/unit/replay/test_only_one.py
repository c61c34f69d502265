"""One replay process a directory: two would empty each other's scratch."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError
from bookkeeper.replay.process import only_one, serve
from bookkeeper.replay.spark.spark_session import SCRATCH


def test_a_second_replay_process_of_one_directory_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / SCRATCH).mkdir()
    (tmp_path / SCRATCH / "in-use").touch()
    with only_one(tmp_path):
        with pytest.raises(RefusedError, match="another replay process runs here; stop it first"):
            serve(new_settings(tmp_path, "west"), threading.Event(), SystemClock())
        assert (tmp_path / SCRATCH / "in-use").exists()
        assert not (tmp_path / "coordination").exists()
    with only_one(tmp_path):
        pass
