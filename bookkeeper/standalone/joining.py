"""Hosts of a cluster besides its first one: ``init --join`` makes one, and ``standalone`` runs several on one machine.

A host has a directory of its own with its settings, the logs of its processes and its replicas. Books, logs, shared
segments, secrets and files for exchange are those of the cluster's directory. :func:`join_cluster` claims the name of
the host, which no other directory ever gets (``coordination.host_names``), and then writes the settings file, which
claims the directory. A join that is interrupted in between has its name again when it is repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, joined_settings, load_settings, write_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.host_names import claim_any_name, claim_name, free_name, name_in, place_of
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError
from bookkeeper.security.private_files import DIRECTORY_MODE
from bookkeeper.standalone.books import check_books
from bookkeeper.standalone.hbase.gateway import GATEWAY_PORT, gateway_for
from bookkeeper.standalone.ports import free_ports
from bookkeeper.standalone.stores_lock import StoresLock

HOSTS_DIR = "hosts"
"""Directory of the further hosts that ``standalone`` runs, below that of the cluster."""

JOINED: Mapping[str, Any] = {"standalone.tservers": 1, "standalone.processes": ["master", "tserver"]}
"""Settings of a joined host: it has a master for the time when the first host's is away. One replay process is enough
for a machine.
"""

LOCAL: Mapping[str, Any] = {"standalone.processes": ["tserver"]}
"""Settings of a host that ``standalone`` makes. The first host runs the other processes, which take memory."""

_FRESH_DISK = {"lost+found"}
_OF_A_HOST = _FRESH_DISK | {"replicas", "logs", "run"}
"""The files that may be left of a host that lost its settings file, with all its disk or alone."""


def join_cluster(
    directory: Path | str,
    cluster: Path | str,
    name: str | None = None,
    master_port: int | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Make a host of the cluster in ``cluster`` and return its settings: those of the first host, except for processes,
    ``overrides`` and, if it has a master, its ports. Without ``name`` it is the first free one of ``host2``, ``host3``
    and so on.

    Changes nothing when it raises NotFoundError (``cluster`` is no cluster), InvalidInputError (a bad value, or a
    setting that differs from that of the cluster), ExistsError (the directory is used, or the name belongs to another
    directory), RefusedError or CorruptionError (the stores are wrong), or TransientError.
    """
    home, first = Path(directory).absolute(), load_settings(cluster)
    if first.host.cluster:
        raise InvalidInputError(
            f"{first.directory} is a host of the cluster in {first.cluster_directory}; join that directory"
        )
    refuse_place(home, first.directory)
    values = {**JOINED, **(overrides or {})}
    if "master" in values["standalone.processes"]:
        values = {**_own_ports(first, master_port), **values}
    if first.hbase_quorum:
        (gateway_port,) = free_ports(1)
        values = {GATEWAY_PORT: gateway_port, **values}
    joined_settings(first, home, name or "host2", values)
    with gateway_for(first, SystemClock()), _stores_in_use(first) as coordination:
        check_books(first, coordination)
        place = place_of(home, first.directory)
        is_known = name_in(read_config(coordination).hosts, place) is not None
        _refuse_files(home, _OF_A_HOST if is_known else _FRESH_DISK)
        if name is None:
            name = claim_any_name(coordination, place)
        else:
            claim_name(coordination, name, place)
    settings = joined_settings(first, home, name, values)
    write_settings(settings)
    settings.logs_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return settings


def local_hosts(first: Settings, report: Callable[[str], None]) -> list[Settings]:
    """The settings of the hosts to run beside ``first``, as many as ``standalone.hosts`` requires; makes missing ones.
    ``report`` gets a line for each that it makes, and for each that it can't run. Raises TransientError,
    CorruptionError.
    """
    with _stores_in_use(first) as coordination:
        names = _local_names(first, read_config(coordination).hosts)
    wanted = first.standalone.hosts - 1
    for name in names[wanted:]:
        report(f"host {name} is not run, because standalone.hosts is {wanted + 1}; its directory stays")
    found = [_local_host(first, name, report) for name in names[:wanted]]
    for _ in range(wanted - len(names)):
        with _stores_in_use(first) as coordination:
            name = free_name(read_config(coordination).hosts)
        found.append(_local_host(first, name, report))
    return [settings for settings in found if settings is not None]


def local_directory(first: Settings, name: str) -> Path:
    """Directory of a further host that ``standalone`` runs."""
    return first.directory / HOSTS_DIR / name


def _local_names(first: Settings, hosts: Mapping[str, str]) -> list[str]:
    here = (n for n, place in hosts.items() if place == place_of(local_directory(first, n), first.directory))
    return sorted(here, key=lambda name: (len(name), name))


def _local_host(first: Settings, name: str, report: Callable[[str], None]) -> Settings | None:
    directory = local_directory(first, name)
    try:
        if (directory / SETTINGS_FILE).exists():
            return load_settings(directory)
        made = join_cluster(directory, first.directory, name, overrides=LOCAL)
    except BookkeeperError as error:
        report(f"host {name} is not run: {error.message}")
        return None
    report(f"host {name} made in {directory}")
    return made


def _own_ports(first: Settings, master_port: int | None) -> dict[str, Any]:
    free_port, monitor_port = free_ports(2)
    return {
        "master.port": free_port if master_port is None else master_port,
        "monitor.port": monitor_port if first.monitor.port else 0,
    }


@contextmanager
def _stores_in_use(first: Settings) -> Iterator[Coordination]:
    """The coordination store of a cluster; no process repairs the stores meanwhile. Raises TransientError."""
    lock = StoresLock(first.directory)
    try:
        if lock.enter():
            lock.share()
        with closing(open_coordination(first)) as coordination:
            yield coordination
    finally:
        lock.release()


def refuse_place(home: Path, cluster: Path | None = None) -> None:
    """Raise ExistsError for the directory of a host, InvalidInputError for one that can't become it. ``cluster``: the
    directory of the cluster, if the host shares it.
    """
    if (home / SETTINGS_FILE).exists():
        raise ExistsError(f"{home} has a host already; choose another directory, or start it: bookkeeper standalone")
    if cluster is not None and home.is_relative_to(cluster) and cluster / HOSTS_DIR not in home.parents:
        raise InvalidInputError(f"{home} lies in the cluster's directory; choose {cluster / HOSTS_DIR}/NAME or another")
    above = next(path for path in (home, *home.parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InvalidInputError(f"{home} can't hold a host ({above} can't be written); choose another directory")


def _refuse_files(home: Path, allowed: set[str]) -> None:
    if home.is_dir() and {path.name for path in home.iterdir()} - allowed:
        raise ExistsError(f"{home} is not empty; choose an empty directory")
