"""Which other clusters' logs the records were first written to that each log of this one may hand on (rule R22).

Arrives: logs, being written or sealed. Leaves: a set for each, read from block headers. Survives a crash: nothing; it
is read again. Only what is stamped for somebody counts, for nobody gets the rest. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass

from bookkeeper.errors import CorruptionError, IncompatibleError, NotFoundError
from bookkeeper.origins import RootLog, root_of
from bookkeeper.storage.wal import BlockHeader, WalView, stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import block_origins_from_pb

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """What was found in front of ``position``, which is where the block of ``next_offset`` begins."""

    roots: frozenset[RootLog] = frozenset()
    next_offset: int = 1
    position: int | None = None
    whole: bool = False


def handed_on(header: BlockHeader) -> frozenset[RootLog]:
    """The logs that whoever gets a block from here is told of: its records were first written there, or it claims some
    of them. A block that does not say it counts for the log that brought it; one that was not received has no other.
    """
    if not header.HasField("origin") or not header.block_targets:
        return frozenset()
    own = root_of(stream_from_pb(header.origin.stream))
    block_origins = block_origins_from_pb(header.block_origins, own)
    claimed = frozenset(claim.root.log for claim in block_origins.claims)
    return claimed | (frozenset(root.log for root, _ in block_origins.records) or frozenset((own.log,)))


@dataclass(frozen=True, slots=True)
class OriginMemory:
    """Shared values of this room: the index, this cluster's instance, and how long several paths may be apart
    (``tserver.paths_apart_ms``).
    """

    index: OriginIndex
    own_instance_id: str
    paths_apart_ms: float


class OriginIndex:
    """Reads each log once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Read] = {}

    def of(self, logs: Collection[str]) -> Mapping[str, frozenset[RootLog] | None]:
        """For each of these logs, that of now; nothing of one that is not there any more, None for one that is damaged:
        it may hold anything. Raises TransientError.
        """
        with self._lock:
            return {uri: self._read(uri) for uri in logs}

    def retain(self, logs: Container[str]) -> None:
        """All others are gone."""
        with self._lock:
            self._known = {uri: read for uri, read in self._known.items() if uri in logs}

    def _read(self, uri: str) -> frozenset[RootLog] | None:
        known = self._known.get(uri, _Read())
        if known.whole:
            return known.roots
        try:
            return self._read_on(uri, known)
        except NotFoundError:
            return known.roots
        except (CorruptionError, IncompatibleError) as error:
            LOG.info("%s counts as if it held records of every log: %s", uri, error.message)
            return None

    def _read_on(self, uri: str, known: _Read) -> frozenset[RootLog]:
        view = WalView(uri)
        roots, next_offset = set(known.roots), known.next_offset
        for at in view.headers(next_offset, known.position):
            roots |= handed_on(at.header)
            next_offset = at.last_offset + 1
        position = view.end_position if next_offset > 1 else None
        self._known[uri] = read = _Read(frozenset(roots), next_offset, position, view.seal is not None)
        return read.roots
