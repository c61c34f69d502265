"""The cause of each wait, asked for after each step that may change an answer.

Arrives: the worlds's clusters. Leaves: lines about answers that are wrong: a configured target or an outstanding file
without a cause, a kind without words, and a peer that is blamed while no tserver of the cluster lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bookkeeper.errors import TransientError
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.queries.causes import KINDS, PEER_KINDS
from bookkeeper.master.queries.target_states import all_states
from bookkeeper.master.queries.waits import Waits
from bookkeeper.master.queries.why import Directory, described, unread

if TYPE_CHECKING:
    from tests.support.simulation.cluster import Cluster


class WaitWatch:
    """Remembers for which state of each leader the answers were judged."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[object, ...]] = {}
        self._steps: dict[str, tuple[object, ...]] = {}

    def broken(self, cluster: Cluster) -> list[str]:
        """The faults of the leader's answers now; nothing where they were judged before."""
        leader = cluster.leader()
        if leader is None:
            return []
        over = sum(session.dead for session in cluster.coordination.sessions_by_id.values())
        steps = leader.process, leader.process.steps, over, len(cluster.coordination.sessions_by_id)
        if self._steps.get(cluster.name) == steps:
            return []
        self._steps[cluster.name] = steps
        lead: Leadership = leader.part.leadership
        live = cluster.live_sessions("tserver")
        state = (live, cluster.live_sessions("replay"), *facts_of(lead))
        if self._judged.get(cluster.name) == state:
            return []
        self._judged[cluster.name] = state
        with cluster.world.kernel.aside():
            return [f"why in {cluster.name}: {line}" for line in wrong_answers(cluster, lead, bool(live))]


def facts_of(lead: Leadership) -> Iterator[object]:
    """Everything in a leader's memory that an answer depends on."""
    books, shipping = lead.cycle.books.snapshot, lead.cycle.dispatcher.shipping
    yield id(lead), lead.cycle.health.known_ns is None, lead.cycle.health.failures_in_row
    yield [(entry.directory, entry._packed, entry.safe, id(entry.scope)) for entry in books.files.values()]
    yield [(key, one.finished, one.failures, one.error, one.flight) for key, one in shipping.shipments.items()]
    yield [(peer, retry.failures, retry.last_error) for peer, retry in shipping.peers.items()]
    yield list(books.held_back), list(lead.cycle.recovery.problems), lead.cycle.books.homes_read


def wrong_answers(cluster: Cluster, lead: Leadership, has_tserver: bool) -> Iterator[str]:
    """The faults of the answers of a leader."""
    try:
        now = lead.moment()
    except TransientError:
        return  # it answers nobody now
    directory = Directory.of(cluster.settings, cluster.config())
    waits = Waits()
    if lead.knowledge().age_ms is None:
        waits = unread(directory.targets)
        if {wait.target.key for wait in waits.all()} != {target.key for _, target in directory.targets}:
            yield "a target has no cause before the first read of the books"
    else:
        files, shipping = lead.cycle.books.snapshot.files, lead.cycle.dispatcher.shipping
        tries = lead.settings.replication.quarantine_tries
        for state in waits.counted(all_states(files, shipping, now, lambda _target: True, tries)):
            kind = state.cause.bottom.kind
            if kind not in KINDS or state.cause.kind not in KINDS:
                yield f"{state.file} has the unknown cause {state.cause} for {state.target.key}"
            if not has_tserver and kind in PEER_KINDS:
                yield f"{state.file} blames {state.target.key.cluster} ({kind}), and no tserver lives"
            if state.finished < state.needed and kind == "done":
                yield f"{state.file} waits for {state.target.key} without a cause"
    for cause in described(waits.all(), directory, now):
        if not cause.text or not cause.tables:
            yield f"{cause} says nothing"
