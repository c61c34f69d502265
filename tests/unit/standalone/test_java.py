"""The command that runs HBase's programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError
from bookkeeper.standalone.hbase.java import ARCHIVE, archive_options, class_path, find_java


def test_the_jars_come_first_on_the_class_path_and_settings_before_those_of_home(tmp_path: Path) -> None:
    assert class_path(tmp_path) == f"{tmp_path}/programs.jar:{tmp_path}/conf"
    assert class_path(tmp_path, Path("/site")) == f"{tmp_path}/programs.jar:/site:{tmp_path}/conf"


def test_without_an_archive_of_classes_there_are_no_options(tmp_path: Path) -> None:
    assert archive_options(tmp_path) == []


def test_what_is_no_archive_does_not_keep_a_jvm_from_starting_and_is_not_told(tmp_path: Path) -> None:
    try:
        java = find_java()
    except NotFoundError as missing:
        pytest.skip(f"NO JAVA: {missing.message}")
    (tmp_path / ARCHIVE).write_bytes(b"no archive" * 1000)
    done = subprocess.run([java, *archive_options(tmp_path), "-version"], capture_output=True, text=True, check=True)
    assert "arning" not in done.stderr
