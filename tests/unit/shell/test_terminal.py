"""The shell on a real pseudo-terminal, keys in and screen out; the cluster is away, or silent."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shell.failures import ExitCode
from tests.support.terminal import Terminal

AWAY = "127.0.0.1:1"
CTRL_C, CTRL_D = "\x03", "\x04"


def shell(cluster: str, state: Path) -> Terminal:
    return Terminal([sys.executable, "-m", "shell.main", "shell", cluster], {"XDG_STATE_HOME": str(state)})


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with shell(AWAY, tmp_path) as running:
        running.expect(f"{AWAY}>")
        yield running


def test_an_error_is_one_line_and_the_shell_goes_on(terminal: Terminal) -> None:
    terminal.press("nonsense\r")
    assert terminal.expect("see: shell --help\n").count("\n") == 2
    terminal.press("'\r")
    terminal.expect("error: No closing quotation")
    terminal.press("tables\r")
    terminal.expect(f"no master of {AWAY} says who leads")
    terminal.press("exit\r")
    assert terminal.wait() == ExitCode.OK


def test_tab_completes_though_the_cluster_is_away(terminal: Terminal) -> None:
    terminal.press("help repli\t")
    terminal.expect("help replication")
    terminal.press("wa\t\r")
    terminal.expect("Exit code 4 if the time limit comes first")
    terminal.press("scan \tx\r")  # no name is known
    terminal.expect(f"no master of {AWAY} says who leads")


def test_ctrl_c_drops_the_line_and_ctrl_d_ends_the_shell(terminal: Terminal) -> None:
    terminal.press(f"nonsense {CTRL_C}help help\r")
    assert "No such command" not in terminal.expect("List the commands, or explain one.")
    terminal.expect(f"{AWAY}>")
    terminal.press(CTRL_D)
    assert terminal.wait() == ExitCode.OK


def test_a_pasted_text_of_several_lines_is_several_commands(terminal: Terminal) -> None:
    terminal.press("\x1b[200~help scan\nhelp insert\n\x1b[201~\r")
    terminal.expect("Print cells in order")
    terminal.expect("Write one cell")


def test_ctrl_c_ends_a_command_and_keeps_the_shell(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = f"127.0.0.1:{silent.getsockname()[1]}"
        with shell(cluster, tmp_path) as terminal:
            with silent.accept()[0]:  # the connection that reads names
                terminal.expect(f"{cluster}>")
                terminal.press("tables\r")
                with silent.accept()[0]:
                    terminal.press(CTRL_C)
                    terminal.expect("\n")
                    terminal.press("help help\r")
                    terminal.expect("List the commands, or explain one.")
                    terminal.expect(f"{cluster}>")
            terminal.press(CTRL_D)
            assert terminal.wait() == ExitCode.OK


def test_the_history_is_there_in_the_next_shell(tmp_path: Path) -> None:
    for key, text in (("help insert\r", "Write one cell"), ("\x1b[A\r", "Write one cell")):
        with shell(AWAY, tmp_path) as terminal:
            terminal.expect(f"{AWAY}>")
            terminal.press(key)
            terminal.expect(text)


def test_the_shell_works_without_a_history_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with shell(AWAY, tmp_path / "file") as terminal:
        terminal.expect("no history of commands")
        terminal.press("help insert\r")
        terminal.expect("Write one cell")
