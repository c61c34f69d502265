"""The imports of the process that forks the tasks, and their sources."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bookkeeper.replay.spark.daemon import is_archive, with_sign_of_life, without_archives, without_broken_pipes


@pytest.mark.parametrize(
    ("entry", "archive"),
    [
        ("/spark/python/lib/pyspark.zip", True),
        ("/spark/python/lib/py4j-0.10.9.9-src.zip", True),
        ("/usr/lib/python311.zip", False),
        ("/srv/py4j-notes", False),
        ("", False),
    ],
)
def test_archives_of_spark_are_told_from_other_places(entry: str, archive: bool) -> None:
    assert is_archive(entry) == archive


def test_where_pyspark_is_installed_its_archive_is_passed_over_and_the_order_kept() -> None:
    archives = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-1-src.zip"]
    assert without_archives(["/first", *archives, *sys.path]) == ["/first", *sys.path]


def test_where_it_is_not_the_archive_is_used(tmp_path: Path) -> None:
    path = ["/first", str(tmp_path / "pyspark.zip"), str(tmp_path / "py4j-1-src.zip")]
    assert without_archives(path) == path


def test_the_module_itself_imports_nothing_of_pyspark_too_early(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "raise ImportError('from the archive')")
    code = "import sys, bookkeeper.replay.spark.daemon; sys.exit('pyspark' in sys.modules)"
    environment = {"PYTHONPATH": f"{tmp_path / 'pyspark.zip'}:{Path(__file__).parents[3]}"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_worker_whose_jvm_has_ended_ends_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    def worker(answer: int) -> int:
        if not answer:
            raise BrokenPipeError
        return answer

    assert without_broken_pipes(worker)(7) == 7
    assert without_broken_pipes(worker)(0) == 1
    assert capsys.readouterr().err == ""


def test_each_round_of_the_loop_is_a_sign_of_life() -> None:
    signs = list[str]()
    module = with_sign_of_life(select, lambda: signs.append("sign"))
    reading, writing = os.pipe()
    poller = module.poll()
    poller.register(reading, module.POLLIN)
    assert poller.poll(0) == []
    os.write(writing, b"x")
    assert poller.poll(1000) == [(reading, select.POLLIN)]
    assert signs == ["sign", "sign"]
    poller.unregister(reading)
    assert poller.poll(0) == []
    os.close(reading)
    os.close(writing)
