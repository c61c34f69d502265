"""The Volume of a cluster whose logs may lie on hosts' disks: each file is found by its name.

A numbered log, and each file beside it, is where the home of its session is: on this process's own disk, on another
host's (:class:`HostLogs`), or on the cluster's Volume. All other files are on the cluster's Volume. A host's process
alone writes on its disk, so a log on another host can be read, listed, deleted and sealed
(``log_recovery``), and nothing else; other operations raise OSError (EROFS).
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import UnavailableError
from bookkeeper.log_homes.home_books import Homes, home_of
from bookkeeper.log_homes.host_logs import HostLogs, Hosts
from bookkeeper.metadata.values import LogHome
from bookkeeper.storage.volume.names import FENCE_SUFFIX, LOGS, session_of_numbered
from bookkeeper.storage.volume.volume_protocol import Appender, Scratch, Source, Volume

LOGS_DIRECTORY = LOGS.rstrip("/")


class OwnLogs(Struct, frozen=True):
    """The disk of this process's host, which this process holds."""

    home: LogHome
    volume: Volume


class LogVolume:
    """See :class:`Volume`. Thread-safe. Each operation also raises the errors of :class:`Homes`."""

    def __init__(self, shared: Volume, homes: Homes, hosts: Hosts, own: OwnLogs | None = None) -> None:
        """``shared``: the cluster's Volume; ``hosts``: the other hosts; ``own``: None = it holds no host."""
        self._shared = shared
        self._homes = homes
        self._hosts = hosts
        self._own = own

    def home_of(self, name: str) -> LogHome | None:
        """The disk of a host that has a file, also this process's own; None = it is on the cluster's Volume."""
        return home_of(self._homes, name)

    def is_own(self, home: LogHome) -> bool:
        """Whether this process holds a disk."""
        return self._own is not None and home == self._own.home

    def address_of(self, home: LogHome) -> str:
        """Where the process answers that holds a disk; "" = the host is away."""
        try:
            return self._hosts.find(home)
        except UnavailableError:
            return ""

    def host_of(self, name: str) -> HostLogs | None:
        """The other host that has a file; None = this process reaches it itself."""
        place = self._place(name)
        return place if isinstance(place, HostLogs) else None

    # ---- reads

    def open(self, name: str) -> Source:
        """See :class:`ReadableVolume`."""
        return self._place(name).open(name)

    def read(self, name: str, length_max: int) -> bytes | None:
        """See :class:`ReadableVolume`."""
        return self._place(name).read(name, length_max)

    def is_fenced(self, name: str) -> bool:
        """See :class:`ReadableVolume`."""
        place = self._place(name)
        return place.exists(name + FENCE_SUFFIX) if isinstance(place, HostLogs) else place.is_fenced(name)

    def size(self, name: str) -> int:
        """See :class:`Volume`."""
        return self._place(name).size(name)

    def exists(self, name: str) -> bool:
        """See :class:`Volume`."""
        return self._place(name).exists(name)

    def read_range(self, name: str, position: int, length: int) -> bytes:
        """See :class:`Volume`."""
        return self._place(name).read_range(name, position, length)

    def open_durable(self, name: str) -> AbstractContextManager[Source]:
        """See :class:`Volume`."""
        return self._here(name).open_durable(name)

    # ---- listings

    def list_names(self, prefix: str) -> list[str]:
        """See :class:`Volume`."""
        if session_of_numbered(prefix) is not None:
            place = self._place(prefix)
            return list(place.names(prefix)) if isinstance(place, HostLogs) else place.list_names(prefix)
        found = set(self._shared.list_names(prefix))
        for place in self._places_below(prefix):
            found.update(place.names(prefix) if isinstance(place, HostLogs) else place.list_names(prefix))
        return sorted(found)

    def list_directories(self, directory: str) -> list[str]:
        """See :class:`Volume`."""
        found = self._shared.list_directories(directory)
        return sorted({*found, *self._homes.all()}) if directory == LOGS_DIRECTORY else found

    def entries(self, directory: str) -> Iterator[str]:
        """See :class:`Volume`."""
        yield from self._shared.entries(directory)
        session = _session_of_directory(directory)
        home = None if session is None else self._homes.of(session)
        if home is not None:
            place = self._at(home)
            yield from place.names(f"{directory}/") if isinstance(place, HostLogs) else place.entries(directory)

    # ---- changes

    def delete(self, names: Sequence[str]) -> None:
        """See :class:`Volume`."""
        for part in _in_runs(names):
            self._place(part[0]).delete(part)

    def create(self, name: str, parts: Iterable[bytes | pa.Buffer]) -> Appender:
        """See :class:`Volume`."""
        return self._here(name).create(name, parts)

    def reopen(self, name: str, length: int) -> Appender:
        """See :class:`Volume`."""
        return self._here(name).reopen(name, length)

    def create_once(self, name: str, content: bytes) -> None:
        """See :class:`Volume`."""
        self._here(name).create_once(name, content)

    def fence(self, name: str) -> None:
        """See :class:`Volume`."""
        self._here(name).fence(name)

    def scratch(self, name: str, writer: str = "") -> Scratch:
        """See :class:`Volume`."""
        return self._here(name).scratch(name, writer)

    def publish(self, names: Sequence[str], writer: str = "") -> None:
        """See :class:`Volume`."""
        for part in _in_runs(names):
            self._here(part[0]).publish(part, writer)

    def discard(self, names: Sequence[str]) -> None:
        """See :class:`Volume`."""
        for part in _in_runs(names):
            self._here(part[0]).discard(part)

    def remove_tree(self, directory: str) -> None:
        """See :class:`Volume`: on the cluster's Volume; the files of hosts go by name."""
        self._shared.remove_tree(directory)

    def prune(self, directory: str) -> None:
        """See :class:`Volume`; a host prunes its own disk when its process starts."""
        self._shared.prune(directory)

    def _place(self, name: str) -> Volume | HostLogs:
        home = self.home_of(name)
        return self._shared if home is None else self._at(home)

    def _at(self, home: LogHome) -> Volume | HostLogs:
        if self._own is not None and self._own.home == home:
            return self._own.volume
        return HostLogs(home, self._hosts)

    def _here(self, name: str) -> Volume:
        """Where this process may change a file. Raises OSError for another host's disk."""
        place = self._place(name)
        if isinstance(place, HostLogs):
            raise OSError(errno.EROFS, f"it lies on host {place.home.host}, whose process alone writes there")
        return place

    def _places_below(self, prefix: str) -> Collection[Volume | HostLogs]:
        """The disks of hosts that may have files with a prefix."""
        session = _session_of_directory(prefix.rpartition("/")[0])
        if session is not None:
            home = self._homes.of(session)
            return () if home is None else (self._at(home),)
        if not (prefix.startswith(LOGS) or LOGS.startswith(prefix)):
            return ()
        return [self._at(home) for home in dict.fromkeys(self._homes.all().values())]


def _session_of_directory(directory: str) -> str | None:
    session = directory.removeprefix(LOGS)
    return session if session and session != directory and "/" not in session else None


def _in_runs(names: Sequence[str]) -> Iterator[list[str]]:
    """The same names in order, in runs that are at one place: files of one log, or of none."""
    run: list[str] = []
    for name in names:
        if run and session_of_numbered(run[-1]) != session_of_numbered(name):
            yield run
            run = []
        run.append(name)
    if run:
        yield run
