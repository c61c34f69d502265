"""Mutants: every place once, the same seed the same sample, and tests that notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.sites import Module, draw
from tests.mutants.trial import Stage, changed, passes, stages_of

TEXT = '''"""A module."""


def limit(count: int) -> int:
    """A number."""
    check(count)
    if count > 5:
        raise ValueError("too many")
    return count + 1
'''


def test_each_place_is_changed_alone_and_texts_are_left() -> None:
    module = Module("m.py", TEXT)
    changes = {
        line.strip()
        for place in range(len(module))
        for line in module.mutant(place).diff.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    }
    assert {"+    pass", "+    if count >= 5:", "+    return count - 1", "+    return count + 2"} <= changes
    assert not any("XX" in change for change in changes)


def test_the_same_seed_draws_the_same_and_none_twice() -> None:
    texts = {"a.py": TEXT, "b.py": TEXT.replace("5", "7")}
    every = sum(len(Module(path, text)) for path, text in texts.items())
    assert draw(texts, 5, 1) == draw(texts, 5, 1)
    assert draw(texts, 5, 1) != draw(texts, 5, 2)
    assert len(draw(texts, 10_000, 3)) == every


def test_a_module_meets_the_tests_of_its_room_first(tmp_path: Path) -> None:
    (tmp_path / "tests/unit/master").mkdir(parents=True)
    names = [stage.arguments[0] for stage in stages_of("bookkeeper/master/cycle/cycle.py", tmp_path, deep=True)]
    assert names == ["tests/unit/master", "tests/contract", "tests/integration"]
    assert stages_of("bookkeeper/clock.py", tmp_path, deep=False)[0].arguments == ("tests/unit",)


def test_a_stage_imports_the_copy_and_says_whether_it_passes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "room").mkdir(parents=True)
    module = tree / "room" / "limits.py"
    module.write_text("LIMIT = 5\n")
    test = "from room.limits import LIMIT\n\ndef test_it():\n    assert LIMIT == 5\n"
    (tree / "test_it.py").write_text(test)
    stage = Stage("own", ("test_it.py",))
    assert passes(stage, tree)
    with changed(module, "LIMIT = 6\n"):
        assert not passes(stage, tree)
    with changed(module, "import os\n\nos._exit(70)\n"):
        assert not passes(stage, tree), "a mutant that ends the process is noticed"
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        passes(Stage("none", ("no_such_test.py",)), tree)
    assert passes(stage, tree)
