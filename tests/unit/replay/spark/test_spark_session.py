"""A session needs a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError
from bookkeeper.replay.spark.spark_session import (
    SCRATCH,
    SOCKET_DIRECTORY_BYTES_MAX,
    drop_scratch,
    fresh_scratch,
    start_session,
)
from bookkeeper.standalone.directory import init_cluster


def test_without_a_java_the_error_names_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="install Java 17: make system-deps"):
        start_session(init_cluster(tmp_path / "west", "west"))


def test_a_fresh_scratch_is_private_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = fresh_scratch(Path("west"))
    assert found == Path("west") / SCRATCH
    (found / "old").touch()
    assert list(fresh_scratch(Path("west")).iterdir()) == []
    assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["a,b", "x" * 100])
def test_a_path_that_spark_cannot_use_leads_to_a_temporary_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    first = fresh_scratch(tmp_path / name)
    assert (tmp_path / name / SCRATCH).resolve() == first.resolve()
    assert "," not in str(first)
    assert len(str(first)) <= SOCKET_DIRECTORY_BYTES_MAX
    assert first.stat().st_mode & 0o777 == 0o700
    second = fresh_scratch(tmp_path / name)
    assert not first.exists()
    drop_scratch(tmp_path / name / SCRATCH)
    assert not second.exists()
    assert not (tmp_path / name / SCRATCH).is_symlink()
