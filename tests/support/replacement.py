"""Replacing an edge of the product for a while, such as a simulation's threads and disks.

A target is an object of the product. So mypy checks it, a rename changes it, and a wrong one fails at import:

* ``Binding(leadership, FateEngine)`` and ``Binding(leadership, "FATE_THREADS")`` are replaced in this one module;
* a method, ``HostStore.remove``, is replaced in the class that defines it.

A rule is broken by a switch instead (``tests.support.faults``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch


class Binding:
    """A name that one module binds: that of a function, class or module, or a constant's name as a string."""

    def __init__(self, module: ModuleType, bound: str | Callable[..., Any] | ModuleType) -> None:
        self.module = module
        self.name = bound if isinstance(bound, str) else bound.__name__
        if self.name not in vars(module) or not (isinstance(bound, str) or vars(module)[self.name] is bound):
            raise TypeError(f"{module.__name__} does not bind {bound}")


Target = Callable[..., Any] | Binding


def place_of(target: Target) -> tuple[Any, str]:
    """The module or class that has a target, and the target's name there. TypeError: it is no method of a class."""
    if isinstance(target, Binding):
        return target.module, target.name
    *owners, name = getattr(target, "__qualname__", "").split(".")
    holder: Any = sys.modules.get(getattr(target, "__module__", None) or "", object)
    for owner in owners:
        holder = vars(holder).get(owner, object)
    if not owners or vars(holder).get(name) is not target:
        raise TypeError(f"{target} is no method that its class defines")
    return holder, name


@contextmanager
def replaced(target: Target, replacement: object) -> Iterator[None]:
    """Run with the replacement in the place of the target."""
    holder, name = place_of(target)
    with patch.object(holder, name, replacement):
        yield
