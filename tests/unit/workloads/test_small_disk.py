"""The disk of a test that was killed goes away, and no other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_disk import MOUNTS, NoMountError, orphans, remove_orphans, small_disk

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.small_disk import small_disk
with small_disk(Path(sys.argv[1]), 1 << 20):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_only_disks_whose_maker_is_gone_are_orphans() -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\n"
        "tmpfs /tmp tmpfs rw 0 0\n"
        "small-disk-7-100 /a\\040b/disk tmpfs rw 0 0\n"
        "small-disk-8-100 /here tmpfs rw 0 0\n"
        "small-disk-9-100 /again tmpfs rw 0 0\n"
        "small-disk-7-100 /no/tmpfs ext4 rw 0 0\n"
    )
    started = {8: "100", 9: "200"}
    assert orphans(mounts, lambda pid: started.get(pid, "")) == [Path("/a b/disk"), Path("/again")]


def test_the_disk_of_a_killed_test_is_taken_away_by_the_next_and_no_living_one(tmp_path: Path) -> None:
    mine, killed = tmp_path / "mine", tmp_path / "killed"
    try:
        with small_disk(mine, 1 << 20):
            done = subprocess.run([sys.executable, "-c", KILLED, str(killed)], check=False)
            assert done.returncode == -signal.SIGKILL
            assert str(killed) in MOUNTS.read_text()
            remove_orphans()
            assert str(killed) not in MOUNTS.read_text()
            assert str(mine) in MOUNTS.read_text()
    except NoMountError as error:
        pytest.skip(str(error))
