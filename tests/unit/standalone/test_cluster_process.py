"""A cluster that does not start says why: with the end of its supervisor's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError, UnavailableError
from bookkeeper.standalone.cluster_process import LOG_END_BYTES, ClusterProcess
from tests.support.cluster import standalone_command


def test_a_supervisor_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    settings = new_settings(tmp_path / "west", "west")
    settings.logs_dir.mkdir(parents=True)
    process = ClusterProcess(settings, standalone_command(settings.directory))
    process.log.write_text("old line\n" * LOG_END_BYTES)
    process.start()
    with pytest.raises(RefusedError, match="runs already"):
        process.start()
    with pytest.raises(UnavailableError, match=r"standalone ended \(\d+\):\n") as caught:
        process.wait_until(lambda: False, "answer", 60)
    process.stop(60)
    *before, last = caught.value.message.strip().splitlines()
    assert str(settings.directory) in last
    assert len("\n".join(before)) < 2 * LOG_END_BYTES
