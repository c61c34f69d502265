"""The places of the code that can be changed, and a sample of them.

A mutant is a module with one change in it. The changes are those of ``mutmut``, without those of texts (the words of an
error are no rule), and one more: a call whose result is unused is left out. Pure. Lines of code weigh the same: a
module is drawn by its length, and one change of it with equal chances.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst
from mutmut.mutation.file_mutation import create_mutations, deep_replace


@dataclass(frozen=True, slots=True)
class Mutant:
    """``text`` is all of ``module`` (a path below the checkout) with the change in it."""

    module: str
    text: str
    diff: str


class _UnusedCalls(cst.CSTVisitor):
    """Statements that are a call and nothing else."""

    def __init__(self) -> None:
        self.found: list[cst.Expr] = []

    def visit_Expr(self, node: cst.Expr) -> None:  # noqa: N802 - the name is libcst's
        """A statement that is an expression."""
        if isinstance(node.value, cst.Call):
            self.found.append(node)


class Module:
    """One module and the places in it that can be changed, in the order in which they were found."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._tree, mutations, _, _ = create_mutations(path, text)
        self._places: list[tuple[cst.CSTNode, cst.CSTNode]] = [
            (mutation.original_node, mutation.mutated_node)
            for mutation in mutations
            if not isinstance(mutation.original_node, cst.BaseString)
            and mutation.contained_by_top_level_function is not None
        ]
        calls = _UnusedCalls()
        self._tree.visit(calls)
        self._places += [(call, cst.Pass()) for call in calls.found]

    def __len__(self) -> int:
        return len(self._places)

    def mutant(self, place: int) -> Mutant:
        """The module with that place changed."""
        changed = deep_replace(self._tree, *self._places[place])
        assert isinstance(changed, cst.Module)
        before, after = self._text.splitlines(), changed.code.splitlines()
        diff = difflib.unified_diff(before, after, self._path, self._path, lineterm="", n=2)
        return Mutant(self._path, changed.code, "\n".join(diff))


def draw(texts: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of different places, or as many as there are. The same seed draws the same of the same code."""
    rng = random.Random(seed)
    paths = sorted(texts)
    weights = [texts[path].count("\n") for path in paths]
    modules: dict[str, Module] = {}
    left: dict[str, list[int]] = {}
    drawn: list[Mutant] = []
    while len(drawn) < count and any(weights):
        (index,) = rng.choices(range(len(paths)), weights)
        path = paths[index]
        if path not in modules:
            modules[path] = Module(path, texts[path])
            left[path] = list(range(len(modules[path])))
        if not left[path]:
            weights[index] = 0
            continue
        drawn.append(modules[path].mutant(left[path].pop(rng.randrange(len(left[path])))))
    return drawn
