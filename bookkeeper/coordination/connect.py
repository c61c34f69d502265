"""Opens the coordination store that the settings name. It imports a client of ZooKeeper only where they name one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_leases import HostLeases

if TYPE_CHECKING:
    from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination


def open_coordination(settings: Settings, clock: Clock | None = None) -> Coordination:
    """The store of ``settings.coordination.url``; never makes one in ZooKeeper. Raises TransientError when it can't be
    reached; NotFoundError, RefusedError when it is not that of these settings.
    """
    if settings.coordination_dir is None:
        return open_zookeeper(settings, clock)
    return EmbeddedCoordination(settings.coordination_dir, settings.coordination, clock)


def open_zookeeper(
    settings: Settings, clock: Clock | None = None, password_file: Path | None = None
) -> ZooKeeperCoordination:
    """The store in ZooKeeper that the settings name. ``password_file``: of the password of ``coordination.user``, when
    that is not among the secrets yet. Raises as :func:`open_coordination`.
    """
    from bookkeeper.coordination.zookeeper.access import access_of
    from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination

    clock = clock or SystemClock()
    return ZooKeeperCoordination(
        access_of(settings, password_file), settings.coordination, leases_of(settings, clock), clock
    )


def leases_of(settings: Settings, clock: Clock) -> HostLeases:
    """The lease files of this host's processes, when the store is elsewhere."""
    return HostLeases(settings.leases_dir, settings.coordination.session_lease_ms, clock)


def make_zookeeper(settings: Settings, clock: Clock, password_file: Path | None = None) -> str:
    """Make the root of a new cluster in ZooKeeper, and return its store id. Raises ExistsError, NotFoundError,
    RefusedError, UnavailableError.
    """
    from bookkeeper.coordination.zookeeper.access import access_of
    from bookkeeper.coordination.zookeeper.ensemble import call_limit_ms
    from bookkeeper.coordination.zookeeper.zookeeper import make_root

    return make_root(access_of(settings, password_file), clock, call_limit_ms(settings.coordination))


def remove_zookeeper(settings: Settings, clock: Clock, password_file: Path | None = None) -> None:
    """Remove the unused root that :func:`make_zookeeper` has just made. Raises UnavailableError."""
    from bookkeeper.coordination.zookeeper.access import access_of
    from bookkeeper.coordination.zookeeper.ensemble import call_limit_ms
    from bookkeeper.coordination.zookeeper.zookeeper import remove_root

    named = settings.coordination
    remove_root(access_of(settings, password_file), clock, call_limit_ms(named), named.store_id)


def keep_password(settings: Settings, password_file: Path | None) -> None:
    """Copy the password of ``coordination.user`` to the secrets of a new cluster. Raises OSError."""
    if password_file is not None and settings.coordination.user:
        from bookkeeper.coordination.zookeeper.access import keep_password_file

        keep_password_file(settings, password_file)
