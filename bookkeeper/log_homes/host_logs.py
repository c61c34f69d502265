"""The logs on the disk of one host, through the process that holds it (methods of the tserver service).

A host that does not answer is *away*: the error names it, and work on its logs waits. A host that answers and has no
file of a name says so, which is another error. A listing is complete or an error, so nothing is deleted because of a
name that was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import AWAY_HOST, HostAwayError, NotFoundError, RefusedError, TransientError, UnavailableError
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.messages import LOG_CONTENT_BYTES_MAX, LOG_DROPS_MAX, LogPart
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.volume.remote_source import HEAD_BYTES, RemoteSource
from bookkeeper.storage.wal.writing.seal import Seal

AWAY = "away: start it"
"""The end of "it lies on host host2, which is ..."."""

SILENCE_MS = 2_000
"""ms for which a host that did not answer is not asked again: a process that is stopped costs one time-out, and not one
for each of its logs.
"""

T = TypeVar("T")


class Hosts(Struct, frozen=True):
    """The processes that hold the disks of hosts. ``find``: the address of the one that holds a disk; raises
    UnavailableError, and its message ends a sentence such as that of :data:`AWAY`. ``tserver``: calls to an address.
    """

    find: Callable[[LogHome], str]
    tserver: Callable[[str], TServer]
    clock: Clock
    _silent: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Addresses that did not answer, until when (boot clock, ns), and the reason."""

    def reached(self, home: LogHome) -> str:
        """The address of a host that may answer. Raises UnavailableError: see ``find``."""
        address = self.find(home)
        until_ns, reason = self._silent.get(address, (0, ""))
        if self.clock.boot_ns() < until_ns:
            raise UnavailableError(f"not answering: {reason}")
        return address

    def was_silent(self, address: str, reason: str) -> None:
        """A call to an address was not answered."""
        now_ns = self.clock.boot_ns()
        for other, (until_ns, _) in list(self._silent.items()):
            if until_ns < now_ns:
                self._silent.pop(other, None)
        self._silent[address] = now_ns + SILENCE_MS * 1_000_000, reason


def by_sessions(coordination: Coordination) -> Callable[[LogHome], str]:
    """Finds the live session that holds a disk."""

    def find(home: LogHome) -> str:
        held = [
            (info.host.incarnation, info.address)
            for info in coordination.sessions("tserver")
            if info.alive and info.host is not None and info.host.name == home.host
        ]
        addresses = [address for incarnation, address in held if incarnation == home.incarnation]
        if addresses:
            return addresses[-1]
        other = f"here without that disk (incarnation {home.incarnation}): bring the disk back"
        raise UnavailableError(other if held else AWAY)

    return find


class HostLogs(Struct, frozen=True):
    """The logs on one disk. Thread-safe."""

    home: LogHome
    hosts: Hosts

    # ---- reads, with the errors of :class:`ReadableVolume`

    def open(self, name: str) -> RemoteSource:
        """See :class:`ReadableVolume`."""
        address = self._reached(name)
        head = self._part(name, 0, HEAD_BYTES, address)
        if head.size is None:
            raise NotFoundError(f"host {self.home.host} has no log {name}")

        def fetch(position: int, length: int) -> pa.Buffer:
            return pa.py_buffer(self._exact(name, position, length, address))

        return RemoteSource(fetch, head.size, pa.py_buffer(head.content))

    def read(self, name: str, length_max: int) -> bytes | None:
        """See :class:`ReadableVolume`."""
        part = self._part(name, 0, length_max, self._reached(name))
        return None if part.size is None else part.content

    def seal(self, name: str, is_used: bool, durable_offset: int) -> Seal:
        """Let the host fence and seal the log of a dead session. Raises the errors of
        :func:`bookkeeper.storage.wal.recover`.
        """
        end = self._call(
            name,
            self._reached(name),
            lambda host: host.seal_log(self.home.incarnation, name, is_used, durable_offset),
        )
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
        for at in range(0, len(names), LOG_DROPS_MAX):
            self._drop(names[at : at + LOG_DROPS_MAX])

    def _drop(self, names: Sequence[str]) -> None:
        self._try(names[0], lambda host: host.drop_logs(self.home.incarnation, list(names)))

    def _listed(self, prefix: str, after: str) -> Sequence[str]:
        return self._try(prefix, lambda host: host.list_logs(self.home.incarnation, prefix, after))

    def _range(self, name: str, position: int, length: int) -> LogPart:
        wanted = min(length, LOG_CONTENT_BYTES_MAX)
        return self._try(name, lambda host: host.read_log(self.home.incarnation, name, position, wanted))

    def _try(self, name: str, call: Callable[[TServer], T]) -> T:
        """The host's answer. Raises OSError when there is none."""
        try:
            return self._call(name, self._reached(name), call)
        except UnavailableError as error:
            raise HostAwayError(self.home.host, error.message) from error

    def _exact(self, name: str, position: int, length: int, address: str) -> bytes:
        """So many bytes. Raises UnavailableError."""
        parts = []
        while length > 0:
            content = self._part(name, position, length, address).content
            if not content:
                raise UnavailableError(f"{name} ends at byte {position} on host {self.home.host}: read it again")
            parts.append(content)
            position, length = position + len(content), length - len(content)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, name: str, position: int, length: int, address: str) -> LogPart:
        wanted = min(length, LOG_CONTENT_BYTES_MAX)
        return self._call(name, address, lambda host: host.read_log(self.home.incarnation, name, position, wanted))

    def _reached(self, name: str) -> str:
        """Where the host answers. Raises UnavailableError that says in words why it does not."""
        try:
            return self.hosts.reached(self.home)
        except TransientError as error:
            raise self._away(name, error.message) from error

    def _call(self, name: str, address: str, call: Callable[[TServer], T]) -> T:
        """The host's answer. Raises UnavailableError that says in words why there is none, and each permanent error of
        the host except a refusal: it has another disk by now, or the books say otherwise since.
        """
        try:
            return call(self.hosts.tserver(address))
        except (TransientError, RefusedError) as error:
            self.hosts.was_silent(address, error.message)
            raise self._away(name, f"not answering: {error.message}") from error

    def _away(self, name: str, reason: str) -> UnavailableError:
        verb = f"the logs in {name} lie" if name.endswith("/") else f"log {name} lies"
        return UnavailableError(f"{verb} on host {self.home.host}, which is {reason}", {AWAY_HOST: self.home.host})
