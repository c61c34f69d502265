"""The root logs of the records that each log of this cluster may forward (rule R22).

Arrives: open and sealed logs. Leaves: a set of root logs for each, read from block headers. Only blocks with block
targets count, because no peer gets the others. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Container, Mapping

from msgspec import Struct

from bookkeeper.errors import CorruptionError, IncompatibleError, NotFoundError
from bookkeeper.origins import RootLog, root_of
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import block_origins_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.wal_view import WalView

LOG = logging.getLogger(__name__)


class _LogRoots(Struct, frozen=True):
    """The root logs of the blocks before ``position``, where the block of ``next_offset`` begins. ``whole``: of all."""

    roots: frozenset[RootLog] = frozenset()
    next_offset: int = 1
    position: int | None = None
    whole: bool = False


def handed_on(header: BlockHeader) -> frozenset[RootLog]:
    """The root logs that a peer learns with a block: its records were first written there, or it claims some of them. A
    received block without block origins counts for the log that brought it; a block written here has no root log.
    """
    if not header.HasField("origin") or not header.block_targets:
        return frozenset()
    own = root_of(stream_from_pb(header.origin.stream))
    block_origins = block_origins_from_pb(header.block_origins, own)
    claimed = frozenset(claim.root.log for claim in block_origins.claims)
    return claimed | (frozenset(root.log for root, _ in block_origins.records) or frozenset((own.log,)))


class OriginMemory(Struct, frozen=True):
    """Shared values of this package: the index, this cluster's instance, and ``tserver.paths_apart_ms``."""

    index: OriginIndex
    own_instance_id: str
    paths_apart_ms: float


class OriginIndex:
    """The root logs by log; reads each block once."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._lock = threading.Lock()
        self._known: dict[str, _LogRoots] = {}

    def of(self, logs: Collection[str]) -> Mapping[str, frozenset[RootLog] | None]:
        """For each of these logs, its present root logs. A deleted log keeps those that were read; a damaged log gets
        None, because it may hold records of any root log. Raises TransientError.
        """
        with self._lock:
            return {name: self._read(name) for name in logs}

    def retain(self, logs: Container[str]) -> None:
        """Drop all other logs: they are deleted."""
        with self._lock:
            self._known = {name: read for name, read in self._known.items() if name in logs}

    def _read(self, name: str) -> frozenset[RootLog] | None:
        known = self._known.get(name, _LogRoots())
        if known.whole:
            return known.roots
        try:
            return self._read_further(name, known)
        except NotFoundError:
            return known.roots
        except (CorruptionError, IncompatibleError) as error:
            LOG.info("%s counts as if it held records of every log: %s", name, error.message)
            return None

    def _read_further(self, name: str, known: _LogRoots) -> frozenset[RootLog]:
        view = WalView(self._volume, name)
        roots, next_offset = set(known.roots), known.next_offset
        for at in view.headers(next_offset, known.position):
            roots |= handed_on(at.header)
            next_offset = at.last_offset + 1
        position = view.end_position if next_offset > 1 else None
        self._known[name] = read = _LogRoots(frozenset(roots), next_offset, position, view.seal is not None)
        return read.roots
