"""Opens the coordination store that the settings name. It imports a client of ZooKeeper only where they name one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.seen_store import note_seen, read_seen, refuse_older

if TYPE_CHECKING:
    from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination


def open_coordination(settings: Settings, clock: Clock | None = None) -> Coordination:
    """The store of ``settings.coordination.url``; never makes one in ZooKeeper. Raises TransientError when it can't be
    reached; NotFoundError, RefusedError when it is not that of these settings, or older than what this host has seen.
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
    store = ZooKeeperCoordination(
        access_of(settings, password_file), settings.coordination, leases_of(settings, clock), clock
    )
    try:
        refuse_older(read_seen(settings.seen_store_file), store.age(), settings.coordination.url)
    except BaseException:
        store.close()
        raise
    return store


def note_store(settings: Settings, store: ZooKeeperCoordination) -> None:
    """Note how far the store is, in a file of this host; see :func:`refuse_older`. Raises RefusedError when it went
    back, UnavailableError.
    """
    seen, found = read_seen(settings.seen_store_file), store.age()
    refuse_older(seen, found, settings.coordination.url)
    note_seen(settings.seen_store_file, seen, found)


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
