"""A full disk is said once, and once more when it has room again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bookkeeper.standalone.space import Disk, SpaceWatch, changes, look

ROOM = Disk(1, Path("/a"), free_bytes=100, total_bytes=1_000)
FULL = replace(ROOM, free_bytes=9)
OTHER = replace(ROOM, device=2, directory=Path("/b"))


def test_each_change_is_one_line() -> None:
    lines, full = changes([ROOM, OTHER], {}, 10)
    assert (lines, full) == ([], {})
    lines, full = changes([FULL, OTHER], full, 10)
    assert lines[0].startswith(
        "the disk of /a is full: 9 of 1000 bytes are free, 10 are kept; writes are refused until"
    )
    assert changes([FULL, OTHER], full, 10) == ([], {1: FULL})
    assert changes([ROOM, OTHER], full, 10) == (["the disk of /a has room again: 100 bytes are free"], {})


def test_directories_of_one_disk_are_one(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    found = look([tmp_path, tmp_path / "below", tmp_path / "gone"])
    assert [disk.directory for disk in found] == [tmp_path]
    assert 0 < found[0].free_bytes < found[0].total_bytes


def test_a_watch_remembers_what_it_said(tmp_path: Path) -> None:
    said: list[str] = []
    watch = SpaceWatch((tmp_path,), 1 << 60, said.append)
    watch.run_once()
    watch.run_once()
    assert len(said) == 1
