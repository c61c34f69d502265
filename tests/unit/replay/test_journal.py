"""The journal of shipments: whole lines after any kill; bounded; readable while it grows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings, write_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import UnavailableError
from bookkeeper.replay.journal import ERROR_CHARACTERS_MAX, OLDER_PARTS, Journal, journal_path, read_journal
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from tests.support.ranges import a_range
from tests.support.wal_files import TO_EAST

KILLED_AFTER_A_LINE = """
import os, signal, sys
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.replay.journal import Journal
from tests.support.ranges import a_range
Journal(load_settings(sys.argv[1]), SystemClock()).begin(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def settings_of(directory: Path, journal_bytes: int = 1 << 20) -> Settings:
    return new_settings(directory, "west", overrides={"replay.journal_bytes": journal_bytes})


def result_of(r: Range, error: RangeError | None = None) -> RangeResult:
    count = r.last - r.first + 1
    return RangeResult(r.range_id, r.last, 99, None, count, 10 * count, 2, 1, 3, 20, 200, error, "h", 7, 0.5)


def ship(journal: Journal, ranges: Sequence[Range], error: RangeError | None = None) -> str:
    run = journal.begin(len(ranges))
    journal.end(run, ranges, [result_of(r, error) for r in ranges])
    return run


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    settings, clock = settings_of(tmp_path), SystemClock()
    before_ms = clock.wall_ms()
    journal = Journal(settings, clock)
    one = ship(journal, [a_range("a", 1, 9, range_id=5), a_range("b", 4, 4, range_id=6)])
    two = ship(journal, [a_range("a", 10, 12)], RangeError("unavailable", "x" * 9_999, transient=True))
    content = read_journal(settings)
    assert [(line.run, line.ranges) for line in content.began] == [(one, 2), (two, 1)]
    assert [(line.run, line.file, line.first, line.acked) for line in content.shipped] == [
        (one, "a", 1, 9),
        (one, "b", 4, 4),
        (two, "a", 10, 12),
    ]
    assert one != two
    first, _, last = content.shipped
    assert (first.target, first.last, first.host, first.pid, first.seconds) == (TO_EAST, 9, "h", 7, 0.5)
    assert (first.records, first.bytes, first.filtered, first.resent) == (9, 90, 2, 1)
    assert (first.sent_records, first.sent_bytes, first.error_code, first.error) == (20, 200, None, None)
    assert (last.error_code, last.error) == ("unavailable", "x" * ERROR_CHARACTERS_MAX)
    assert before_ms <= first.time.timestamp() * 1000 <= clock.wall_ms()
    assert (content.unreadable, content.full) == (0, False)


def test_every_line_is_an_object_that_any_tool_can_read(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    ship(Journal(settings, SystemClock()), [a_range("a%20b", 1, 9)])
    began, shipped = (json.loads(line) for line in journal_path(settings).read_text().splitlines())
    assert (began["event"], began["ranges"]) == ("began", 1)
    assert (shipped["event"], shipped["file"], shipped["records"]) == ("shipped", "a%20b", 9)
    assert shipped["time"].endswith("Z")


def test_where_nothing_was_shipped_there_is_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    Journal(settings, SystemClock()).close()
    content = read_journal(settings)
    assert (list(content.began), list(content.shipped)) == ([], [])
    assert not settings.logs_dir.exists()


def test_a_line_is_there_though_its_process_is_killed_right_behind_it(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    write_settings(settings)
    command = [sys.executable, "-c", KILLED_AFTER_A_LINE, str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert [line.ranges for line in read_journal(settings).began] == [1]


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_a_line_that_a_kill_has_cut_takes_no_other_along(tmp_path: Path, kept: int) -> None:
    settings = settings_of(tmp_path)
    journal = Journal(settings, SystemClock())
    ship(journal, [a_range("a", 1, 9)])
    journal.close()
    path = journal_path(settings)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    assert len(read_journal(settings).shipped) == 1
    ship(Journal(settings, SystemClock()), [a_range("a", 10, 19)])
    content = read_journal(settings)
    assert [(line.first, line.acked) for line in content.shipped] == [(1, 9), (10, 19)]
    assert (len(content.began), content.unreadable) == (2, int(kept > 0))


def test_it_is_bounded_and_forgets_the_oldest_first(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, journal_bytes=40_000)
    journal = Journal(settings, SystemClock())
    full_before_it_forgot = False
    for n in range(1, 120):
        ship(journal, [a_range("a", n, n)])
        content = read_journal(settings)
        firsts = [line.first for line in content.shipped]
        assert firsts == list(range(firsts[0], n + 1))
        assert content.full or firsts[0] == 1
        full_before_it_forgot |= content.full
    assert full_before_it_forgot
    assert firsts[0] > 1
    parts = [path for path in settings.logs_dir.iterdir() if path.name.startswith(journal_path(settings).name)]
    assert len(parts) == OLDER_PARTS + 1
    assert sum(path.stat().st_size for path in parts) <= 40_000


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, journal_bytes=1 << 30)
    journal = Journal(settings, SystemClock())
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda n: ship(journal, [a_range("a", n, n)]), range(1, 401)))
    content = read_journal(settings)
    assert len(set(runs)) == len(runs)
    assert {line.run for line in content.began} == {line.run for line in content.shipped} == set(runs)
    assert content.unreadable == 0


def test_nothing_is_shipped_when_it_can_not_be_written_and_what_was_shipped_counts(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    ranges = [a_range("a", 1, 9)]
    (tmp_path / "logs").write_text("no directory")
    broken = Journal(settings, SystemClock())
    with pytest.raises(UnavailableError, match=r"shipped\.jsonl can't be written"):
        broken.begin(1)
    broken.end("run", ranges, [result_of(ranges[0])])
    (tmp_path / "logs").unlink()
    ship(broken, ranges)
    assert [line.acked for line in read_journal(settings).shipped] == [9]
