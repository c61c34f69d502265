"""Accidents of hosts: one that is away for a while, one whose disk is destroyed, one whose disk is full."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.support.simulation.hosts import Host
from tests.support.simulation.stage import Stage


def away(stage: Stage, rng: Random) -> None:
    """A host dies and stays away until relief; the tablets keep a quorum of hosts."""
    host = rng.choice(stage.west.hosts)
    if sum(other.is_up for other in stage.west.hosts if other is not host) >= 2:
        host.kill(power=rng.random() < 0.5)


def wipe(stage: Stage, rng: Random) -> None:
    """The disk of a host is destroyed, when all that is named is on the disks of the others; a process starts again."""
    host = rng.choice(stage.west.hosts)
    if may_be_wiped(host):
        host.wipe()
        host.start()


def full(stage: Stage, rng: Random) -> None:
    """The disk of a host has no room until relief."""
    rng.choice(stage.west.hosts).fill()


def may_be_wiped(host: Host) -> bool:
    """Whether another voter of each tablet has the files of the named state, so that it may lead, or the Volume has
    them.
    """
    laws = host.cluster.replicas
    return all(
        any(laws.may_lead(name, tablet) for name in tablet.voters if name != host.name)
        or (tablet.files and laws.is_on_volume(tablet))
        for tablet in laws.tablets()
    )


ACCIDENTS: dict[str, Callable[[Stage, Random], None]] = {"away": away, "wipe": wipe, "full": full}
