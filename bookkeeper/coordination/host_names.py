"""The names of a cluster's hosts: each belongs to one directory for ever, and each directory has one name.

A record is made by a compare-and-set and never deleted. So two hosts that join at the same time get different names,
and a copy of a host's directory can't be taken for the host. A host whose disk was lost gets its name back in its
place.

Hosts that share no directory may have the same path on two machines. So such a host has a random id in a file of its
directory, and its record is found by the id; the path is only shown.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.coordination.config_tree import (
    ClusterConfig,
    HostRecord,
    format_host,
    host_path,
    parse_host,
    read_config,
)
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.host_holders import alive_sessions
from bookkeeper.errors import ConflictError, ExistsError, NotFoundError, RefusedError

PREFIX = "host"
CLAIMS_MAX = 50
"""Joins at the same time that may take the chosen name; then a join gives up with ConflictError."""


def place_of(directory: Path, cluster: Path) -> str:
    """A host's directory in its record: relative to that of the cluster if it lies below it, so that both can move."""
    here, root = os.path.realpath(directory), os.path.realpath(cluster)
    return os.path.relpath(here, root) if here == root or here.startswith(root + os.sep) else here


def directories(cluster: Path, hosts: Mapping[str, str]) -> dict[str, str]:
    """The directory of each host, from the places in their records."""
    return {name: str(cluster / place) for name, place in hosts.items()}


def name_in(hosts: Mapping[str, str], place: str) -> str | None:
    """The name of the host in a place; None if no host was ever there."""
    return next((name for name, known in hosts.items() if known == place), None)


def free_name(hosts: Mapping[str, str]) -> str:
    """The first of ``host2``, ``host3``, ... that no host has."""
    return next(name for n in itertools.count(2) if (name := f"{PREFIX}{n}") not in hosts)


def id_in(ids: Mapping[str, str], host_id: str) -> str | None:
    """The name of the host with an id; None if no host has it."""
    return next((name for name, known in ids.items() if known == host_id), None)


def claim_name(coordination: Coordination, name: str, place: str, host_id: str = "") -> None:
    """Record that the host ``name`` is in ``place``; idempotent. A host with an id is known by it, and may be in
    another place than before. Raises ExistsError when the name belongs to another host, RefusedError when the host has
    another name, ConflictError.
    """
    config = read_config(coordination)
    known = id_in(config.host_ids, host_id) if host_id else name_in(without_id(config), place)
    if known not in (None, name):
        raise RefusedError(f"{place} is host {known} of this cluster for ever, not {name}: set host.name to {known}")
    if known == name and config.hosts[name] == place:
        return
    path, wanted = host_path(name), HostRecord(place, host_id)
    stored = coordination.get(path)
    if stored is not None and known is None:
        _refuse_other(name, parse_host(path, stored.value), wanted)
    try:
        coordination.put(path, format_host(wanted), 0 if stored is None else stored.version)
    except ConflictError:
        owner = coordination.get(path)
        if owner is None:
            raise
        _refuse_other(name, parse_host(path, owner.value), wanted)


def _refuse_other(name: str, other: HostRecord, wanted: HostRecord) -> None:
    if other == wanted:
        return
    where = f"{other.place} of another machine" if other.host_id and other.place == wanted.place else other.place
    raise ExistsError(
        f"{name} is the host in {where} of this cluster for ever, not the one in {wanted.place}; choose another name, "
        "and never copy a host's directory"
    )


def replace_host(coordination: Coordination, name: str, place: str, host_id: str) -> None:
    """Record that the directory of the host ``name`` is lost, and the one in ``place`` with this id has its name from
    now on; idempotent. The old directory does not start any more. Raises NotFoundError for a name without such a host,
    RefusedError while the host lives, ConflictError.
    """
    path, wanted = host_path(name), HostRecord(place, host_id)
    stored = coordination.get(path)
    before = None if stored is None else parse_host(path, stored.value)
    if stored is None or before is None or not before.host_id:
        raise NotFoundError(f"no host {name} has a directory of its own: join without --replace")
    if before == wanted:
        return
    _refuse_alive(coordination, name, before)
    version = coordination.put(path, format_host(wanted), stored.version)
    try:
        _refuse_alive(coordination, name, before)  # it may have begun meanwhile, and have seen its own record
    except RefusedError:
        coordination.put(path, stored.value, version)
        raise


def _refuse_alive(coordination: Coordination, name: str, record: HostRecord) -> None:
    if alive := alive_sessions(coordination, name):
        raise RefusedError(
            f"host {name} in {record.place} is alive (session {', '.join(alive)}): stop it first, or join under "
            "another name"
        )


def without_id(config: ClusterConfig) -> dict[str, str]:
    """The hosts that their directory identifies, with it."""
    return {name: place for name, place in config.hosts.items() if name not in config.host_ids}


def claim_any_name(coordination: Coordination, place: str, host_id: str = "") -> str:
    """The name of the host in ``place``, or with this id, or a new one; records it. Raises ConflictError."""
    for _ in range(CLAIMS_MAX):
        config = read_config(coordination)
        known = id_in(config.host_ids, host_id) if host_id else name_in(without_id(config), place)
        name = known or free_name(config.hosts)
        try:
            claim_name(coordination, name, place, host_id)
        except ExistsError:
            continue
        return name
    raise ConflictError(f"other hosts took {CLAIMS_MAX} names meanwhile; try again")
