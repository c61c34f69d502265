"""Which class archive the JVM is given: one that is whole and was made for this Java and this pyspark, or none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.replay.spark.class_archive import (
    SILENT,
    archive_directory,
    archive_key,
    archive_name,
    find_archive,
    install_archive,
    java_binary,
    java_options,
)
from bookkeeper.replay.spark.spark_session import JAVA_OPTIONS, session_conf

KEY = "0123456789abcdef"


def test_without_an_archive_the_jvm_gets_no_option_for_one(tmp_path: Path) -> None:
    assert java_options(tmp_path) == ""
    conf = session_conf(new_settings(tmp_path, "west"), tmp_path, java_options(tmp_path))
    assert conf["spark.driver.extraJavaOptions"] == JAVA_OPTIONS


def test_a_whole_archive_is_kept_under_its_name_and_replaces_all_others(tmp_path: Path) -> None:
    for name in (archive_name(KEY, 9), archive_name("another", 3)):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "written").write_bytes(b"whole")
    kept = install_archive(tmp_path / "written", tmp_path, KEY)
    assert kept == tmp_path / archive_name(KEY, 5)
    assert find_archive(tmp_path, KEY) == kept
    assert list(tmp_path.iterdir()) == [kept]


def test_an_archive_that_was_cut_or_is_of_another_java_is_none(tmp_path: Path) -> None:
    (tmp_path / archive_name(KEY, 5)).write_bytes(b"whol")
    (tmp_path / archive_name("another", 5)).write_bytes(b"whole")
    assert find_archive(tmp_path, KEY) is None
    assert find_archive(tmp_path, None) is None
    assert find_archive(tmp_path / "nowhere", KEY) is None


def test_another_java_needs_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for number in range(2):
        java = tmp_path / str(number) / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text("")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / str(number)))
        assert java_binary() == java
        keys.add(archive_key())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert (java_binary(), archive_key()) == (None, None)
    assert len(keys) == 2


def test_what_is_no_archive_does_not_keep_a_jvm_from_starting_and_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = java_binary()
    if java is None:
        pytest.skip("NO JAVA")
    monkeypatch.setattr("bookkeeper.replay.spark.class_archive.archive_key", lambda: KEY)
    directory = archive_directory(tmp_path / "with space")
    directory.mkdir(parents=True)
    (directory / "written").write_bytes(b"no archive" * 1000)
    install_archive(directory / "written", directory, KEY)
    assert java_options(tmp_path / "with space").startswith("-XX:SharedArchiveFile='")
    options = [f"-XX:SharedArchiveFile={find_archive(directory, KEY)}", *SILENT.split()]
    found = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    assert "arning" not in found.stderr
