"""A fault switch: a change of the source of one function that breaks a rule while a test runs.

A table of switches reads the source files of the product and imports nothing of it. A text that is gone, or is in its
function twice, fails when the table is imported.

:func:`turned` imports the module, compiles the changed source, and gives the function the code of its changed twin; the
end of the block gives it the old code back. So the change runs in all modules that have bound the function, and below
the wrappers that a simulation puts around it. Defaults and decorators of the function stay as they are.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent, indent
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

MUTANT_VARIABLE = "TESTS_OF_A_MUTANT"
"""Set in the tests of a mutant (``tests.mutants``): it may take the text of a switch away, which is no proof that a
test notices it. So nothing is checked at import, and the red twin of this switch is skipped.
"""

INDENT = 4
BEGINS = ("def ", "class ", "async def ")
BEHIND = [re.compile(rf"^ {{0,{INDENT * depth}}}[^\s)\]}}#]", re.MULTILINE) for depth in range(4)]
"""The first line behind a block at this depth; a closing bracket and a comment are no such line."""

WRAPPED = ("__wrapped__", "__func__", "fget", "func")
"""Where a wrapper has its function: ``functools.wraps``, static and class methods, properties, cached properties."""

_turned: set[tuple[str, str]] = set()


class TextGoneError(LookupError):
    """The old text of a switch is not in its function, or is there more than once."""


class Edit(NamedTuple):
    """One change: ``old`` stands once in ``function``, such as ``name`` or ``Class.name``, and becomes ``new``.

    Both may have several lines, which are indented like the line of the file in which ``old`` begins.
    """

    module: str
    function: str
    old: str
    new: str

    def applied_to(self, source: str) -> str:
        """The source of the module with the change. TextGoneError: ``old`` is not there, or there more than once."""
        begin, end = self._block(source)
        old = dedent(self.old).strip("\n")
        first = source.find(old.partition("\n")[0], begin, end)
        line = source[source.rfind("\n", 0, first) + 1 : first]
        margin = line[: len(line) - len(line.lstrip())]
        old = _hanging(old, margin)
        if (found := source.count(old, begin, end)) != 1:
            raise TextGoneError(f"{self.module}, {self.function}: the text of a switch is there {found} times: {old}")
        at = source.index(old, begin, end)
        return source[:at] + _hanging(dedent(self.new).strip("\n"), margin) + source[at + len(old) :]

    def with_class_cell(self, source: str) -> str:
        """A function that no longer calls ``super()``, and keeps the cell of its class: its closure stays the same."""
        _, end = self._block(source)
        margin = " " * (INDENT * (1 + self.function.count(".")))
        return f"{source[:end].rstrip()}\n{margin}__class__\n{source[end:]}"

    def _block(self, source: str) -> tuple[int, int]:
        begin, end = 0, len(source)
        for depth, name in enumerate(self.function.split(".")):
            margin = "\n" + " " * (INDENT * depth)
            headers = (source.find(f"{margin}{word}{name}{mark}", begin, end) for word in BEGINS for mark in "(:")
            begin = 1 + min((at for at in headers if at >= 0), default=-1)
            if not begin:
                raise TextGoneError(f"{self.module} has no {self.function}")
            behind = BEHIND[depth].search(source, source.index("\n", begin) + 1, end)
            end = behind.start() if behind else end
        return begin, end


class Switch:
    """A change of a function, or several (``also``), that break one rule. TextGoneError: an old text is gone.

    ``new`` imports in place what the module lacks. ``breaks`` names the rule, or the harm that a user sees.
    """

    __slots__ = ("breaks", "edits")

    def __init__(
        self, module: str, function: str, *, old: str, new: str, breaks: str, also: Sequence[Edit] = ()
    ) -> None:
        self.edits = (Edit(module, function, old, new), *also)
        self.breaks = breaks
        if MUTANT_VARIABLE not in os.environ:
            for edit in self.edits:
                edit.applied_to(source_of(edit.module)[1])


@contextmanager
def turned(*switches: Switch) -> Iterator[None]:
    """Run with these switches; the changes of one function are made together.

    RuntimeError: a function is changed already. TextGoneError: one change takes the text of another away.
    """
    changes: dict[tuple[str, str], list[Edit]] = {}
    for edit in (edit for switch in switches for edit in switch.edits):
        changes.setdefault((edit.module, edit.function), []).append(edit)
    with ExitStack() as stack:
        for edits in changes.values():
            stack.enter_context(_changed(edits))
        yield


@contextmanager
def _changed(edits: Sequence[Edit]) -> Iterator[None]:
    place = edits[0].module, edits[0].function
    if place in _turned:
        raise RuntimeError(f"{place[0]}, {place[1]} is changed by a switch already")
    function, forget = function_at(importlib.import_module(place[0]), place[1])
    before = function.__code__
    function.__code__ = _changed_code(before, edits)
    _turned.add(place)
    forget()
    try:
        yield
    finally:
        function.__code__ = before
        _turned.remove(place)
        forget()


def _changed_code(before: CodeType, edits: Sequence[Edit]) -> CodeType:
    path, source = source_of(edits[0].module)
    for edit in edits:
        source = edit.applied_to(source)
    code = _code_in(source, path, before)
    if set(before.co_freevars) - set(code.co_freevars):
        code = _code_in(edits[0].with_class_cell(source), path, before)
    if before.co_freevars != code.co_freevars:
        raise RuntimeError(f"{edits[0].module}, {edits[0].function}: a switch can't add super() to a function")
    return code


def _code_in(source: str, path: Path, sought: CodeType) -> CodeType:
    """The code of a function in a changed source of its module: the whole module, for its ``__future__``, its classes
    and its line numbers.
    """
    scopes = [compile(source, str(path), "exec", dont_inherit=True)]
    for scope in scopes:
        inner = [const for const in scope.co_consts if isinstance(const, CodeType)]
        if found := [code for code in inner if code.co_qualname == sought.co_qualname]:
            return min(found, key=lambda code: abs(code.co_firstlineno - sought.co_firstlineno))
        scopes += inner
    raise RuntimeError(f"{path} has no {sought.co_qualname}")


def function_at(module: ModuleType, name: str) -> tuple[FunctionType, Callable[[], None]]:
    """The function below its wrappers, and a call that empties the caches among them.

    RuntimeError: the name stands for something that does not lead to the function.
    """
    *owners, name_there = name.split(".")
    holder: Any = module
    for owner in owners:
        holder = vars(holder)[owner]
    for scope in getattr(holder, "__mro__", (holder,)):
        layers = list(_layers(vars(scope).get(name_there)))
        for layer in layers:
            if isinstance(layer, FunctionType) and layer.__code__.co_qualname == name:
                clears = [layer.cache_clear for layer in layers if hasattr(layer, "cache_clear")]
                return layer, partial(_call_all, clears)
    raise RuntimeError(f"{module.__name__}.{name} stands for something that does not lead to the function")


def _layers(found: Any) -> Iterator[Any]:
    while found is not None:
        yield found
        found = next(filter(None, (getattr(found, part, None) for part in WRAPPED)), None)


def _call_all(calls: Iterable[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _hanging(text: str, margin: str) -> str:
    """The lines behind the first one, moved to the right by a margin."""
    first, rest, others = text.partition("\n")
    return first + rest + indent(others, margin)


@cache
def source_of(module: str) -> tuple[Path, str]:
    """The file of a module and its text; the module is not imported."""
    package, *inner = module.split(".")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no package {package}")
    if not inner:
        path = Path(spec.origin)
    else:
        path = Path(spec.origin).parent.joinpath(*inner)
        path = path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")
    return path, path.read_text(encoding="utf-8")
