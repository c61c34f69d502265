"""Command lines as a user types them, and what comes back.

Arrives: words. Leaves: :class:`Answer`: exit code and both outputs.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from shell import main
from shell.failures import ExitCode, run
from tests.support.cluster import Cluster

LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code and output of one command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as one JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def bookkeeper(*words: str, stdin: str = "") -> Answer:
    """Run the console command as a user does, in a process of its own."""
    command = [sys.executable, "-m", "shell.main", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def quick(*words: str) -> Answer:
    """The same without the start of a process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(main.bookkeeper, list(words), as_json="--json" in words)
    return Answer(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True, slots=True)
class Shell:
    """``bookkeeper shell`` of one cluster."""

    cluster: Cluster

    def __call__(self, *words: str) -> Answer:
        """Run a command; any exit code will do."""
        return quick("shell", str(self.cluster.directory), *words)

    def good(self, *words: str) -> Answer:
        """Run a command that must succeed and say nothing on standard error."""
        answer = self(*words)
        assert (answer.code, answer.err) == (ExitCode.OK, ""), answer
        return answer

    def warned(self, *words: str) -> Answer:
        """Run a command that must succeed and warn with one line."""
        answer = self(*words)
        assert answer.code == ExitCode.OK, answer
        assert answer.err.startswith("warning: "), answer
        assert answer.err.count("\n") == 1, answer
        return answer

    def bad(self, *words: str) -> tuple[int, str]:
        """Run a command that must fail with one line: exit code and line."""
        answer = self(*words)
        assert answer.code != ExitCode.OK, answer
        assert answer.out == "", answer
        assert answer.err.count("\n") == 1, answer
        return answer.code, answer.err.strip()
