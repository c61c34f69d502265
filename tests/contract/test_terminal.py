"""The shell on a terminal, talking to a real cluster: names it completes, the prompt, the current table."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
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
        terminal.complete("insert terminal_ci", "ties")
        terminal.press(" a f q 1\r")
        terminal.expect("written\n")
        terminal.complete("table termin", "al_cities")
        terminal.press("\r")
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


@pytest.mark.long
def test_long_work_shows_what_is_left_on_a_terminal_and_nothing_in_a_pipe(west: Cluster) -> None:
    inputs, copied = west.directory / "progress", west.directory / "copied"
    inputs.mkdir()
    lines = "\n".join(f"{number:07},f,q,value" for number in range(1_500_000))
    (inputs / "a.csv").write_text(f"row,family,qualifier,value\n{lines}\n")
    west.client.tables.create("worked")
    shell = [sys.executable, "-m", "shell.main", "shell", str(west.directory)]
    for command, line, end in (
        (["importdirectory", "worked", str(inputs)], " left", "1500000 records imported into table worked"),
        (["compact", "-t", "worked", "--wait"], "1 tablet left", "table worked compacted"),
    ):
        with Terminal([*shell, *command], {}) as terminal:
            assert "\n" not in terminal.expect(line), "it is one line, drawn again and again"
            terminal.expect(end)
            assert terminal.wait() == ExitCode.OK
    for command in (["compact", "-t", "worked", "--wait"], ["exporttable", "worked", str(copied)]):
        done = subprocess.run([*shell, *command], capture_output=True, check=True, text=True)
        assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    west.client.tables.delete("worked")
    for directory in (inputs, copied):
        shutil.rmtree(directory)


ZSH = "autoload -Uz compinit && compinit -D -u && "
LINES: Mapping[str, tuple[list[str], str]] = {
    "bash": (["--norc", "--noprofile"], 'eval "$(_BOOKKEEPER_COMPLETE=bash_source bookkeeper)" && '),
    "zsh": (["-f"], f'{ZSH}eval "$(_BOOKKEEPER_COMPLETE=zsh_source bookkeeper)" && '),
    "fish": (["--no-config"], "_BOOKKEEPER_COMPLETE=fish_source bookkeeper | source; and "),
}
"""Options without start files, and the line of docs/commands/completion.md with what has to come before it."""


@pytest.mark.parametrize("name", LINES)
def test_other_shells_complete_commands_and_names_of_the_cluster(name: str, west: Cluster, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name}: docker/system-deps.sh all installs it")
    options, line = LINES[name]
    west.client.tables.create(f"{name}_cities")
    programs = str(Path(sys.executable).parent)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with Terminal([name, *options, "-i"], environment) as terminal:
        terminal.press(f'{line}echo rea""dy\r')
        terminal.expect("ready")
        terminal.complete(f"bookkeeper shell {west.directory} addsp", "addsplits ")
        terminal.complete(f"-t {name}_ci", f"-t {name}_cities")
        terminal.press("\x15exit\r")
        terminal.wait()
    west.client.tables.delete(f"{name}_cities")


@pytest.mark.parametrize(
    ("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_states_have_colours_where_a_terminal_has_them(
    west: Cluster, environment: dict[str, str], is_coloured: bool
) -> None:
    shell = [sys.executable, "-m", "shell.main", "shell", str(west.directory)]
    with Terminal([*shell, "hosts"], {"NO_COLOR": "", **environment}) as terminal:
        terminal.expect("alive")
        assert terminal.wait() == ExitCode.OK
        assert ("\x1b[32malive\x1b[0m" in terminal.raw) == is_coloured
        assert ("\x1b[3" in terminal.raw) == is_coloured
    done = subprocess.run([*shell, "hosts"], capture_output=True, check=True, text=True)
    assert "\x1b" not in done.stdout


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
