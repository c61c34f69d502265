"""Replacing a part of the product for a while: a switch of ``faults``, or an edge of a simulation.

A target is an object of the product. So mypy checks it, a rename changes it, and a wrong one fails at import:

* a method or property, ``WalWriter.sync``, is replaced in the class that defines it;
* a function of a module, ``lease.is_dead``, is replaced in each module of the product that binds it, under any name:
  a switch does not depend on the modules that import the function by name;
* ``Binding(leadership, FateEngine)`` and ``Binding(sqlite_store, "PUT_SQL")`` are replaced in this one module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

PRODUCT = "bookkeeper"

P = ParamSpec("P")
R = TypeVar("R")


class Binding:
    """A name that one module binds: that of a function, class or module, or a constant's name as a string."""

    def __init__(self, module: ModuleType, bound: str | Callable[..., Any] | ModuleType) -> None:
        self.module = module
        self.name = bound if isinstance(bound, str) else bound.__name__
        if self.name not in vars(module) or not (isinstance(bound, str) or vars(module)[self.name] is bound):
            raise TypeError(f"{module.__name__} does not bind {bound}")


Target = Callable[..., Any] | property | Binding


def definition_of(target: Callable[..., Any] | property) -> tuple[Any, str]:
    """The class or module that should define a target, and the target's name there."""
    function = target.fget if isinstance(target, property) else target
    *owners, name = getattr(function, "__qualname__", "").split(".")
    holder: Any = sys.modules.get(getattr(function, "__module__", None) or "", object)
    for owner in owners:
        holder = vars(holder).get(owner, object)
    return holder, name


def checked(target: Target) -> Target:
    """The same target. TypeError: no module and no class defines it."""
    if not isinstance(target, Binding):
        holder, name = definition_of(target)
        if vars(holder).get(name) is not target:
            raise TypeError(f"{target} is no function, method or property that a module or its class defines")
    return target


def modules_of_product(but: Collection[str] = ()) -> Iterator[ModuleType]:
    """The modules of the product that are imported."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PRODUCT and name not in but:
            yield module


def is_bound(bound: object, function: object) -> bool:
    """Whether a name is bound to a function, or to a variant that a simulation made of it with ``wraps``."""
    while bound is not function and hasattr(bound, "__wrapped__"):
        bound = bound.__wrapped__
    return bound is function


def names_of(module: ModuleType, function: object) -> list[str]:
    """The names under which a module binds a function."""
    return [name for name, bound in list(vars(module).items()) if is_bound(bound, function)]


def places_of(target: Target) -> list[tuple[Any, str]]:
    """All places of a target: each is a class or module, and a name there. RuntimeError: there is none, because the
    function is replaced already.
    """
    if isinstance(target, Binding):
        return [(target.module, target.name)]
    holder, name = definition_of(target)
    if not isinstance(holder, ModuleType):
        return [(holder, name)]
    found = [(module, bound) for module in modules_of_product() for bound in names_of(module, target)]
    if not found:
        raise RuntimeError(f"{holder.__name__}.{name} is replaced already")
    return found


class Fault:
    """A fault switch: ``broken`` replaces the target, takes its arguments, and ``breaks`` names the rule."""

    __slots__ = ("breaks", "broken", "target")

    def __init__(self, target: Callable[P, R] | Binding, broken: Callable[P, R] | str, breaks: str) -> None:
        self.target = checked(target)
        self.broken = broken
        self.breaks = breaks


@contextmanager
def replaced(target: Target, replacement: object) -> Iterator[None]:
    """Run with the replacement in all places of the target. A replaced property takes a function as replacement."""
    standing = property(replacement) if isinstance(target, property) and callable(replacement) else replacement
    imported = frozenset(sys.modules)
    with ExitStack() as stack:
        if not isinstance(target, Binding):
            stack.callback(_bind_again, target, standing, imported)
        for holder, name in places_of(target):
            stack.enter_context(patch.object(holder, name, standing))
        yield


def _bind_again(target: Callable[..., Any] | property, replacement: object, imported: Collection[str]) -> None:
    """Modules that were imported in the meantime bind the replacement by name: give them the target instead."""
    for module in modules_of_product(but=imported):
        for name in names_of(module, replacement):
            setattr(module, name, target)
