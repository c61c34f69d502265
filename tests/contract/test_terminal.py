"""The shell on a terminal, talking to a real cluster: names it completes, the prompt, the current table."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from shell.failures import ExitCode
from shell.interactive import run_words
from tests.support.cluster import Cluster
from tests.support.terminal import Terminal

pytestmark = pytest.mark.integration


def test_names_are_completed_and_the_prompt_says_where_one_is(west: Cluster, tmp_path: Path) -> None:
    west.client.tables.create("terminal_cities")
    command = [sys.executable, "-m", "shell.main", "shell", str(west.directory)]
    with Terminal(command, {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.expect("west>")
        terminal.press("insert terminal_ci\t a f q 1\r")
        terminal.expect("written\n")
        terminal.press("table termin\t\r")
        terminal.expect("the current table is terminal_cities\n")
        terminal.expect("west terminal_cities>")
        terminal.press("scan\r")
        terminal.expect("a f:q [] ")
        terminal.press("scan nosuch\r")
        terminal.expect("error: no table nosuch")
        terminal.press("notable\r")
        terminal.expect("there is no current table\n")
        terminal.press("scan\r")
        terminal.expect("Missing argument 'TABLE'")
        terminal.expect("west>")
        terminal.press("\x04")
        assert terminal.wait() == ExitCode.OK


def test_a_script_has_a_current_table_too(
    west: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    west.client.tables.create("scripted")
    monkeypatch.setattr(sys, "stdin", io.StringIO("table scripted\nconfig -f versions.max\ntable nosuch\ntable\n"))
    assert run_words(west.quorum, [], as_json=True) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out.startswith('{"table": "scripted"}\n[{"property": "table.versions.max"')
    assert '"error": "not_found"' in said.err
    assert run_words(west.quorum, ["table"], as_json=False) == ExitCode.OK
    assert capsys.readouterr().out == "there is no current table\n"
