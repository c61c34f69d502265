"""A cluster's directory is its owner's alone, from its first file on, and is made so again when it is started."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from bookkeeper.errors import RefusedError
from bookkeeper.security.private_files import is_open, tighten
from bookkeeper.standalone.directory import close_to_others, complete_cluster, init_cluster
from tests.support.faults import fault

NOBODY = "65534"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_places(directory: Path) -> list[Path]:
    """Paths that other users have a right to, from the directory down."""
    return [path for path in (directory, *directory.rglob("*")) if is_open(path.lstat().st_mode)]


def test_what_init_makes_nobody_else_can_enter(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    assert mode_of(settings.directory) == 0o700


def _tightened(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    home, secret = settings.directory, settings.directory / "secrets" / "cluster.secret"
    elsewhere = tmp_path / "elsewhere.db"
    for path in (home, home / "wal", home / "coordination", home / "bookkeeper.toml", secret.parent):
        path.chmod(0o755)
    secret.chmod(0o644)
    elsewhere.touch()
    elsewhere.chmod(0o664)
    (home / "link").symlink_to("/etc")
    found = tighten(settings, elsewhere)
    assert {path.name for path in found} >= {"west", "wal", "coordination", "bookkeeper.toml", "elsewhere.db"}, (
        "what lies open to others stays so"
    )
    assert [mode_of(home / name) for name in ("", "wal", "coordination", "bookkeeper.toml")] == [0o700] * 4
    assert mode_of(elsewhere) == 0o600
    assert mode_of(secret) == 0o644, "it may have been read, and is refused where it is used"
    assert mode_of(Path("/etc")) == 0o755
    assert tighten(settings, elsewhere) == []
    secret.chmod(0o600)
    complete_cluster(settings)


def test_what_lies_open_is_closed_and_said(tmp_path: Path) -> None:
    _tightened(tmp_path)


def test_without_its_rule_it_stays_open(tmp_path: Path) -> None:
    with fault("directories-stay-open"), pytest.raises(AssertionError, match="what lies open to others stays so"):
        _tightened(tmp_path)


def _let_pass(directory: Path) -> None:
    """Others may pass through the directory to the files in it, and see no more of it."""
    for parent in (directory, *directory.parents):
        parent.chmod(stat.S_IMODE(parent.stat().st_mode) | 0o011)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_nobody_else_can_hold_a_lock_or_read_a_file(tmp_path: Path) -> None:
    _let_pass(tmp_path)
    settings = init_cluster(tmp_path / "west", "west")
    run = settings.directory / "run"
    (run / "standalone.lock").touch()
    as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    lock, books = str(run / "standalone.lock"), str(settings.directory / "metadata.db")
    for command in (["flock", "-n", lock, "true"], ["cat", books]):
        done = subprocess.run([*as_nobody, *command], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "Permission denied" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_directory_of_another_user_is_refused_when_it_is_open(tmp_path: Path) -> None:
    _let_pass(tmp_path)
    settings = init_cluster(tmp_path / "west", "west")
    settings.directory.chmod(0o755)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setuid(int(NOBODY))
            close_to_others(settings)
        except RefusedError as error:
            code = 0 if "belongs to another user" in error.message else 2
        finally:
            os._exit(code)  # in every case: this is no test run of its own
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
