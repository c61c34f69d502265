"""Options of ``init`` that do not go together are refused with the right ones, and nothing is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from shell.failures import ExitCode
from tests.support.shell import quick

ROOT = "zk://127.0.0.1:1/west"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--join", ROOT], "--join zk://... needs --secret-file FILE (bookkeeper secret export DIR FILE)"),
        (["--join", ROOT, "--secret-file", "f", "--replace"], "--replace needs --host NAME"),
        (["--join", ROOT, "--secret-file", "f", "--name", "west"], "--name and --metadata are for a new cluster"),
        (["--join", "west", "--secret-file", "f"], "go with --join zk://..., not with a directory"),
        (["--join", "west", "--zookeeper-password", "f"], "go with --join zk://..., not with a directory"),
        (["--join", "west", "--replace"], "go with --join zk://..., not with a directory"),
        (["--join", ""], "it is empty; name a directory"),
        (["--name", "west", "--secret-file", "f"], "--secret-file and --replace go with --join zk://..."),
        (["--name", "west", "--replace"], "--secret-file and --replace go with --join zk://..."),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    answer = quick("init", str(tmp_path / "new"), *words)
    assert (answer.code, said in answer.err) == (ExitCode.USAGE, True), answer
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_not_there_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    answer = quick("init", str(tmp_path / "new"), "--join", ROOT, "--secret-file", str(tmp_path / "join"))
    assert (answer.code, "bookkeeper secret export DIR FILE" in answer.err) == (ExitCode.FAILED, True), answer
    assert not (tmp_path / "new").exists()


def test_a_cluster_with_an_embedded_store_exports_no_secrets_and_shares_no_settings(tmp_path: Path) -> None:
    home = tmp_path / "west"
    assert quick("init", str(home), "--name", "west").code == 0
    exported = quick("secret", "export", str(home), str(tmp_path / "join"))
    assert (exported.code, f"--join {home}" in exported.err) == (ExitCode.FAILED, True), exported
    assert not (tmp_path / "join").exists()
    shared = quick("config", "share", str(home))
    assert (shared.code, "there is nothing to share" in shared.err) == (ExitCode.FAILED, True), shared
