"""The logs on the disk of one host, through the process that holds it (methods of the tserver service).

A host that does not answer is *away*: the error names it, and work on its logs waits. A host that answers and has no
file of a name says so, which is another error. A listing is complete or an error, so nothing is deleted because of a
name that was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import AWAY_HOST, HostAwayError, NotFoundError, RefusedError, TransientError, UnavailableError
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.log_messages import LOG_CONTENT_BYTES_MAX, LogPart
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.wal import Seal

WINDOW_BYTES = 1 << 18
"""Least bytes of one call that reads: holds many headers, and wastes little where a payload is skipped."""

AWAY = "away: start it"
"""The end of "it lies on host host2, which is ..."."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The processes that hold the disks of hosts. ``find``: the address of the one that holds a disk; raises
    UnavailableError, and its message ends a sentence such as that of :data:`AWAY`. ``tserver``: calls to an address.
    """

    find: Callable[[LogHome], str]
    tserver: Callable[[str], TServer]


def by_sessions(coordination: Coordination) -> Callable[[LogHome], str]:
    """Finds the live session that holds a disk."""

    def find(home: LogHome) -> str:
        reason = AWAY
        for info in coordination.sessions("tserver"):
            if not info.alive or info.host is None or info.host.name != home.host:
                continue
            if info.host.incarnation == home.incarnation:
                return info.address
            reason = f"here without that disk (incarnation {home.incarnation}): bring the disk back"
        raise UnavailableError(reason)

    return find


@dataclass(frozen=True, slots=True)
class HostLogs:
    """The logs on one disk. Thread-safe."""

    home: LogHome
    hosts: Hosts

    # ---- reads, with the errors of :class:`ReadableVolume`

    def open(self, name: str) -> HostSource:
        """See :class:`ReadableVolume`."""
        tserver = self._reached(name)
        first = self._part(tserver, name, 0, WINDOW_BYTES)
        if first.size is None:
            raise NotFoundError(f"host {self.home.host} has no log {name}")
        size = first.size
        return HostSource(lambda position, length: self._exact(tserver, name, position, length), size, first.content)

    def read(self, name: str, length_max: int) -> bytes | None:
        """See :class:`ReadableVolume`."""
        part = self._part(self._reached(name), name, 0, length_max)
        return None if part.size is None else part.content

    def seal(self, name: str, is_used: bool, durable_offset: int) -> Seal:
        """Let the host fence and seal the log of a dead session. Raises the errors of
        :func:`bookkeeper.storage.wal.recover`.
        """
        tserver = self._reached(name)
        try:
            end = tserver.seal_log(self.home.incarnation, name, is_used, durable_offset)
        except (TransientError, RefusedError) as error:
            raise self._silent(name, error) from error
        return Seal(end.offset, end.position)

    # ---- the other operations, with the errors of :class:`Volume`

    def size(self, name: str) -> int:
        """See :class:`Volume`."""
        size = self._range(name, 0, 0).size
        if size is None:
            raise FileNotFoundError(f"host {self.home.host} has no log {name}")
        return size

    def exists(self, name: str) -> bool:
        """See :class:`Volume`."""
        return self._range(name, 0, 0).size is not None

    def read_range(self, name: str, position: int, length: int) -> bytes:
        """See :class:`Volume`."""
        parts = []
        while length > 0:
            part = self._range(name, position, length)
            if part.size is None:
                raise FileNotFoundError(f"host {self.home.host} has no log {name}")
            parts.append(part.content)
            position, length = position + len(part.content), length - len(part.content)
            if not part.content:
                break
        return b"".join(parts)

    def names(self, prefix: str) -> Iterator[str]:
        """The names that begin so, in order, some of them in memory. Raises OSError: the names before that are no
        list.
        """
        after = ""
        while found := self._listed(prefix, after):
            yield from found
            after = found[-1]

    def delete(self, names: Sequence[str]) -> None:
        """See :class:`Volume`."""
        with_names = list(names)
        self._reaching(names[0], lambda: self._reached(names[0]).drop_logs(self.home.incarnation, with_names))

    def _listed(self, prefix: str, after: str) -> Sequence[str]:
        return self._reaching(prefix, lambda: self._reached(prefix).list_logs(self.home.incarnation, prefix, after))

    def _range(self, name: str, position: int, length: int) -> LogPart:
        return self._reaching(name, lambda: self._part(self._reached(name), name, position, length))

    def _reaching(self, name: str, call: Callable[[], T]) -> T:
        """The result of a call. Raises OSError while the host does not answer."""
        try:
            return call()
        except (TransientError, RefusedError) as error:
            away = error if AWAY_HOST in error.details else self._silent(name, error)
            raise HostAwayError(self.home.host, away.message) from error

    def _exact(self, tserver: TServer, name: str, position: int, length: int) -> bytes:
        """So many bytes. Raises UnavailableError."""
        parts = []
        while length > 0:
            content = self._part(tserver, name, position, length).content
            if not content:
                raise UnavailableError(f"{name} ends at byte {position} on host {self.home.host}: read it again")
            parts.append(content)
            position, length = position + len(content), length - len(content)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, tserver: TServer, name: str, position: int, length: int) -> LogPart:
        try:
            return tserver.read_log(self.home.incarnation, name, position, min(length, LOG_CONTENT_BYTES_MAX))
        except (TransientError, RefusedError) as error:
            raise self._silent(name, error) from error

    def _reached(self, name: str) -> TServer:
        try:
            return self.hosts.tserver(self.hosts.find(self.home))
        except TransientError as error:
            raise self._away(name, error.message) from error

    def _silent(self, name: str, error: TransientError | RefusedError) -> UnavailableError:
        return self._away(name, f"not answering as it should: {error.message}")

    def _away(self, name: str, reason: str) -> UnavailableError:
        verb = f"the logs in {name} lie" if name.endswith("/") else f"log {name} lies"
        return UnavailableError(f"{verb} on host {self.home.host}, which is {reason}", {AWAY_HOST: self.home.host})


class HostSource:
    """A log on another host: a call brings a window, so that small reads in a row cost one. One thread."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, first: bytes) -> None:
        """``fetch``: so many bytes from a position on; ``first``: the first bytes of the file."""
        self._fetch = fetch
        self._window = pa.py_buffer(first)
        self._start = 0
        self.size = size

    def read(self, position: int, length: int) -> pa.Buffer:
        """See :class:`Source`. Raises UnavailableError."""
        start = position - self._start
        if start < 0 or start + length > self._window.size:
            wanted = max(length, min(WINDOW_BYTES, self.size - position))
            self._window, self._start, start = pa.py_buffer(self._fetch(position, wanted)), position, 0
        return self._window.slice(start, length)
