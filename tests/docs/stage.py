"""Runs the session of a page on two real clusters.

A reader would type the same command lines, about clusters ``west`` and ``east`` in the working directory whose masters
answer at :data:`ADDRESSES`. The output has the page's paths and addresses. ``bookkeeper`` runs inside this process; a
line with a pipe, a pattern or a substitution runs in bash, as it stands.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shell import main
from shell.failures import run
from tests.docs.page import Step, steps
from tests.support.time_limit import TimeLimit
from tests.support.trust import ALIAS
from tests.support.tservers import wait_until

ADDRESSES = {"west": "127.0.0.1:9797", "east": "127.0.0.1:9798"}
"""The addresses of the masters, as the pages write them."""

HOME = "/srv/bookkeeper"
"""The working directory, as the pages write it."""

LIMIT_S = 120
_FOR_BASH = re.compile(r"[|*<>$;]")
_MADE = re.compile(r"^bookkeeper init (west|east)\b", re.MULTILINE)


class Running(Protocol):
    """The part of a cluster that a page needs."""

    @property
    def directory(self) -> Path:
        """The directory of the cluster."""

    @property
    def quorum(self) -> str:
        """The address of its master."""


@dataclass(frozen=True, slots=True)
class Performed:
    """A step that was run. ``is_json``: it was told to print JSON."""

    step: Step
    code: int
    printed: list[str]
    is_json: bool


class Stage:
    """A working directory for one page. With ``as_json``, every command that runs inside this process prints JSON."""

    def __init__(self, directory: Path, clusters: Mapping[str, Running], as_json: bool = False) -> None:
        self._directory = directory
        self._clusters = clusters
        self._as_json = as_json
        self._code = 0
        directory.mkdir()
        self._forget_secrets()

    def perform(self, text: str) -> list[Performed]:
        """Run a page; each step with its exit code and its output, standard error included. The secrets for peers
        that it makes are gone afterwards.
        """
        try:
            return self._perform(text)
        finally:
            self._forget_secrets()

    def _perform(self, text: str) -> list[Performed]:
        session = steps(text)
        made = {found[1] for step in session if (found := _MADE.search(step.command))}
        for name in self._clusters.keys() - made:
            self._link(name)
        return [self._run(step) for step in session]

    def _forget_secrets(self) -> None:
        for cluster in self._clusters.values():
            for kept in (cluster.directory / "secrets").glob("*/*.secret"):
                if kept.stem != ALIAS:
                    kept.unlink()

    def _run(self, step: Step) -> Performed:
        if step.command == "echo $?":
            return Performed(step, 0, [str(self._code)], False)
        if step.command.endswith(" &"):
            return Performed(step, 0, self._background(step.command), False)
        real = step.command
        for name, cluster in self._clusters.items():
            real = real.replace(ADDRESSES[name], cluster.quorum)
        is_json = self._as_json and not _FOR_BASH.search(real)
        if _FOR_BASH.search(real):
            self._code, printed = self._bash(real)
        else:
            self._code, printed = self._settled(shlex.split(real) + ["--json"] * is_json)
        return Performed(step, self._code, self._as_written(printed).splitlines(), is_json)

    def _settled(self, words: list[str]) -> tuple[int, str]:
        """Run a line of ``bookkeeper``; ``tablets`` again while a tablet server loads one of the tablets."""
        limit = TimeLimit(LIMIT_S)
        code, printed = self._here(words)
        while words[3:4] == ["tablets"] and "loading" in printed and not limit.is_over():
            limit.pause()
            code, printed = self._here(words)
        return code, printed

    def _here(self, words: list[str]) -> tuple[int, str]:
        assert words[0] == "bookkeeper", f"{words}: a page runs bookkeeper, or something for bash"
        printed = io.StringIO()
        with (
            contextlib.chdir(self._directory),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            code = run(main.bookkeeper, words[1:], as_json="--json" in words)
        return code, printed.getvalue()

    def _bash(self, line: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._directory,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _background(self, command: str) -> list[str]:
        """``bookkeeper standalone NAME &``: the cluster that runs takes the place of the one that was made."""
        name = shlex.split(command)[2]
        assert command == f"bookkeeper standalone {name} &", f"{command}: only a cluster runs in the background"
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._directory / name)
        self._link(name)
        log, said = self._clusters[name].directory / "logs" / "standalone.log", list[str]()

        def answers() -> bool:
            said[:] = [line for line in log.read_text().splitlines() if " answers at " in line]
            return bool(said)

        wait_until(answers, "word of the supervisor that its cluster answers")
        return [self._as_written(said[0])]

    def _link(self, name: str) -> None:
        (self._directory / name).symlink_to(self._clusters[name].directory)

    def _as_written(self, printed: str) -> str:
        for name, cluster in self._clusters.items():
            printed = printed.replace(str(cluster.directory), f"{HOME}/{name}")
            port, shown = cluster.quorum.rpartition(":")[2], ADDRESSES[name].rpartition(":")[2]
            printed = re.sub(rf"\b{port}\b", shown, printed)
        return printed.replace(str(self._directory), HOME)
