"""The names of a cluster's hosts: each belongs to one directory for ever, and each directory has one name.

A record is made by a compare-and-set and never deleted. So two hosts that join at the same time get different names,
and a copy of a host's directory can't be taken for the host. A host whose disk was lost gets its name back in its
place.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.coordination.config_tree import format_host, host_path, parse_host, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import ConflictError, ExistsError, RefusedError

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


def claim_name(coordination: Coordination, name: str, place: str) -> None:
    """Record that the host ``name`` is in ``place``; idempotent. Raises ExistsError when the name belongs to another
    place, RefusedError when the place has another name.
    """
    hosts = read_config(coordination).hosts
    if hosts.get(name) == place:
        return
    known = name_in(hosts, place)
    if known is not None:
        raise RefusedError(f"{place} is host {known} of this cluster for ever, not {name}: set host.name to {known}")
    try:
        coordination.put(host_path(name), format_host(place), 0)
    except ConflictError:
        owner = coordination.get(host_path(name))
        if owner is None or parse_host(host_path(name), owner.value) != place:
            where = "another directory" if owner is None else parse_host(host_path(name), owner.value)
            raise ExistsError(
                f"{name} is the host in {where} of this cluster for ever, not the one in {place}; choose another name, "
                "and never copy a host's directory"
            ) from None


def claim_any_name(coordination: Coordination, place: str) -> str:
    """The name of the host in ``place``, or a new one; records it. Raises ConflictError."""
    for _ in range(CLAIMS_MAX):
        hosts = read_config(coordination).hosts
        name = name_in(hosts, place) or free_name(hosts)
        try:
            claim_name(coordination, name, place)
        except ExistsError:
            continue
        return name
    raise ConflictError(f"other hosts took {CLAIMS_MAX} names meanwhile; try again")
