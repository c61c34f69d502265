"""Notices a peer that came back in an older state, for example from a backup.

Arrives: the configured peers, and whether records were shipped to them. Leaves: a :class:`OlderState` for each peer
that forgot records which it had acknowledged, and that no target sends again.

The source leaves a number at the peer, the time of the call, and the peer answers with the number before. A backup of
the peer has the number of its own time. So when the answer is lower than a number that the peer confirmed, the peer
lacks records of the time between the two. No offset shows that: a peer believes the acked offset of a message for the
tablets without records of the stream (R19). The finding is durable before the number at the peer rises again; it ends
with the targets that it is about: an operator disables them, enables new ones and copies the tables.

A lane for each peer makes the calls, so a peer that does not answer delays no cycle. It also finds the place in each
log of that time: the first record that was written after it, from the write times in the block headers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.older_peers import CONFIRMED, CONFIRMED_TARGETS, NUMBER_MAX, lost_since
from bookkeeper.errors import BookkeeperError, InvalidInputError, PermanentError
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Shipped
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.storage.volume.volume_protocol import ReadableVolume
from bookkeeper.storage.wal.reading.block_reader import read_headers

LOG = logging.getLogger(__name__)

BUSY_MS, IDLE_MS = 1_000, 10_000
"""The pause between two calls to a peer that gets records, and to one that gets none or refuses the call."""

LOOK_MS = 5_000
"""The pause between two looks for peers that lack records: each look reads two numbers of each peer."""

OLDER, OLDER_TARGETS = "check-in:older:", "check-in:older-targets:"
"""Names of numbers in the coordination store, before the peer's instance id: the number that the peer had when it was
older, and the greatest incarnation of a target at the check-in before. The numbers of confirmed check-ins, and of what
tservers found, are in ``bookkeeper.coordination.older_peers``.
"""


LEFT = "check-in:left:"
"""Name of a number in the peer's coordination store, before the source's instance id."""

HEADERS_MAX = 500_000
"""Most headers of a log that are read for the place from which on a peer lacks records."""


class OlderState(Struct, frozen=True):
    """A peer lacks records that it acknowledged after ``since_ms``. ``logs``: the outstanding logs of that time, the
    newest of each tserver, each with the offset of the first record written after it (0 = none); None = not known yet.
    ``incarnation``: the greatest of a target that this is about.
    """

    cluster: str
    since_ms: int
    logs: tuple[tuple[str, int | None], ...]
    incarnation: int


class CheckIns(Struct):
    """The calls to all peers, for one reign."""

    coordination: Coordination
    peers: PeerMasters
    lanes: KeyedExecutors
    clock: Clock
    logs: ReadableVolume
    _begun_ns: dict[str, int] = field(default_factory=dict)
    _looked_ns: int | None = None
    _shipped: dict[str, int] = field(default_factory=dict)
    _refusing: set[str] = field(default_factory=set)
    _offsets: dict[tuple[str, int], int | None] = field(default_factory=dict)
    """Of a log and a time: the first record written after it, None while the lane looks for it."""

    @staticmethod
    def lane(cluster: str) -> str:
        """The lane of a peer."""
        return f"check-in-{cluster}"

    def begin(self, config: ClusterConfig, shipped: Mapping[str, Shipped], files: Outstanding) -> None:
        """Call the peers that are due, and look for the places in logs; does not wait for them."""
        now_ns = self.clock.boot_ns()
        for cluster, incarnation in newest_targets(config).items():
            peer = config.clusters.get(cluster)
            if peer is None or split_quorum(peer.quorum)[0] != BUILT_IN:
                continue
            records = shipped[cluster].records if cluster in shipped else 0
            is_busy = records != self._shipped.get(cluster) and cluster not in self._refusing
            pause_ms = BUSY_MS if is_busy else IDLE_MS
            begun_ns = self._begun_ns.get(cluster)
            if begun_ns is None or now_ns - begun_ns >= pause_ms * 1_000_000:
                self._begun_ns[cluster], self._shipped[cluster] = now_ns, records
                self.lanes.submit(self.lane(cluster), partial(self.check_in, peer, incarnation))
        if self._looked_ns is None or now_ns - self._looked_ns >= LOOK_MS * 1_000_000:
            self._looked_ns = now_ns
            self._look_into_logs(config, files)

    def _look_into_logs(self, config: ClusterConfig, files: Outstanding) -> None:
        for state in self.older_states(config, files):
            for name, _ in state.logs:
                if (name, state.since_ms) not in self._offsets:
                    self._offsets[name, state.since_ms] = None
                    self.lanes.submit(self.lane(state.cluster), partial(self.find_offset, name, state.since_ms))

    def find_offset(self, name: str, since_ms: int) -> None:
        """Look for the place in a log."""
        try:
            self._offsets[name, since_ms] = first_written_after(self.logs, name, since_ms)
        except (BookkeeperError, OSError) as error:
            LOG.info("which record of %s was written first after %d is unknown: %s", name, since_ms, error)

    def check_in(self, peer: PeerCluster, incarnation: int) -> None:
        """One call. ``incarnation``: the greatest of a target there."""
        known = self.coordination.number(CONFIRMED + peer.instance_id)
        number = max(known + 1, self.clock.wall_ms())
        try:
            found = self.peers.check_in(peer.alias, peer.quorum, peer.instance_id, known, number)
            if found < known:
                self._note_older(peer, found, known)
                self.peers.check_in(peer.alias, peer.quorum, peer.instance_id, 0, number)
        except BookkeeperError as error:
            LOG.info("whether %s came back in an older state is unknown: %s", peer.alias, error.message)
            if isinstance(error, PermanentError):
                self._refusing.add(peer.alias)
            return
        self._refusing.discard(peer.alias)
        self.coordination.raise_number(CONFIRMED_TARGETS + peer.instance_id, incarnation)
        self.coordination.raise_number(CONFIRMED + peer.instance_id, number)

    def _note_older(self, peer: PeerCluster, found: int, known: int) -> None:
        LOG.error("%s came back in an older state: its number is %d, and it confirmed %d", peer.alias, found, known)
        targets = self.coordination.number(CONFIRMED_TARGETS + peer.instance_id)
        self.coordination.raise_number(OLDER + peer.instance_id, max(found, 1))
        self.coordination.raise_number(OLDER_TARGETS + peer.instance_id, targets)

    def _findings(self, peer: PeerCluster) -> Iterator[tuple[int, int]]:
        """The times since when a peer lacks acknowledged records, each with the greatest incarnation of a target that
        it is about: by a check-in, and by the last block that it acknowledged to a tserver.
        """
        since_ms = self.coordination.number(OLDER + peer.instance_id)
        if since_ms:
            yield since_ms, self.coordination.number(OLDER_TARGETS + peer.instance_id)
        lost = lost_since(self.coordination, peer.instance_id)
        if lost is not None:
            yield lost

    def older_states(self, config: ClusterConfig, files: Outstanding) -> Iterator[OlderState]:
        """The peers that lack acknowledged records of a target that is configured."""
        oldest = oldest_targets(config)
        for cluster, peer in sorted(config.clusters.items()):
            if cluster not in oldest:
                continue
            found = [one for one in self._findings(peer) if oldest[cluster] <= one[1]]
            if found:
                since_ms, incarnation = min(found)[0], max(one[1] for one in found)
                names = logs_at(files, cluster, since_ms)
                logs = tuple((name, self._offsets.get((name, since_ms))) for name in names)
                yield OlderState(cluster, since_ms, logs, incarnation)


def answer(coordination: Coordination, source: str, known: int, number: int) -> int:
    """At the peer: the number that the source left here last. A lower one than ``known`` stays, until the source has
    remembered that this cluster is an older one. Raises InvalidInputError.
    """
    if not 0 <= known <= NUMBER_MAX or not 0 <= number <= NUMBER_MAX:
        raise InvalidInputError(f"{known} and {number} are no numbers of a check-in: 0 to {NUMBER_MAX}")
    found = coordination.number(LEFT + source)
    if found >= known:
        coordination.raise_number(LEFT + source, number)
    return found


def first_written_after(logs: ReadableVolume, name: str, since_ms: int) -> int | None:
    """The first record of a log in a block that was written after a time; 0 = all were written before, None = it is
    not among the first :data:`HEADERS_MAX` blocks. Raises the errors of :func:`read_headers`.
    """
    headers = (at.header for at in read_headers(logs, name))
    for header in islice(headers, HEADERS_MAX):
        if header.write_time_ms > since_ms:
            return header.first_offset
    return 0 if next(headers, None) is None else None


def newest_targets(config: ClusterConfig) -> dict[str, int]:
    """The greatest incarnation of a target at each peer."""
    found: dict[str, int] = {}
    for table in config.tables.values():
        for target in table.targets:
            found[target.key.cluster] = max(found.get(target.key.cluster, 0), target.key.incarnation)
    return found


def oldest_targets(config: ClusterConfig) -> dict[str, int]:
    """The least incarnation of a target at each peer."""
    found: dict[str, int] = {}
    for table in config.tables.values():
        for target in table.targets:
            key = target.key
            found[key.cluster] = min(found.get(key.cluster, key.incarnation), key.incarnation)
    return found


def logs_at(files: Outstanding, cluster: str, at_ms: int) -> tuple[str, ...]:
    """The outstanding logs for a peer that were written at a time: of each directory the newest one made before."""
    newest: dict[bytes, tuple[int, str]] = {}
    for entry in files.values():
        created_ms = entry.created_ms()
        if cluster in entry.scope.clusters and created_ms <= at_ms:
            known = newest.get(entry.directory)
            if known is None or known[0] < created_ms:
                newest[entry.directory] = created_ms, entry.name()
    return tuple(sorted(name for _, name in newest.values()))
