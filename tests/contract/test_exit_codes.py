"""Every command, walked from the commands themselves: ``--json``, and the exit code of each way to fail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest

from docs.extension.commands import leaves
from shell import main
from shell.failures import ExitCode, run
from shell.parameters import TABLE
from tests.docs.page import PAGES, steps
from tests.support.cluster import Cluster

COMMANDS = leaves()
AWAY = "127.0.0.1:1"
ALONE = {"shell help", "shell table", "shell notable"}
"""Commands of the shell that can be answered without a cluster."""


def _examples() -> Mapping[str, Sequence[str]]:
    """The words behind the cluster in the first plain example of each command of the shell."""
    found: dict[str, Sequence[str]] = {}
    lines = [step.command for page in PAGES for step in steps(page.read_text())]
    for words in (line.split() for line in lines if not re.search(r"[|$;'\"&]", line)):
        if words[:2] != ["bookkeeper", "shell"]:
            continue
        given = words[3:]
        for path in COMMANDS:
            own = path.split()[1:]
            if path.startswith("shell ") and given[: len(own)] == own:
                found.setdefault(path, [word for word in given if word != "--json"])
    return found


EXAMPLES = _examples()


def ends(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code, and the code of the error that is told as JSON on standard error ("" when there is none)."""
    code = run(main.bookkeeper, [*words, "--json"], as_json=True)
    said = capsys.readouterr().err
    return code, json.loads(said)["error"] if said else ""


@pytest.mark.parametrize(("path", "command"), COMMANDS.items())
def test_every_command_can_print_json(path: str, command: click.Command) -> None:
    switches = [option for parameter in command.params for option in parameter.opts]
    assert "--json" in switches, f"{path} lacks --json: use @in_session, or give it the switch and an Output"


@pytest.mark.parametrize("path", COMMANDS)
def test_a_wrong_command_line_is_a_usage_error(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = path.split()
    before = ["shell", AWAY, *words[1:]] if words[0] == "shell" else words
    assert ends(capsys, *before, "--no-such-option") == (ExitCode.USAGE, "usage")


@pytest.mark.parametrize("path", [path for path in COMMANDS if path.startswith("shell ")])
def test_a_cluster_that_does_not_answer_is_worth_another_try(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shell.names.CONNECT_BUDGET_MS", 0)
    assert path in EXAMPLES, f"{path} has no plain example in docs/commands: $ bookkeeper shell west {path[6:]} …"
    code, error = ends(capsys, "shell", AWAY, *EXAMPLES[path])
    if code == ExitCode.OK:
        assert path in ALONE
    else:
        assert (code, error) == (ExitCode.UNAVAILABLE, "unavailable")


def _about_no_table(path: str) -> list[str]:
    """The example of a command, about a table that there is not; empty when it names none."""
    command, words = COMMANDS[path], list(EXAMPLES.get(path, ()))
    depth = len(path.split()) - 1
    context = command.make_context(command.name, words[depth:], resilient_parsing=True)
    named = {context.params.get(p.name or "") for p in command.params if p.type is TABLE} - {None}
    swapped = ["nosuch" if word in named else word for word in words]
    return swapped if swapped != words else []


@pytest.mark.integration
@pytest.mark.parametrize("path", [path for path in EXAMPLES if _about_no_table(path)])
def test_a_table_that_there_is_not_is_a_permanent_error(
    path: str, west: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(capsys, "shell", west.quorum, *_about_no_table(path)) == (ExitCode.FAILED, "not_found")


@pytest.mark.parametrize(
    "words",
    [
        ("standalone", "DIR"),
        ("config", "show", "DIR"),
        ("wal", "show", "DIR/1.wal"),
        ("shell", "DIR", "tables"),
    ],
)
def test_a_directory_without_a_cluster_is_a_permanent_error(
    words: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.replace("DIR", str(tmp_path / "nowhere")) for word in words]
    assert ends(capsys, *given) == (ExitCode.FAILED, "not_found")
