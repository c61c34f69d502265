"""Exactly once under every crash and with any number of senders: schedules, and the rules they need (R18, R19)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.peers.parquet import ParquetSystem
from bookkeeper.peers.protocol import Acked
from bookkeeper.security.file_roots import ANYWHERE
from tests.support.directory_peer import DirectoryPeer
from tests.support.directory_senders import DAY_MS, Schedule, source_block
from tests.support.faults import fault

SCHEDULES, FURTHER = 15, 60
"""So many in make test and in the long tests."""


def run_schedules(directory: Path, remote: bool, count: int) -> tuple[int, int]:
    """Seeded schedules; a failure tells its seed. Returns deaths and touches."""
    deaths = touches = 0
    for seed in range(count):
        schedule = Schedule(directory / str(seed), random.Random(seed), remote)
        try:
            schedule.run(steps=12)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        deaths, touches = deaths + schedule.deaths, touches + schedule.touches
    return deaths, touches


@pytest.mark.parametrize("count", [SCHEDULES, pytest.param(FURTHER, marks=pytest.mark.long)])
@pytest.mark.parametrize("remote", [False, True])
def test_a_reader_sees_a_beginning_of_the_stream_each_record_once_whoever_sends_and_dies(
    tmp_path: Path, remote: bool, count: int
) -> None:
    deaths, touches = run_schedules(tmp_path, remote, count)
    assert deaths > count, "senders die in these schedules"
    assert touches > 20 * count


@pytest.mark.parametrize("name", ["names-are-used-twice", "present-records-are-not-read", "facts-are-not-verified"])
def test_without_each_rule_a_reader_sees_records_twice_or_misses_some(tmp_path: Path, name: str) -> None:
    with fault(name), pytest.raises(AssertionError, match="a reader sees"):
        run_schedules(tmp_path, remote=False, count=400)


def test_where_the_last_writer_wins_files_of_several_blocks_lose_records(tmp_path: Path) -> None:
    with fault("runs-where-the-last-writer-wins"), pytest.raises(AssertionError, match=r"a reader sees|is not there"):
        run_schedules(tmp_path, remote=True, count=400)


def check_a_zombie_within_a_file(directory: Path) -> None:
    """A file holds blocks 1 to 3; a zombie was told that 1 is there, and by then its session had seen nothing."""
    source = [source_block(first, 1, first, 20_000 * DAY_MS) for first in (1, 2, 3)]
    schedule = Schedule(directory, random.Random(0), remote=False, source=source)
    old = schedule._open()
    schedule._open().ship(schedule._message(0, 3))
    assert schedule._open().ship(schedule._message(0, 1)) == Acked(1, 0, 1)
    assert old.ship(schedule._message(1, 2)) == Acked(2, 0, 1)
    assert schedule._open().ship(schedule._message(2, 3)) == Acked(3, 0, 1)
    schedule.look()


def test_a_zombie_that_starts_within_a_file_adds_nothing(tmp_path: Path) -> None:
    check_a_zombie_within_a_file(tmp_path / "lake")
    with fault("facts-are-not-verified"), pytest.raises(AssertionError, match="a reader sees a record twice"):
        check_a_zombie_within_a_file(tmp_path / "other")


def test_two_senders_with_other_cuts_make_one_chain(tmp_path: Path) -> None:
    source = [source_block(first, 1, first, 20_000 * DAY_MS) for first in range(1, 7)]
    schedule = Schedule(tmp_path / "lake", random.Random(0), remote=False, source=source)
    one, two = schedule._open(), schedule._open()
    assert one.ship(schedule._message(0, 4)) == Acked(4, 4, 0)
    assert two.ship(schedule._message(0, 2)) == Acked(2, 0, 2)
    assert two.ship(schedule._message(2, 6)) == Acked(6, 2, 2)
    assert one.ship(schedule._message(4, 5)) == Acked(5, 0, 1)
    assert one.ship(schedule._message(5, 6)) == Acked(6, 0, 1)
    names = [path.name for path in DirectoryPeer(tmp_path / "lake").messages]
    assert names == [f"{first:020d}.parquet" for first in (1, 5)]


def test_a_message_over_midnight_makes_a_file_for_each_day_and_a_cut_between_them_is_mended(tmp_path: Path) -> None:
    source = [source_block(n, 1, n, (20_000 + (n > 2)) * DAY_MS) for n in range(1, 5)]
    schedule = Schedule(tmp_path / "lake", random.Random(0), remote=False, source=source)
    schedule._open().ship(schedule._message(0, 4))
    late = DirectoryPeer(tmp_path / "lake").messages[-1]
    assert [path.parent.parent.name for path in DirectoryPeer(tmp_path / "lake").messages] == [
        "day=2024-10-04",
        "day=2024-10-05",
    ]
    late.unlink()
    schedule.look()
    assert schedule._open().ship(schedule._message(0, 4)) == Acked(4, 2, 2)
    assert late.exists()


def test_streams_that_are_over_leave_nothing_to_apply_twice(tmp_path: Path) -> None:
    source = [source_block(1, 3, 3, 0)]
    schedule = Schedule(tmp_path / "lake", random.Random(0), remote=False, source=source)
    message = schedule._message(0, 3)
    schedule._open().ship(message)
    ParquetSystem(roots=ANYWHERE).stream_done(schedule.peer, [])
    assert schedule._open().ship(message) == Acked(3, 0, 3)
    assert schedule._open().ship(replace(message, acked_offset=3, after_offset=3)) == Acked(3, 0, 3)
    schedule.look()
