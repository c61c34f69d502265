"""A session needs a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError
from bookkeeper.replay.spark.spark_session import start_session
from bookkeeper.standalone.directory import init_cluster


def test_without_a_java_the_error_names_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="install Java 17: make system-deps"):
        start_session(init_cluster(tmp_path / "west", "west"))
