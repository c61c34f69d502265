"""The answer of ``replication why`` about a real cluster, and its steps, executed to the letter."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.master.queries.cause_texts import PATIENCE_S, SECOND_NS, explain
from bookkeeper.master.queries.causes import Cause
from bookkeeper.master.queries.waits import Wait
from bookkeeper.master.queries.why import Directory
from shell.failures import ExitCode
from tests.support.shell import Answer, quick
from tests.support.time_limit import TimeLimit

if TYPE_CHECKING:
    from tests.support.cluster import Cluster
    from tests.support.local_pair import LocalCluster

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


def later_steps(cluster: Cluster | LocalCluster, cause: Report) -> list[dict[str, str | None]]:
    """The steps of a cause that lasts for as long as its kind ends by itself as a rule: nobody waits for that time."""
    with closing(open_coordination(cluster.settings)) as store:
        directory = Directory.of(cluster.settings, read_config(store))
    targets = ((table, target) for table, target in directory.targets if target.key.cluster == cause["cluster"])
    target = next(target for table, target in targets if table in cause["tables"])
    found = Cause(cause["kind"], 0, cause["text"])
    names = directory.names(Wait(target, found, cause["file"] or ""), cause["tables"])
    explained = explain(found, names, PATIENCE_S[found.kind] * SECOND_NS)
    assert explained.needs_person
    return [{"at": step.at or None, "command": step.command} for step in explained.steps]


@contextmanager
def running(command: Sequence[str], place: Path) -> Iterator[None]:
    """A command that runs inside the block, and is stopped as an operator stops it."""
    started = subprocess.Popen(command, cwd=place)
    try:
        yield
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(COMMAND_S)


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
    """The words of a command line; ``bookkeeper`` and ``python`` are this interpreter's."""
    program, *words = shlex.split(command)
    own = {"bookkeeper": [sys.executable, "-m", "shell.main"], "python": [sys.executable]}
    return [*own.get(program, [program]), *words]
