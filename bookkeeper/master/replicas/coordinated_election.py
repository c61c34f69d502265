"""The election through coordination, for each tablet (E-19): hosts stand in the store, in order, while they live.

The newest state wins, then the candidacy that came first. Anybody who reads the store comes to the same result. The
candidacies are read only when one has changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.coordination.coordination_protocol import Candidacy, Coordination
from bookkeeper.coordination.tablet_candidates import TabletCandidate, election_of
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.election import Candidate, newest_in_order
from bookkeeper.master.replicas.held_states import HeldState, TabletKey, is_of

LOG = logging.getLogger(__name__)


class CoordinatedElection(Struct):
    """See :class:`bookkeeper.master.replicas.election.LeaderElection`."""

    coordination: Coordination
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: tuple[int, Mapping[str, Sequence[Candidacy]]] = (-1, {})

    def version(self) -> int:
        """See the protocol."""
        return self.coordination.candidates_version()

    def states_of(self, key: TabletKey, replicas: Sequence[TabletReplica]) -> Mapping[str, HeldState]:
        """See the protocol."""
        found = {}
        for candidacy in self._candidacies(key):
            candidate = _decoded(key, candidacy)
            held = None if candidate is None else held_of(candidate)
            if candidate is not None and held is not None:
                found[candidate.host] = held
        return {one.host: found[one.host] for one in replicas if one.host in found and is_of(found[one.host], one)}

    def choose(self, key: TabletKey, candidates: Sequence[Candidate]) -> Candidate:
        """See the protocol."""
        return newest_in_order(candidates, {one.session_id: one.order for one in self._candidacies(key)})

    def _candidacies(self, key: TabletKey) -> Sequence[Candidacy]:
        version = self.coordination.candidates_version()
        with self._lock:
            if self._read[0] != version:
                self._read = version, self.coordination.candidates()
            return self._read[1].get(election_of(*key), ())


def _decoded(key: TabletKey, candidacy: Candidacy) -> TabletCandidate | None:
    """A candidacy, or None for one that can't be read: it counts for nothing, and others may lead."""
    try:
        return TabletCandidate.decode(candidacy.value)
    except CorruptionError as error:
        LOG.error("the candidacy of %s for %s counts for nothing: %s", candidacy.session_id, key, error.message)
        return None


def held_of(candidate: TabletCandidate) -> HeldState:
    """The states of a candidate."""
    return HeldState(candidate.placement, candidate.incarnation, candidate.root, frozenset(candidate.complete))
