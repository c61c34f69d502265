"""Segment files on the disks of hosts, read through the hosts, and checked.

Arrives: the name of a file of a table with replicas, a host. Leaves: its bytes in order. The checksum of all of them is
that of the host's manifest, or the last part raises: so a caller that has got all parts has the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import BookkeeperError, CorruptionError, NotFoundError, TransientError, UnavailableError
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.storage.replicas.file_checks import extended

T = TypeVar("T")


def live_hosts_of(tservers: TServers) -> list[SessionInfo]:
    """The live processes that hold the replicas of a host."""
    return [info for info in tservers.sessions() if info.alive and info.host is not None]


def from_any_host(tservers: TServers, name: str, take: Callable[[Iterator[bytes]], T]) -> T:
    """``take`` the content of a file from the first host that has all of it; it begins anew for each host. Raises
    NotFoundError when no live host holds the file, CorruptionError when those that do have damaged ones,
    UnavailableError while one may have it that does not answer, and the other errors of ``take``.
    """
    problems: dict[str, BookkeeperError] = {}
    for host in live_hosts_of(tservers):
        try:
            return take(parts_on_host(tservers, host, name))
        except (NotFoundError, CorruptionError, TransientError) as error:
            problems[host.address] = error
    reasons = "; ".join(f"{address}: {error.message}" for address, error in problems.items()) or "no host lives"
    if any(isinstance(error, TransientError) for error in problems.values()):
        raise UnavailableError(f"no host has sent {name} ({reasons})")
    if any(isinstance(error, CorruptionError) for error in problems.values()):
        raise CorruptionError(f"no host has a sound {name} ({reasons})")
    raise NotFoundError(f"no host holds {name} any more ({reasons})")


def parts_on_host(tservers: TServers, host: SessionInfo, name: str) -> Iterator[bytes]:
    """The content of a file. Raises NotFoundError when the host does not hold it, CorruptionError when its file is not
    what its manifest says, TransientError.
    """
    _, table_id, directory, _ = name.split("/")
    tserver = tservers.at(host.address)
    position, checksum = 0, 0
    while True:
        part = tserver.read_replica(table_id, directory, name, position)
        checksum = extended(checksum, part.content)
        position += len(part.content)
        yield part.content
        if position >= part.size_bytes or not part.content:
            if position != part.size_bytes or checksum != part.crc32c:
                raise CorruptionError(f"{name} of the host at {host.address} is damaged: its checksum differs")
            return
