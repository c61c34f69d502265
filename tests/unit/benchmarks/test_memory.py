"""The benchmarks of memory run whole, on few files: a change of the master's rooms that breaks one fails here."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.benchmarks import collector_memory, master_memory


@pytest.mark.parametrize("moment", get_args(collector_memory.Moment))
def test_each_moment_of_the_collector_is_measured(moment: collector_memory.Moment, tmp_path: Path) -> None:
    collector_memory.measure(collector_memory.Case(files=30, tablets=3, moment=moment), tmp_path / "west")


def test_the_files_of_the_master_are_measured(tmp_path: Path) -> None:
    found = master_memory.measure(master_memory.Case(files=30, tablets=3, users=2), tmp_path / "west")
    assert found.kept > 0
