"""The answer of ``replication why`` about a real cluster, and its steps, executed to the letter."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shell.failures import ExitCode
from tests.support.shell import Answer, quick
from tests.support.time_limit import TimeLimit

NAMED_S = 60.0
"""A busy machine may need so long to name a fault. Each test prints the time, at most five seconds on a quiet one."""

DRAINED_S = 90.0
COMMAND_S = 60

Report = Mapping[str, Any]


def ask(directory: Path, about: str = "") -> tuple[int, Report]:
    """The exit code and the JSON of ``replication why``."""
    answer = quick("shell", str(directory), "replication", "why", *filter(None, [about]), "--json")
    return answer.code, answer.json if answer.code in (ExitCode.OK, ExitCode.NEEDS_PERSON) else {}


def cause_of(directory: Path, about: str, kind: str, limit_s: float = NAMED_S) -> Report:
    """The cause of this kind, once it is named; prints after how long. Fails after the limit, with what was named
    instead.
    """
    limit, began_s = TimeLimit(limit_s), time.monotonic()
    while True:
        code, report = ask(directory, about)
        found = [cause for cause in report.get("causes", ()) if cause["kind"] == kind]
        if found:
            print(f"{kind} of {about} is named {time.monotonic() - began_s:.1f} s after the fault")
            cause: Report = found[0]
            return cause
        if limit.is_over():
            named = [(cause["kind"], cause["text"]) for cause in report.get("causes", ())]
            raise AssertionError(f"{kind} is not named within {limit_s} s, but {named} (exit code {code})")
        limit.pause()


def until_drained(directory: Path, table: str, limit_s: float = DRAINED_S) -> None:
    """Nothing of the table waits any more."""
    limit = TimeLimit(limit_s)
    while True:
        code, report = ask(directory, table)
        if code == ExitCode.OK and report.get("causes") == []:
            return
        if limit.is_over():
            raise AssertionError(f"{table} waits still after {limit_s} s: {report.get('causes')}")
        limit.pause()


def execute(steps: Sequence[Mapping[str, str | None]], places: Mapping[str | None, Path]) -> list[Answer]:
    """Type each command line as it is printed, in the directory of its cluster. ``places``: by peer, None = here."""
    return [execute_one(str(step["command"]), places[step["at"]]) for step in steps]


def execute_one(command: str, place: Path) -> Answer:
    """One command line, in a process of its own."""
    done = subprocess.run(
        command_words(command), cwd=place, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def command_words(command: str) -> list[str]:
    """The words of a command line; ``bookkeeper`` is this interpreter's."""
    program, *words = shlex.split(command)
    return [sys.executable, "-m", "shell.main", *words] if program == "bookkeeper" else [program, *words]
