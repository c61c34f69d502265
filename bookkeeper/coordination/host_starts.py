"""How often a host has started: the same number is on its disk and in the coordination store.

Each start raises both, the disk first, before the host acknowledges anything. So the number of the disk is that of
the store, or one more after a start that was cut off. A lower one is an older copy of the disk: it runs after the
original, and lacks what that acknowledged. It gets another incarnation, as a wiped disk does, so no acknowledgement
of the original counts for it (P10), and the host refills. A number that is higher by more is the sign of an older copy
of the store. A copy that starts before the original has started again has the number of the original, and is not
noticed.
"""

from __future__ import annotations

import logging
from typing import Protocol

from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import RefusedError
from bookkeeper.model import HostIdentity

LOG = logging.getLogger(__name__)


class CountedDisk(Protocol):
    """The disk of a host, locked for this process."""

    @property
    def identity(self) -> HostIdentity:
        """The host, with the incarnation of its disk."""

    def starts(self) -> int:
        """The number on the disk, 0 = none. Raises CorruptionError, UnavailableError."""

    def note_start(self, number: int) -> None:
        """Write the number, durable on return. Raises UnavailableError."""

    def renew_incarnation(self) -> None:
        """Another incarnation from here on, durable on return. Raises UnavailableError."""


def refuse_older_store(coordination: Coordination, host: str, on_disk: int) -> int:
    """The starts of a host that the store knows. Raises RefusedError when the disk has seen a later store."""
    known = coordination.number(name_of(host))
    if on_disk > known + 1:
        raise RefusedError(
            f"the coordination store is an older copy: it knows of {known} starts of host {host}, and that has started "
            f"{on_disk} times; put the newest copy back, or restore the store, the books and the directories of all "
            "hosts as they were at one moment"
        )
    return known


def count_as_wiped_if_older(coordination: Coordination, disk: CountedDisk) -> None:
    """Give the disk another incarnation when it is an older copy. Raises as :func:`refuse_older_store`."""
    on_disk, host = disk.starts(), disk.identity.name
    known = refuse_older_store(coordination, host, on_disk)
    if on_disk < known:
        before = disk.identity.incarnation
        disk.renew_incarnation()
        disk.note_start(known)
        LOG.error(
            "the disk of host %s (%s) is an older copy: it has started %d times, and the host %d times; it counts as "
            "wiped, and gets all replicas anew",
            host,
            before,
            on_disk,
            known,
        )


def count_start(coordination: Coordination, disk: CountedDisk) -> None:
    """Count a start, durable on return. Call it when no other process can hold the host, and before the first
    acknowledgement. Raises UnavailableError.
    """
    host = disk.identity.name
    number = coordination.number(name_of(host)) + 1
    disk.note_start(number)
    coordination.raise_number(name_of(host), number)


def name_of(host: str) -> str:
    """The name of the number in the store."""
    return f"starts/{host}"
