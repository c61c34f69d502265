"""The tests of a change: those that changed, those that import what changed, and those of what imports it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.check.changed_tests import ROOT, changed_files, files_of_tests, imports_of

FILES = {
    "bookkeeper/__init__.py": "",
    "bookkeeper/low.py": "",
    "bookkeeper/middle.py": "from bookkeeper.low import thing",
    "bookkeeper/room/__init__.py": "",
    "bookkeeper/room/high.py": "from bookkeeper import middle",
    "bookkeeper/room/contract.thrift": "",
    "tests/support/helper.py": "import bookkeeper.low",
    "tests/unit/test_low.py": "def test():\n    from bookkeeper import low",
    "tests/unit/test_middle.py": "import bookkeeper.middle",
    "tests/unit/test_high.py": "from bookkeeper.room.high import thing",
    "tests/unit/test_helped.py": "from tests.support.helper import thing",
    "tests/unit/test_room.py": "from bookkeeper import room",
    "tests/integration/test_low_process.py": "import bookkeeper.low",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["bookkeeper/low.py"], ["test_low", "test_helped", "test_middle"]),
        (["bookkeeper/middle.py"], ["test_middle", "test_high"]),
        (["bookkeeper/room/high.py"], ["test_high"]),
        (["bookkeeper/room/contract.thrift"], ["test_room"]),
        (["tests/support/helper.py"], ["test_helped"]),
        (["tests/unit/test_high.py", "bookkeeper/middle.py"], ["test_high", "test_middle"]),
    ],
)
def test_the_nearest_come_first(changed: list[str], expected: list[str], tree: Path) -> None:
    assert [Path(file).stem for file in files_of_tests(changed, imports_of(tree))] == expected


def test_of_integration_only_what_changed_itself_is_named(tree: Path) -> None:
    found = files_of_tests(["tests/integration/test_low_process.py"], imports_of(tree))
    assert found == ["tests/integration/test_low_process.py"]


def test_a_paper_has_the_tests_of_papers(tree: Path) -> None:
    assert "tests/unit/docs" in files_of_tests(["docs/security.md"], imports_of(tree))


def test_what_git_does_not_know_yet_has_changed_too(tree: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "one")
    git("switch", "-c", "branch")
    (tree / "bookkeeper/low.py").write_text("changed = True")
    (tree / "bookkeeper/room/high.py").unlink()
    (tree / "bookkeeper/new.py").write_text("")
    git("commit", "-a", "-m", "two")
    assert changed_files(tree) == ("main", ["bookkeeper/low.py", "bookkeeper/new.py"])


@pytest.mark.long
def test_the_tests_of_a_lease_are_found() -> None:
    assert "tests/unit/coordination/test_lease.py" in files_of_tests(
        ["bookkeeper/coordination/lease.py"], imports_of(ROOT)
    )
