"""The quiet check of a host's files: it reads at a bounded rate, and finds each damaged file in one round."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.replicas.events import Flushed, LeaderNamed
from bookkeeper.tserver.replicas.file_checker import TICK_MS, CheckLimits, FileChecker, allowance
from tests.support.jumping_clock import TestClock
from tests.support.replica_disks import KEY, Disk, disk
from tests.support.replica_world import DIE

LIMITS = CheckLimits(interval_ms=60_000, bytes_s=150)


@given(left=st.integers(-1_000, 1_000), elapsed_ms=st.floats(0, 1e9))
def test_a_turn_never_reads_more_than_two_ticks_allow(left: int, elapsed_ms: float) -> None:
    found = allowance(LIMITS, left, elapsed_ms)
    assert found <= LIMITS.bytes_s * 2 * TICK_MS / 1000
    assert found >= min(left, 0), "a debt grows although nothing was read"
    assert allowance(LIMITS, -150, TICK_MS) == 0, "the bytes that were read too much are not made up for"


class Host:
    """A host with some files of 100 bytes."""

    def __init__(self, directory: Path, files: int) -> None:
        self.disk: Disk = disk(directory, "host1")
        held = self.disk.held()
        held.apply(LeaderNamed("host1", 1))
        for number in range(files):
            file = self.disk.file(f"{number}.parquet")
            held.apply(Flushed((file.name,)), [file])
        self.clock = TestClock()
        self.suspected: list[str] = []
        self.checker = FileChecker(self.disk.replicas, self.suspect, LIMITS, self.clock, DIE)

    def suspect(self, name: str) -> bool:
        """A file differs."""
        self.suspected.append(name)
        return True

    @property
    def checked(self) -> int:
        """Files checked so far."""
        return int(self.checker.status()["files_checked"])

    def tick(self, count: int = 1) -> None:
        """Turns of the thread."""
        for _ in range(count):
            self.clock.jump(TICK_MS)
            self.checker.run_once()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, 12)


def test_a_round_takes_as_long_as_its_bytes_and_the_next_one_waits(host: Host) -> None:
    host.tick(4)
    assert 4 <= host.checked <= 7, "600 bytes were allowed"
    host.tick(10)
    assert host.checked == 12
    host.tick(30)
    assert host.checked == 12, "a round begins before its time"
    host.clock.jump(LIMITS.interval_ms)
    host.tick(14)
    assert host.checked == 24
    assert host.suspected == []


def test_a_changed_a_cut_and_a_missing_file_are_suspected(host: Host) -> None:
    changed, cut, missing = (host.disk.directory / KEY.prefix / f"{number}.parquet" for number in (3, 5, 7))
    changed.write_bytes(bytes([changed.read_bytes()[0] ^ 1]) + changed.read_bytes()[1:])
    cut.write_bytes(cut.read_bytes()[:-1])
    missing.unlink()
    host.tick(14)
    assert host.suspected == [f"{KEY.prefix}{number}.parquet" for number in (3, 5, 7)]


def test_files_of_a_replica_that_is_removed_meanwhile_are_not_checked(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.tick(4)
    checked = host.checked
    held = host.disk.replicas.find(KEY)
    assert held is not None
    host.disk.replicas.remove(KEY, held.placement)
    host.tick(20)
    assert host.checked <= checked + 1, "one of them was being read"
    assert len(caplog.messages) <= 1
