"""The product works by the functions that it offers: a rule that stands twice is proven once only."""

from __future__ import annotations

import ast
from pathlib import Path
from types import FunctionType

import bookkeeper
import combiners

FUNCTIONS = {name for name in combiners.__all__ if isinstance(getattr(combiners, name), FunctionType)}


def called(path: Path) -> set[str]:
    """The functions of ``combiners`` that a module calls."""
    tree = ast.parse(path.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "combiners"]
    names = {alias.name for node in imports for alias in node.names}
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {one.id for one in functions if isinstance(one, ast.Name) and one.id in names} | {
        one.attr
        for one in functions
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "combiners"
    }


def modules_with(text: str) -> list[Path]:
    """The modules of the product that mention a text."""
    (root,) = bookkeeper.__path__
    return [path for path in Path(root).rglob("*.py") if text in path.read_text()]


def test_each_change_and_question_of_a_status_is_used_by_the_product() -> None:
    used = {name for path in modules_with("combiners") for name in called(path)}
    assert FUNCTIONS - used == set(), "the conformance page rests on functions that nobody calls"
