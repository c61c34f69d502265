"""The README names every command, option word and exit code there is."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from shell.commands import commands
from shell.failures import ExitCode
from shell.main import bookkeeper
from shell.wal_commands import wal

README = (Path(__file__).parents[3] / "README.md").read_text()


def _leaves(group: click.Group, prefix: str = "") -> list[tuple[str, click.Command]]:
    found = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += _leaves(command, f"{prefix}{name} ")
        else:
            found.append((prefix + name, command))
    return found


@pytest.mark.parametrize(("name", "command"), _leaves(commands))
def test_every_command_is_documented_and_explains_itself(name: str, command: click.Command) -> None:
    assert f"`{name}" in README
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "as_json":
            assert any(option in README for option in parameter.opts), f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", bookkeeper.commands)
def test_every_entry_is_documented(name: str) -> None:
    assert f"bookkeeper {name}" in README


@pytest.mark.parametrize(("name", "command"), _leaves(wal, "wal "))
def test_commands_about_logs_are_documented(name: str, command: click.Command) -> None:
    assert f"`bookkeeper {name}" in README
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "as_json":
            assert any(option in README for option in parameter.opts), f"{name} {parameter.opts}"


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    assert f"| {code.value} |" in README
