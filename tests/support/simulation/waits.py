"""The cause of each wait, asked for after each step that may change an answer.

Arrives: the worlds's clusters. Leaves: lines about answers that are wrong: a configured target or an outstanding file
without a cause, a kind without words, a peer that is blamed while no tserver of the cluster lives, and a log that is
called done while its target lacks a record by the ledger. The leader answers for the records that the books named
before its last complete read, and for all durable ones in the log of a dead tserver: their number may be unknown, but
then the log is not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bookkeeper.errors import TransientError
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.queries.causes import KINDS, PEER_KINDS, Now
from bookkeeper.master.queries.target_states import TargetState, all_states
from bookkeeper.master.queries.waits import Waits
from bookkeeper.master.queries.why import Directory, described, unread
from bookkeeper.model import TargetKey
from bookkeeper.tserver.tablets.given_up import session_directory
from tests.support.simulation.ledger import LoggedFile
from tests.support.simulation.tablets import Entry

if TYPE_CHECKING:
    from tests.support.simulation.cluster import Cluster


class WaitWatch:
    """Remembers for which state of each leader the answers were judged."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[object, ...]] = {}
        self._steps: dict[str, tuple[object, ...]] = {}
        self._sessions: dict[str, tuple[int, int]] = {}

    def broken(self, cluster: Cluster) -> list[str]:
        """The faults of the leader's answers now; nothing where they were judged before."""
        known = cluster.coordination.census()
        stepped = cluster.world.kernel.stepped
        if stepped is not None and stepped.cluster != cluster.name and self._sessions.get(cluster.name) == known:
            return []  # a step of another cluster changes no answer
        self._sessions[cluster.name] = known
        leader = cluster.leader()
        if leader is None:
            return []
        steps = leader.process, leader.process.steps, *known
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


def overlooked(
    cluster: Cluster, file: LoggedFile, target: TargetKey, known_ns: int, has_lost_owner: bool
) -> list[bytes]:
    """The records of a log that a target lacks, and that the leader of the cluster has to know of."""
    ledger, told = cluster.world.ledger, cluster.world.told
    peer = cluster.targets().get(target)
    if peer is None:  # it is not configured any more
        return []

    def is_excused(name: str, key: TargetKey, first: int, entries: Sequence[Entry]) -> bool:
        block = next(block for block in file.blocks if block.first == first)
        since_ns = told.since_ns(block)
        is_known = has_lost_owner or (since_ns is not None and since_ns < known_ns)
        is_given_up = (block.tablet, session_directory(name)) in ledger.given_up
        return not is_known or is_given_up or ledger.set_aside.may_be_passed(name, key, first, entries)

    return ledger.missing_at(file, target, peer, file.durable, is_excused)


def wrongly_done(cluster: Cluster, lead: Leadership, state: TargetState, now: Now) -> Iterator[str]:
    """The log is called done, and its target lacks a record."""
    file, key = cluster.world.ledger.files.get(state.file), state.target.key
    known_ns = lead.cycle.health.known_ns or 0
    missing = [] if file is None else overlooked(cluster, file, key, known_ns, now.has_lost_owner(state.file))
    if missing:
        yield f"{state.file} is done for {key}, which lacks {missing}"


def overlooked_files(cluster: Cluster, lead: Leadership) -> Iterator[str]:
    """The logs with records that the books named, that a target lacks, and that the leader does not count at all."""
    known_ns = lead.cycle.health.known_ns or 0
    counted = {entry.name() for entry in lead.cycle.books.snapshot.files.values()}
    for name, file in cluster.world.ledger.files.items():
        if file.instance == cluster.instance and name not in counted:
            for target in cluster.targets():
                missing = overlooked(cluster, file, target, known_ns, has_lost_owner=False)
                if missing:
                    yield f"{name} is not counted for {target}, which lacks {missing}"


def facts_of(lead: Leadership) -> Iterator[object]:
    """Everything in a leader's memory that an answer depends on."""
    books, shipping = lead.cycle.books.snapshot, lead.cycle.dispatcher.shipping
    yield id(lead), lead.cycle.health.known_ns, lead.cycle.health.failures_in_row
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
            if kind == "done":
                yield from wrongly_done(cluster, lead, state, now)
        yield from overlooked_files(cluster, lead)
    for cause in described(waits.all(), directory, now):
        if not cause.text or not cause.tables:
            yield f"{cause} says nothing"
