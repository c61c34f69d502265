"""One tserver of a directory holds the host's replicas; the others, and one with a damaged disk, hold none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.storage.replicas.host_store import INCARNATION
from bookkeeper.tserver.process import open_host


def test_the_first_tserver_of_a_directory_holds_the_host_until_it_ends(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west", overrides={"host.name": "host3"})
    first = open_host(settings)
    assert first is not None
    assert first.identity.name == "host3"
    assert open_host(settings) is None
    first.close()
    again = open_host(settings)
    assert again is not None
    assert again.identity == first.identity
    again.close()


def test_a_damaged_incarnation_takes_the_replicas_and_not_the_tserver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = new_settings(tmp_path, "west")
    settings.replicas_dir.mkdir()
    (settings.replicas_dir / "manifests").mkdir()
    (settings.replicas_dir / INCARNATION).write_bytes(b"\0\0\0\0")
    with caplog.at_level(logging.ERROR):
        assert open_host(settings) is None
    assert "this tserver holds no replicas" in caplog.text
    assert "is no incarnation of a host's disk" in caplog.text
