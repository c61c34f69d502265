"""This host stands for the lead of each tablet of which it holds a replica, in the coordination store (E-19).

Once a second the candidacies are compared with those that were written last, and all changes are one write: so a host
with a thousand replicas costs at most one write a second, and none while no state is made. A candidacy that lags behind
names too few states, never too many: states stay until the books name a later one.
"""

from __future__ import annotations

import logging

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.tablet_candidates import TabletCandidate, election_of
from bookkeeper.errors import TransientError
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.wire_forms import replica_info

LOG = logging.getLogger(__name__)

INTERVAL_MS = 1_000.0
"""ms between two comparisons."""


class Candidacies:
    """Works in a thread of its own."""

    def __init__(
        self, held: HeldReplicas, coordination: Coordination, session: Session, clock: Clock, die: Die
    ) -> None:
        self._held = held
        self._coordination = coordination
        self._session = session
        self._known: dict[ReplicaKey, tuple[Manifest, bytes]] = {}
        self._written: dict[str, bytes] | None = None
        self._thread = BackgroundThread("candidacies", clock, die)

    def stand(self) -> None:
        """Write the candidacies if one has changed. An error is logged, and the next call tries again."""
        manifests = {held.key: held.manifest for held in self._held.all()}
        self._known = {key: self._candidacy(key, manifest) for key, manifest in manifests.items()}
        wanted = {election_of(key.table_id, key.directory): raw for key, (_, raw) in self._known.items()}
        if wanted == self._written:
            return
        try:
            self._coordination.campaign(self._session, wanted)
        except TransientError as error:
            LOG.warning("the candidacies of this host are not written now: %s", error.message)
            return
        self._written = wanted

    def _candidacy(self, key: ReplicaKey, manifest: Manifest) -> tuple[Manifest, bytes]:
        known = self._known.get(key)
        return known if known is not None and known[0] is manifest else (manifest, candidate_of(manifest).encode())

    # ---- the thread

    def start(self) -> None:
        """Stand from now on."""
        self.stand()
        self._thread.start(self.stand, INTERVAL_MS)

    def close(self) -> None:
        """End the thread; the candidacies end with the session."""
        self._thread.close()


def candidate_of(manifest: Manifest) -> TabletCandidate:
    """The candidacy for a tablet. Pure."""
    info = replica_info(manifest, with_segments=False)
    placed = info.placement
    return TabletCandidate(placed.host, placed.placement, placed.incarnation, info.root or 0, info.complete)
