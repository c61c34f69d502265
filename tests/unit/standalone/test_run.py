"""``run_standalone`` in a directory that another one runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import RefusedError
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.run import run_standalone
from bookkeeper.standalone.supervisor import Supervisor


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_second_standalone_changes_nothing(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    first = Supervisor(settings.directory, [], print, 1_000)
    first.acquire()
    try:
        before = contents(settings.directory)
        said: list[str] = []
        with pytest.raises(RefusedError, match="another standalone process runs this cluster; stop it first"):
            run_standalone(settings, said.append)
        assert contents(settings.directory) == before
        assert not said
    finally:
        first.release()
