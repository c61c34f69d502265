"""The kinds of turns of a soak with hosts: where logs lie, who elects leaders, and which tables wait for a lost log.

The number of a round decides its kind, so that any round can be repeated alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HOST_TURN = 50
"""Rounds with the same two clusters of three hosts."""

FAILOVER_MS = 2_000
DELETES_KEPT_MS = 24 * 3_600_000
"""A peer that compacts a delete away shows an older value that comes from a log that was given up (table.failover)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """``logs`` and ``election``: the settings of both clusters. ``failover``: tables that go on without the logs of a
    host that is away, where logs lie on hosts.
    """

    logs: Literal["shared", "host"] = "shared"
    election: Literal["master", "coordination"] = "master"
    failover: frozenset[str] = frozenset()

    @property
    def are_logs_on_hosts(self) -> bool:
        """Whether a host that is away has the only copy of the newest records."""
        return self.logs == "host"

    @property
    def settings(self) -> dict[str, object]:
        """Settings of each cluster."""
        return {"storage.logs": self.logs, "replicas.election": self.election}

    def properties(self, table: str) -> dict[str, str]:
        """Properties of a table on each cluster."""
        properties = {"table.flush.interval_ms": "2000"}
        if self.failover:
            properties["table.compaction.deletes_kept_ms"] = str(DELETES_KEPT_MS)
        if table in self.failover:
            properties["table.failover"] = str(FAILOVER_MS)
        return properties

    def __str__(self) -> str:
        failover = f", {' and '.join(sorted(self.failover))} go on without a host's logs" if self.failover else ""
        return f"storage.logs = {self.logs}, replicas.election = {self.election}{failover}"


TURNS = (
    Turn(),
    Turn(logs="host", failover=frozenset({"links", "mix"})),
    Turn(election="coordination"),
    Turn(logs="host", election="coordination", failover=frozenset({"mix"})),
)


def turn_of(number: int) -> Turn:
    """The kind of the turn to which a round belongs."""
    return TURNS[(number - 1) // HOST_TURN % len(TURNS)]
