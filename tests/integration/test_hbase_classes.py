"""HBase's programs take their classes from the archive that ``docker/hbase/assemble.sh`` made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bookkeeper.standalone.hbase.java import ARCHIVE, default_home, java_command, why_not_runnable

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ARCHIVED, OTHERS = "shared objects file", "file:"


def test_the_classes_of_hbase_come_from_the_archive(tmp_path: Path) -> None:
    """The program has no argument, so it ends once it has made a client."""
    home = default_home()
    if missing := why_not_runnable(home):
        pytest.skip(f"NO REAL HBASE: {missing}")
    if not (home / ARCHIVE).is_file():
        pytest.skip(f"NO ARCHIVE of HBase's classes, so its use was not tested: no {home / ARCHIVE}; run 'make hbase'")
    log = tmp_path / "classes"
    java, *command = java_command(home, "bookkeeper.hbase.BooksTable", 64, tmp_path)
    subprocess.run([java, f"-Xlog:class+load=info:file={log}", *command], capture_output=True, check=False, timeout=60)
    hbase = [line for line in log.read_text().splitlines() if "org.apache.hadoop.hbase" in line]
    archived = [line for line in hbase if ARCHIVED in line]
    others = [line for line in hbase if OTHERS in line]
    assert len(archived) > 10 * len(others), f"{len(archived)} from the archive, {len(others)} from jars"
