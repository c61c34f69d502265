"""The election of leaders that a cluster has fixed: all its processes use the same (``replicas.election``).

Each host has a settings file of its own, and a process reads it when it starts. A host that does not stand, while the
master elects among those that stand, never leads, and its tablets may have no leader. So the first start of a cluster
records the election in the configuration tree, and a process with another one does not start. A start while no process
of the cluster runs may record another one. With a store in ZooKeeper hosts of other machines may run: there a start
changes nothing, and a command does (``shared_settings``).
"""

from __future__ import annotations

from contextlib import suppress

from bookkeeper.coordination.config_tree import ELECTION_PATH, format_election, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import ConflictError, RefusedError


def replace_election(coordination: Coordination, election: str) -> None:
    """Record how this cluster elects leaders from now on; idempotent. No process of the cluster may run."""
    if read_config(coordination).election != election:
        coordination.put(ELECTION_PATH, format_election(election))


def agree_on_election(coordination: Coordination, election: str) -> None:
    """Record how this cluster elects leaders, unless that is recorded; idempotent. Raises RefusedError when the cluster
    elects in another way.
    """
    if read_config(coordination).election is None:
        with suppress(ConflictError):  # another process was first
            coordination.put(ELECTION_PATH, format_election(election), 0)
    recorded = read_config(coordination).election
    if recorded != election:
        raise RefusedError(
            f"replicas.election is {election}, and the cluster elects leaders by {recorded}; set it to {recorded}, "
            "or stop all hosts, set the same in the bookkeeper.toml of each, run bookkeeper config share DIR if the "
            "coordination store is in ZooKeeper, and start them again"
        )
