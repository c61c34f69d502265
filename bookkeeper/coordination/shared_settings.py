"""The settings that all hosts of a cluster have in common, in the configuration tree.

Hosts that share no directory can't read them from that of the first host. The first start of a cluster in ZooKeeper
records them, a new host begins with them, and a process with others does not start: a host with a shorter lease, for
example, takes the living sessions of the others for dead. The record changes by a command alone, while no process runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from bookkeeper.config.file import all_values, different, shared_values, unlike
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import (
    ELECTION_PATH,
    HOST_SETTINGS,
    SETTINGS_PATH,
    format_election,
    format_settings,
    host_settings_path,
    parse_settings,
    path_name,
    read_config,
)
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.fixed_election import agree_on_election
from bookkeeper.errors import ConflictError, RefusedError

KINDS = ("master", "tserver", "replay")
"""Kinds of sessions."""

APART = ("replicas.election",)
"""Shared settings with a record of their own, which clusters with an embedded store have, too."""

FIXED = ("instance.instance_id", "coordination.store_id", "storage.volume")
"""Shared settings of a cluster's whole life: files lie where ``storage.volume`` was when they were made."""


def recorded_values(settings: Settings) -> dict[str, object]:
    """What these settings would record."""
    return {name: value for name, value in shared_values(settings).items() if name not in APART}


def agree_on_settings(coordination: Coordination, settings: Settings) -> None:
    """Record the shared settings in ZooKeeper, unless that is done; idempotent. Hosts with an embedded store read them
    from one directory. Raises RefusedError when the cluster has others.
    """
    if settings.coordination_dir is not None:
        return
    wanted = recorded_values(settings)
    recorded = read_config(coordination).settings
    if recorded is None:
        with suppress(ConflictError):  # another host was first
            coordination.put(SETTINGS_PATH, format_settings(wanted), 0)
        recorded = read_config(coordination).settings or {}
    if found := other_values(settings, recorded):
        raise RefusedError(
            f"{settings.directory} has other settings than the cluster: {'; '.join(found)}; correct them here, or stop "
            "all hosts, set the same in the bookkeeper.toml of each, and then: bookkeeper config share DIR"
        )


def record_settings(coordination: Coordination, settings: Settings) -> None:
    """Record in ZooKeeper the settings with which this host starts, for those who compare hosts; idempotent."""
    if settings.coordination_dir is not None:
        return
    path, value = host_settings_path(settings.host.name), format_settings(all_values(settings))
    stored = coordination.get(path)
    if stored is None or stored.value != value:
        coordination.put(path, value)


def unlike_hosts(coordination: Coordination, settings: Settings) -> dict[str, list[str]]:
    """The settings in which other hosts differed from these when they started last, a line for each, by host. Those of
    one host, such as its addresses, are not compared.
    """
    own, found = all_values(settings), {}
    for path, stored in coordination.children(HOST_SETTINGS).items():
        host = path_name(path, HOST_SETTINGS)
        if host != settings.host.name and (lines := unlike(own, parse_settings(path, stored.value))):
            found[host] = lines
    return found


def agree_on_all_settings(coordination: Coordination, settings: Settings) -> None:
    """As :func:`agree_on_settings`, and :func:`agree_on_election`."""
    agree_on_election(coordination, settings.replicas.election)
    agree_on_settings(coordination, settings)


def agree_in_session(session: Session, coordination: Coordination, settings: Settings) -> None:
    """The same in a session that was just opened: :func:`replace_settings` that did not see the session came before.
    Ends the session when it raises.
    """
    try:
        agree_on_all_settings(coordination, settings)
    except BaseException:
        session.close()
        raise


def other_values(settings: Settings, recorded: Mapping[str, object]) -> list[str]:
    """A line for each setting in which a host differs from the cluster."""
    return different(recorded_values(settings), recorded)


def replace_settings(coordination: Coordination, settings: Settings) -> list[str]:
    """Record the shared settings of a host as those of the cluster, the election among them, in one step. Returns a
    line for each that changes. Raises RefusedError while a process of the cluster runs, and for another value of one
    of :data:`FIXED`.
    """
    config, election = read_config(coordination), settings.replicas.election
    wanted, recorded = recorded_values(settings), config.settings or {}
    if fixed := different({name: wanted[name] for name in FIXED}, recorded):
        raise RefusedError(f"{'; '.join(fixed)}: that never changes; correct it in {settings.directory}")
    changed = different(wanted, recorded)
    if config.election != election:
        changed.append(f"replicas.election is {election} here, and {config.election} there")
    if changed:
        coordination.put_while_idle({SETTINGS_PATH: format_settings(wanted), ELECTION_PATH: format_election(election)})
    return changed
