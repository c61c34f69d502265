"""Replica systems by name: the built-in one, and those of installed packages.

A quorum ``SYSTEM://ADDRESS`` names the replica system; a quorum without a scheme, or with ``zk``, is another cluster of
this project. A package adds a system with an entry point of the group ``bookkeeper.replica_systems`` that names a
callable without arguments::

    [project.entry-points."bookkeeper.replica_systems"]
    hbase = "my_package.my_module:HBaseSystem"

The package has to be installed where masters and replay processes run. A process makes each system once, when a peer of
it is first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.zookeeper.url import SCHEME
from bookkeeper.errors import BookkeeperError, IncompatibleError, InvalidInputError, NotFoundError
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.extensions import FileSystemPeer
from bookkeeper.peers.protocol import InstalledSystem, ReplicaSystem, RetryLimits
from bookkeeper.security.file_roots import FileRoots

GROUP = "bookkeeper.replica_systems"
BUILT_IN = "bookkeeper"

Factory = Callable[[], ReplicaSystem]


def split_quorum(quorum: str) -> tuple[str, str]:
    """Name of the replica system and the quorum in its own form; raises InvalidInputError when either is empty."""
    name, separator, address = quorum.partition("://")
    if not separator or quorum.startswith(SCHEME):
        name, address = BUILT_IN, quorum
    if not name or not address:
        raise InvalidInputError(
            f"quorum {quorum!r} names no peer: want HOST:PORT[,HOST:PORT], zk://HOST:PORT[,HOST:PORT]/ROOT or "
            "SYSTEM://ADDRESS"
        )
    return name, address


class Registry:
    """Makes each system once, when it is first needed. Thread-safe."""

    def __init__(self, factories: Mapping[str, Factory] | None = None, roots: FileRoots | None = None) -> None:
        """``factories`` come before the systems of installed packages. A system that opens files
        (:class:`FileSystemPeer`) reaches those below ``roots`` only; None = no files.
        """
        self._roots = roots or FileRoots()
        self._factories: dict[str, Factory] = dict(factories or {})
        self._systems: dict[str, ReplicaSystem] = {}
        self._lock = threading.Lock()

    def system(self, name: str) -> ReplicaSystem:
        """The system of that name; raises NotFoundError with the installed names, IncompatibleError."""
        with self._lock:
            if name not in self._systems:
                factory = self._factories.get(name)
                made = factory() if factory is not None else load_installed(name)
                if isinstance(made, FileSystemPeer):
                    made.use_roots(self._roots)
                self._systems[name] = made
            return self._systems[name]

    def installed(self, name: str) -> InstalledSystem:
        """The same for a system that is no cluster of ours; raises IncompatibleError for one that lacks a method."""
        return expect_installed(name, self.system(name))


def registry_of(settings: Settings) -> Registry:
    """The registry of a process that ships for a cluster with these settings: it has the built-in system, too."""
    return Registry({BUILT_IN: partial(BookkeeperSystem, settings)}, FileRoots.of(settings))


def retry_limits(settings: Settings) -> RetryLimits:
    """The bounds of a session's retries."""
    replay = settings.replay
    return RetryLimits(
        message_retries=replay.message_retries,
        message_timeout_ms=replay.message_timeout_ms,
        retry_base_ms=replay.retry_base_ms,
        retry_max_ms=replay.retry_max_ms,
    )


def load_installed(name: str) -> InstalledSystem:
    """The system that an installed package offers under ``name``; raises NotFoundError, IncompatibleError."""
    offered = entry_points(group=GROUP)
    for point in offered:
        if point.name == name:
            try:
                return expect_installed(name, point.load()())
            except BookkeeperError:
                raise
            except Exception as error:
                raise IncompatibleError(
                    f"replica system {name} ({point.value}) can't be loaded: {type(error).__name__}: {error}"
                ) from error
    names = ", ".join(sorted({BUILT_IN, *(point.name for point in offered)}))
    raise NotFoundError(f"no replica system {name!r} is installed; known are: {names}")


def expect_installed(name: str, made: object) -> InstalledSystem:
    """Raise IncompatibleError unless ``made`` has all that a replica system of an installed package needs."""
    if not isinstance(made, InstalledSystem):
        raise IncompatibleError(
            f"replica system {name} is no InstalledSystem of bookkeeper.peers.protocol: {type(made).__name__} lacks a "
            "method; get a version of its package that fits this one"
        )
    return made
