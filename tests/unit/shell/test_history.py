"""The history file: private, and bounded in length."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shell.command_history import ENTRIES_MAX, PrivateHistory, history_file


def lines(path: Path) -> list[str]:
    """Oldest first."""
    return list(PrivateHistory(path).load_history_strings())[::-1]


def test_the_history_lies_in_the_state_directory_of_the_user(tmp_path: Path) -> None:
    assert history_file({}, tmp_path) == tmp_path / ".local/state/tablet-bookkeeper/history"
    assert history_file({"XDG_STATE_HOME": "/s"}, tmp_path) == Path("/s/tablet-bookkeeper/history")
    assert history_file({"XDG_STATE_HOME": "s"}, tmp_path) == tmp_path / ".local/state/tablet-bookkeeper/history"


def test_the_next_shell_has_all_lines_that_do_not_begin_with_a_space(tmp_path: Path) -> None:
    history = PrivateHistory(tmp_path / "new" / "history")
    for line in ("tables", " insert t secret f q v", "scan t -b '# '"):
        history.append_string(line)
    assert lines(tmp_path / "new" / "history") == ["tables", "scan t -b '# '"]


def test_only_the_owner_can_read_the_file_even_if_others_could_before(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("")
    path.chmod(0o666)
    PrivateHistory(path).append_string("tables")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(PrivateHistory(tmp_path / "d" / "history").filename.parent.stat().st_mode) == 0o700  # type: ignore[union-attr]


def test_a_long_history_drops_its_oldest_lines(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"\n# 2026-01-01 00:00:00\n+scan t -b {n:0200}\n" for n in range(ENTRIES_MAX + 100)))
    retained = lines(path)
    assert len(retained) == ENTRIES_MAX
    assert retained[-1] == f"scan t -b {ENTRIES_MAX + 99:0200}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["history"]


def test_an_unwritable_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        PrivateHistory(tmp_path / "file" / "history")
