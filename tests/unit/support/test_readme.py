"""The guide to tests: its examples run and keep the style of the project, and its map names every module."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
GUIDE = (SUPPORT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
EXAMPLES = dict(zip(("schedule", "switch", "contract"), BLOCKS, strict=True))
MODULES = sorted(str(path.relative_to(SUPPORT)) for path in SUPPORT.rglob("*.py") if path.parent.name != "__pycache__")
PATTERNS = re.findall(r"`([^`]+)`", GUIDE.partition("## The map")[2])
LIMIT_S = 120


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An example of the guide as a file of its own."""
    made = tmp_path / f"test_{request.param}.py"
    made.write_text(EXAMPLES[request.param])
    return made


def run(*words: str | Path, given: str = "") -> str:
    """The output of a Python module, run in the checkout; it has to end well. ``given`` is its input."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_an_example_passes_as_it_stands(example: Path) -> None:
    place = example.parent / "run"
    printed = run("pytest", "-p", "no:cacheprovider", f"--basetemp={place}", f"--rootdir={ROOT}", example)
    summary = printed.splitlines()[-1]
    tests = example.read_text().count("def test_")
    (passed,) = re.findall(r"(\d+) passed", summary)
    assert tests > 1
    assert int(passed) >= tests, summary
    assert not re.search("skipped|warning", summary), summary


@pytest.mark.parametrize("source", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_keeps_the_style(source: str) -> None:
    place = "--stdin-filename=tests/unit/support/test_example.py"
    run("ruff", "check", "--no-cache", place, "-", given=source)
    assert run("ruff", "format", "--no-cache", place, "-", given=source) == source


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__init__.py") or "/" in name])
def test_every_module_is_in_the_map(module: str) -> None:
    assert any(fnmatch(module, pattern) for pattern in PATTERNS), f"say in tests/support/README.md what {module} is for"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_whatever_the_map_names_is_there(pattern: str) -> None:
    assert any(fnmatch(module, pattern) for module in MODULES)
