"""The page for contributors: it is one page, and every path, test and command that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.named_tests import missing_tests

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "CONTRIBUTING.md"
GUIDE = ROOT / "tests" / "support" / "README.md"
LINES_MAX = 160

_PATH = re.compile(
    r"\b(?:bookkeeper|combiners|docker|docs|shell|tests)/[\w./-]*\w/?|`[\w-]+\.(?:md|toml)`|\bMakefile\b"
)
_MODULE = re.compile(r"\bpython -m (tests[\w.]*)")


def missing_in(text: str) -> list[str]:
    """Names in a text that the checkout lacks: paths, tests, modules that Python runs."""
    found = [path for path in (raw.strip("`") for raw in _PATH.findall(text)) if not (ROOT / path).exists()]
    places = ((module, ROOT / module.replace(".", "/")) for module in _MODULE.findall(text))
    return (
        found
        + missing_tests(text)
        + [f"python -m {module}" for module, place in places if not (place / "__main__.py").is_file()]
    )


@pytest.mark.parametrize("page", [PAGE, GUIDE], ids=["CONTRIBUTING", "tests/support/README"])
def test_whatever_the_page_names_is_there(page: Path) -> None:
    assert missing_in(page.read_text()) == []


@pytest.mark.parametrize(
    "named",
    [
        "bookkeeper/master/no_such.py",
        "tests/no_such/",
        "`NO_SUCH.md`",
        "tests/unit/metadata/test_keys.py::test_no_such",
        "python -m tests.no_such 7",
    ],
)
def test_what_is_not_there_is_noticed(named: str) -> None:
    assert missing_in(f"{PAGE.read_text()}\n{named}\n") == [named.strip("`").removesuffix(" 7")]


def test_it_is_one_page() -> None:
    assert len(PAGE.read_text().splitlines()) <= LINES_MAX


def test_every_task_that_it_names_is_in_the_makefile() -> None:
    tasks = re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", PAGE.read_text(), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert tasks
    for task in {first or second for first, second in tasks}:
        assert re.search(rf"^{task}:", makefile, re.MULTILINE), f"the Makefile has no {task}"


def test_the_examples_of_one_test_name_real_cases() -> None:
    """A case of the kill matrix and a schedule are named with their parameters."""
    text = PAGE.read_text()
    scenes = (ROOT / "tests" / "support" / "operation_scenes.py").read_text()
    (kind,) = re.findall(r"test_the_next_master_finishes_an_interrupted_operation\[(\w+)-before it\]", text)
    assert f'"{kind}": ' in scenes
    schedules = (ROOT / "tests" / "simulation" / "test_schedules.py").read_text()
    (number,) = re.findall(r"test_a_schedule_is_green_with_its_rule\[(\d+)\]", text)
    assert f'"{number}": (schedule_' in schedules
