"""Help and completion of a group import no command, and say what the commands say of themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from shell.commands import commands
from shell.lazy_group import LazyGroup
from shell.main import bookkeeper

HEAVY = (
    "pyarrow",
    "numpy",
    "bookkeeper.client",
    "bookkeeper.config",
    "bookkeeper.standalone",
    "shell.cluster_commands",
)


@pytest.mark.parametrize("group", [bookkeeper, commands], ids=lambda group: str(group.name))
@pytest.mark.parametrize("limit", [45, 80, 500])
def test_the_short_help_of_the_table_is_that_of_the_command(group: LazyGroup, limit: int) -> None:
    shown = {name: group.commands.help_of(name, limit) for name in group.commands}
    assert shown == {name: command.get_short_help_str(limit) for name, command in group.commands.items()}


@pytest.mark.parametrize("group", [bookkeeper, commands], ids=lambda group: str(group.name))
def test_a_command_has_the_name_of_its_entry(group: LazyGroup) -> None:
    assert {name: command.name for name, command in group.commands.items()} == {name: name for name in group.commands}


@pytest.mark.parametrize("line", ["bookkeeper(['--help'])", "commands(['--help'])"])
def test_help_imports_no_command(line: str) -> None:
    code = f"""
import contextlib, json, sys
from shell.main import bookkeeper
from shell.commands import commands
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    {line}
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(found.stdout) == []


def test_completion_imports_no_command_and_names_all() -> None:
    code = f"""
import json, sys
from click.shell_completion import ShellComplete
from shell.main import bookkeeper
found = ShellComplete(bookkeeper, {{}}, "bookkeeper", "").get_completions([], "")
print(json.dumps([[item.value for item in found], [name for name in {HEAVY!r} if name in sys.modules]]))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names, imported = json.loads(found.stdout)
    assert (set(bookkeeper.commands) - set(names), imported) == (set(), [])


def test_a_command_that_is_added_stands_beside_those_of_the_table() -> None:
    group = LazyGroup("g", commands=type(commands.commands)({}))
    group.add_command(click.Command("own", help="Its own help. More."))
    assert (list(group.commands), len(group.commands)) == (["own"], 1)
    assert group.commands.help_of("own") == "Its own help."
    del group.commands["own"]
    assert "own" not in group.commands
