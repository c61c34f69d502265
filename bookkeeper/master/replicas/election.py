"""The election of the session that leads a tablet with several replicas (E-19, E-22, E-23).

A candidate is a live session whose host is a voter of the row, on the disk that the row names, and holds the state that
the books name. Every other record is in logs, which the leader replays, so any candidate is right; the one with the
newest state has the least to do. The term is the serial of the tablet's row, whichever election chose the leader: two
leaders corrupt nothing (E-20).

There are two elections. In :class:`NewestState` hosts answer the master's questions. In
``coordinated_election`` hosts stand in the coordination store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from bookkeeper.master.index.tablet_replicas import TabletReplica, voters
from bookkeeper.master.replicas.held_states import HeldState, HeldStates, TabletKey
from bookkeeper.model import HostIdentity


class Candidate(Struct, frozen=True):
    """A session that may lead: its newest state, and how many tablets it has."""

    session: str
    host: str
    root: int
    tablets: int


class LeaderElection(Protocol):
    """Knows the hosts that hold a tablet, and chooses its leader. A choice is safe whichever candidate it is.
    Thread-safe.
    """

    def version(self) -> int:
        """Counts the news: equal versions, equal states of all hosts. Raises TransientError."""

    def states_of(self, key: TabletKey, replicas: Sequence[TabletReplica]) -> Mapping[str, HeldState]:
        """By host, what it has said that it holds of the placements of a row. Raises TransientError."""

    def choose(self, key: TabletKey, candidates: Sequence[Candidate]) -> Candidate:
        """One of the candidates for a tablet, of which there is at least one."""


class NewestState(Struct, frozen=True):
    """The default: the master asks, and elects the newest state, then the fewest tablets, then the name of the host."""

    held: HeldStates

    def version(self) -> int:
        """See the protocol."""
        return self.held.version

    def states_of(self, key: TabletKey, replicas: Sequence[TabletReplica]) -> Mapping[str, HeldState]:
        """See the protocol."""
        return self.held.of_tablet(key, replicas)

    def choose(self, key: TabletKey, candidates: Sequence[Candidate]) -> Candidate:  # noqa: ARG002 - every tablet alike
        """See the protocol."""
        return newest(candidates)


def newest(candidates: Sequence[Candidate]) -> Candidate:
    """The newest state, then the fewest tablets, then the name of the host."""
    return min(candidates, key=lambda one: (-one.root, one.tablets, one.host))


def newest_in_order(candidates: Sequence[Candidate], order: Mapping[str, int]) -> Candidate:
    """The newest state, then the first in ``order`` (session to place); one without a place comes last."""
    return min(candidates, key=lambda one: (-one.root, order.get(one.session, 2**63), one.tablets, one.host))


def may_lead(replica: TabletReplica, host: HostIdentity, held: HeldState | None, named: int) -> bool:
    """Whether the host of a live session may lead: a voter (E-23) on the disk that the row names (P10), which holds the
    named state. Before the first state no answer is needed.
    """
    if not replica.is_voter or replica.cell.incarnation != host.incarnation:
        return False
    return named == 0 if held is None else held.has(named)


def candidates(
    replicas: Sequence[TabletReplica],
    sessions: Mapping[str, tuple[str, HostIdentity]],
    held: Mapping[str, HeldState],
    named: int,
    tablets_of: Mapping[str, int],
) -> list[Candidate]:
    """The sessions that may lead now. ``sessions``: host to its live session; ``held``: by host, of the placements of
    the row; ``named``: the state that the books name, 0 = none; ``tablets_of``: session to its number of tablets.
    """
    found = []
    for replica in replicas:
        session, host = sessions.get(replica.host, ("", None))
        state = held.get(replica.host)
        if host is not None and may_lead(replica, host, state, named):
            found.append(
                Candidate(session, replica.host, 0 if state is None else state.root, tablets_of.get(session, 0))
            )
    return found


def why_nobody(
    replicas: Sequence[TabletReplica],
    sessions: Mapping[str, tuple[str, HostIdentity]],
    held: Mapping[str, HeldState],
    named: int,
) -> str:
    """For a person: why no host may lead, with one reason for each voter."""
    reasons = []
    for replica in voters(replicas):
        _, host = sessions.get(replica.host, ("", None))
        state = held.get(replica.host)
        if host is None:
            reasons.append(f"{replica.host} is away")
        elif host.incarnation != replica.cell.incarnation:
            reasons.append(f"the disk of {replica.host} was wiped")
        elif state is None:
            reasons.append(f"{replica.host} has not said what it holds")
        else:
            reasons.append(f"{replica.host} holds {state.root or 'nothing'}")
    return (
        f"no host that may lead holds state {named}, which the books name: {', '.join(reasons)}; start the hosts that "
        "are away"
    )
