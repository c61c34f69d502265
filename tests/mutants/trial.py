"""One mutant and the tests: those of its room first, then those that take longer, until one fails.

The tests and the processes that they start import a copy of the checkout (``PYTHONPATH``); the copy gets the mutant,
and is restored afterwards. A stage that hangs fails.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.faults.switch import MUTANT_VARIABLE

STAGE_TIMEOUT_S = 900.0
ALWAYS_PASSED_OVER = ["--ignore=tests/unit/docs", "--ignore=tests/unit/packaging", "--ignore=tests/unit/mutants"]
"""They read sources and papers, not what the code does."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that are run together."""

    name: str
    arguments: tuple[str, ...]


def stages_of(module: str, root: Path, *, deep: bool) -> list[Stage]:
    """The tests that may notice a change of a module, the fastest first; ``deep``: those of real processes, too."""
    package, _, inner = module.removesuffix(".py").partition("/")
    room = inner.partition("/")[0] if package == "bookkeeper" else package
    own = f"tests/unit/{room}" if (root / "tests/unit" / room).is_dir() else "tests/unit"
    stages = [
        Stage("unit", (own,)),
        Stage("contract and simulation", ("tests/contract", "tests/simulation", "-m", "not container and not hbase")),
    ]
    if deep:
        stages.append(Stage("integration", ("tests/integration", "-m", "not container and not hbase")))
    return stages


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """The file holds ``text`` for as long as the block takes."""
    before = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def passes(stage: Stage, tree: Path) -> bool:
    """Run a stage. Returns False when a test fails or hangs, or when a mutant ends the process of the tests.

    Raises RuntimeError when pytest runs no test.
    """
    scratch = Path(tempfile.gettempdir()) / f"mutants-{os.getpid()}"  # for files that clusters of tests exchange
    shutil.rmtree(scratch, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={scratch}"]
    command += [*ALWAYS_PASSED_OVER, *stage.arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", MUTANT_VARIABLE: "1"}
    with (tree.parent / "pytest.log").open("wb") as log:
        tests = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = tests.wait(STAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(tests)
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {code}: see {log.name}")
    return code == 0


def _end(tests: subprocess.Popen[bytes]) -> None:
    if tests.poll() is None:
        os.killpg(tests.pid, signal.SIGKILL)
        tests.wait()


def copy_of(root: Path, place: Path) -> Path:
    """Copy the files of the checkout that git knows, as they are now. Returns the path of the copy."""
    shutil.rmtree(place, ignore_errors=True)
    tree = place / "tree"
    tree.mkdir(parents=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout
    for name in listed.decode().split("\0"):
        source = root / name
        if name and source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return tree
