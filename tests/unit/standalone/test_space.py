"""The watch of the disks reports a full disk once, and once more when it has space again."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from bookkeeper.standalone.space import Disk, SpaceWatch, changes, read_disks

ROOM = Disk(1, Path("/a"), free_bytes=100, total_bytes=1_000)
FULL = replace(ROOM, free_bytes=9)
OTHER = replace(ROOM, device=2, directory=Path("/b"))


def test_each_change_is_one_line() -> None:
    lines, full = changes([ROOM, OTHER], {}, 10)
    assert (lines, full) == ([], {})
    lines, full = changes([FULL, OTHER], full, 10)
    assert lines[0].startswith(
        "the disk of /a is full: 9 of 1000 bytes are free, and 10 are reserved; tservers refuse writes until"
    )
    assert changes([FULL, OTHER], full, 10) == ([], {1: FULL})
    assert changes([ROOM, OTHER], full, 10) == (["the disk of /a has space again: 100 bytes are free"], {})


def test_directories_of_one_disk_are_one(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    disks = read_disks([tmp_path, tmp_path / "below", tmp_path / "gone"])
    assert [disk.directory for disk in disks] == [tmp_path]
    assert 0 < disks[0].free_bytes < disks[0].total_bytes


def test_a_watch_does_not_repeat_a_report(tmp_path: Path) -> None:
    reports: list[str] = []
    watch = SpaceWatch((tmp_path,), 1 << 60, reports.append)
    watch.run_once()
    watch.run_once()
    assert len(reports) == 1
