"""Replica systems by name: the built-in one, and those that installed packages offer.

Arrives: a peer's quorum as it was defined. Leaves: the replica system that can reach it, and the quorum in that
system's own form. A package adds a system with an entry point of the group ``bookkeeper.replica_systems`` that
names a callable without arguments::

    [project.entry-points."bookkeeper.replica_systems"]
    hbase = "my_package.my_module:HBaseSystem"

A quorum ``NAME://REST`` asks for the system NAME; without a scheme it is another cluster of this project.
Source: design section 7 ("Other replica systems plug in by name").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.metadata import entry_points
from typing import cast

from bookkeeper.errors import InvalidInputError, NotFoundError
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.protocol import ReplicaSystem

GROUP = "bookkeeper.replica_systems"
BUILT_IN = "bookkeeper"

Factory = Callable[[], ReplicaSystem]


def split_quorum(quorum: str) -> tuple[str, str]:
    """Name of the replica system and the quorum in its own form; raises InvalidInputError when either is empty."""
    name, separator, rest = quorum.partition("://")
    if not separator:
        name, rest = BUILT_IN, quorum
    if not name or not rest:
        raise InvalidInputError(f"quorum {quorum!r} names no peer: want HOST:PORT[,HOST:PORT] or SYSTEM://ADDRESS")
    return name, rest


class Registry:
    """Makes each system once, when it is first asked for. Not thread-safe: one per task process."""

    def __init__(self, factories: Mapping[str, Factory] | None = None) -> None:
        """``factories`` come before what installed packages offer."""
        self._factories: dict[str, Factory] = {BUILT_IN: BookkeeperSystem, **(factories or {})}
        self._systems: dict[str, ReplicaSystem] = {}

    def system(self, name: str) -> ReplicaSystem:
        """The system of that name; raises NotFoundError with the names that are known."""
        if name not in self._systems:
            factory = self._factories.get(name) or installed_system(name, known=self._factories)
            self._systems[name] = factory()
        return self._systems[name]


def installed_system(name: str, known: Collection[str] = ()) -> Factory:
    """What an installed package offers under ``name``; raises NotFoundError."""
    offered = entry_points(group=GROUP)
    for point in offered:
        if point.name == name:
            return cast(Factory, point.load())
    names = ", ".join(sorted({*known, *(point.name for point in offered)}))
    raise NotFoundError(f"no replica system {name!r} is installed; known are: {names}")
