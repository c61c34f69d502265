"""Tests that a page names as ``tests/FILE.py::test_name``, and whether they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

_NAMED = re.compile(r"\b(tests/[\w/]+\.py)::(\w+)")


@cache
def functions_of(path: str) -> frozenset[str]:
    """The names of all functions of a file, which is not run; none of a file that does not exist."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.is_file() else ast.Module(body=[], type_ignores=[])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing_tests(text: str) -> list[str]:
    """The tests that a text names and the checkout lacks, as ``FILE::name``."""
    return [f"{path}::{name}" for path, name in _NAMED.findall(text) if name not in functions_of(path)]
