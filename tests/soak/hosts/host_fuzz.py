"""Attacks on clusters of three hosts at the end of a turn, also by a process of the cluster: one that was taken over.

Afterwards all that :meth:`HostRounds.check` asks for holds: no record of others is lost, and their replicas are equal.
"""

from __future__ import annotations

import psutil

from bookkeeper.errors import BookkeeperError
from tests.soak.faults import InvariantError
from tests.soak.fuzz_round import run_fuzz
from tests.soak.hosts.host_rounds import AFTERWARDS, HostRounds

ATTACKS = 2_000
"""On each cluster."""


def run_host_fuzz(rounds: HostRounds, seed: int) -> None:
    """Attack both clusters under load; then check them without the attackers' tables. Raises InvariantError."""
    trios = rounds.trios
    instances = [cluster.settings.instance for cluster in trios.clusters.values()]
    others = frozenset(name for own in instances for name in (own.name, own.instance_id))
    try:
        for cluster in trios.clusters.values():
            with trios.load():
                run_fuzz(cluster, seed, ATTACKS, rounds.trace, others)
                trios.wait_written(AFTERWARDS)
            for table in cluster.client.tables.list():
                if table.name not in trios.tables:
                    cluster.client.tables.delete(table.name)
        rounds.check()
    except (BookkeeperError, AssertionError, psutil.Error) as error:
        raise InvariantError(f"fuzz seed {seed}: {type(error).__name__}: {error}") from error
