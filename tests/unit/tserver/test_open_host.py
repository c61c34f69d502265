"""One tserver of a directory holds the host's replicas; the others, and one with a damaged disk, hold none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError
from bookkeeper.storage.replicas.host_store import INCARNATION
from bookkeeper.tserver.process import open_host
from tests.support.faults import fault
from tests.support.machines_settings import ON_MACHINES
from tests.support.must_raise import must_raise


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


def a_tserver_without_the_disk_of_its_host_has_no_other_place(directory: Path) -> None:
    settings = new_settings(directory, "west", overrides=ON_MACHINES)
    first = open_host(settings)
    assert first is not None
    with must_raise(RefusedError, "its logs lie where no other host finds them", match="has no place for its logs"):
        open_host(settings)
    first.close()


def test_without_a_volume_a_tserver_needs_the_disk_of_its_host(tmp_path: Path) -> None:
    a_tserver_without_the_disk_of_its_host_has_no_other_place(tmp_path)


def test_without_the_rule_it_writes_its_logs_elsewhere(tmp_path: Path) -> None:
    with fault("logs-in-the-hosts-own-volume"), pytest.raises(AssertionError, match="where no other host finds them"):
        a_tserver_without_the_disk_of_its_host_has_no_other_place(tmp_path)
