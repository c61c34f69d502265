"""Imported segments become part of a tablet: at once, once, and whatever is cut where.

Arrives: the master's order: files that lie on disk, and the stream that stands for their import. Leaves: links in the
tablet's directory, and one row put of the tablet: the segments' cells, and a state that names them and holds the stream
(rule R18: to know, to apply and to remember is one durable step). Survives a crash: the put, or nothing but links that
nobody names. An order that is repeated finds the stream and changes nothing, also after the segments were compacted
away. One that comes when the import is over is refused by the books, like a message of a stream that is over (R20).

Neither commits nor scans wait: ``flush_lock`` is held for the links and the put. Sources: issue "a whole tablet store",
bulk import; rules R1, R18 and R20.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace

from bookkeeper.errors import BookkeeperError, InvalidInputError, NotServingError, RefusedError, UnavailableError
from bookkeeper.metadata.table import MetadataTable
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.messages import AdoptRequest
from bookkeeper.storage.bulk import link_segments, segment_ref
from bookkeeper.storage.tablet import SegmentRef
from bookkeeper.storage.tablet.segment_writer import SegmentOps
from bookkeeper.storage.wal import DraftBlock, Durability, PlacedBlock, path_of
from bookkeeper.tserver.commit import CommitPath, was_forgotten
from bookkeeper.tserver.flusher import Flusher
from bookkeeper.tserver.loading import first_flush_id
from bookkeeper.tserver.received_index import ReceivedIndex
from bookkeeper.tserver.registry import Registry
from bookkeeper.tserver.segments import merged_state, segments_put
from bookkeeper.tserver.tablet import ServedTablet
from bookkeeper.tserver.threads import Die, Persistence

LOG = logging.getLogger(__name__)

IMPORTED = 1
"""High-water of an import's stream: all of it is here."""


def adopted_state(
    before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], key: StreamKey
) -> FlushState:
    """The state behind an import: what was known before, more segments, and that the import was taken (R18)."""
    compacted = 0 if before is None else before.compacted
    state = merged_state(before, flush_id, segments, compacted)
    return replace(state, high_water={**state.high_water, key: IMPORTED})


def is_taken(tablet: ServedTablet, key: StreamKey) -> bool:
    """Rule R18: the tablet has this import, whatever became of its segments since."""
    return tablet.knows(key)


class LearnStream:
    """A barrier of the commit thread: the books hold so much of a stream for a tablet; its later states say so too."""

    durability = Durability.LOG
    approx_bytes = 0

    def __init__(self, tablet: ServedTablet, key: StreamKey, offset: int) -> None:
        self._tablet = tablet
        self._key = key
        self._offset = offset

    def prepare(self, next_offset: int) -> list[DraftBlock]:
        """See :class:`bookkeeper.storage.wal.Submission`."""
        del next_offset
        self._tablet.apply_high_water(self._key, self._offset)
        return []

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`bookkeeper.storage.wal.Submission`."""
        del blocks
        return None

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`bookkeeper.storage.wal.Submission`; the books hold it all the same."""


class Adopter:
    """Executes the master's orders to take segments, in the thread of the call."""

    def __init__(
        self,
        registry: Registry,
        flusher: Flusher,
        path: CommitPath,
        index: ReceivedIndex,
        metadata: MetadataTable,
        persistence: Persistence,
        die: Die,
    ) -> None:
        self._registry = registry
        self._flusher = flusher
        self._path = path
        self._index = index
        self._metadata = metadata
        self._persistence = persistence
        self._die = die
        self._ops = SegmentOps()

    def adopt(self, request: AdoptRequest) -> None:
        """Take the segments, unless the tablet has taken this import before. Raises NotServingError, RefusedError when
        the import is over, InvalidInputError, CorruptionError, TransientError.
        """
        wanted = [segment_ref(given.uri, SegmentEntry.decode(given.entry)) for given in request.segments]
        check_rows(request.extent, wanted)
        tablet = self._registry.serving(request.extent)
        with tablet.flush_lock:
            if self._registry.find(request.extent) is not tablet:
                raise NotServingError(f"tablet {tablet.extent} has left this server")
            if is_taken(tablet, request.stream):
                return
            forgets = tablet.forgets
            if not self._index.is_open(request.stream):
                raise RefusedError(f"the import {request.stream.file} is over: nothing more of it is taken")
            self._flusher.complete(tablet)
            linked = self._link(tablet, wanted)
            if was_forgotten(is_taken(tablet, request.stream), forgets, tablet.forgets):
                discard(linked)
                raise UnavailableError(f"the import {request.stream.file} may be over by now: ask again")
            self._install(tablet, linked, request.stream)
        LOG.info("tablet %s took %d imported segments of %s", tablet.extent, len(linked), request.stream.file)

    def _link(self, tablet: ServedTablet, wanted: Sequence[SegmentRef]) -> list[SegmentRef]:
        holder = first_flush_id(tablet.serial)
        try:
            return link_segments(wanted, tablet.data.directory, holder, lambda: uuid.uuid4().hex, self._ops)
        except FileNotFoundError as error:
            raise InvalidInputError(f"an imported segment is not there: {error.filename}") from error
        except OSError as error:
            raise UnavailableError(f"imported segments can't be linked: {error}") from error

    def _install(self, tablet: ServedTablet, linked: Sequence[SegmentRef], key: StreamKey) -> None:
        """As a compaction is installed: ends the process when nobody can know whether the books have it."""
        flush_id = tablet.take_flush_id()
        new = [replace(ref, flush_id=flush_id) for ref in linked]
        state = adopted_state(tablet.books, flush_id, [*tablet.data.segments, *new], key)
        put = segments_put(tablet.row, state, new)
        try:
            self._persistence.insist("an import", lambda: self._metadata.put([put], flush_id))
            tablet.data.replace_segments((), new)
            tablet.books = state
            self._path.cross(LearnStream(tablet, key, IMPORTED))
        except BookkeeperError as error:
            self._die(f"the state of a tablet behind an import is not known: {error}")
            raise


def check_rows(extent: Extent, segments: Sequence[SegmentRef]) -> None:
    """Raise InvalidInputError when a segment without ranges has rows outside of the tablet: they would be lost with the
    first compaction.
    """
    for ref in segments:
        if not ref.ranges and not (extent.contains(ref.min_row) and extent.contains(ref.max_row)):
            raise InvalidInputError(f"segment {ref.uri} crosses the border of tablet {extent}")


def discard(linked: Sequence[SegmentRef]) -> None:
    """Remove links that nobody was told of."""
    for ref in linked:
        path_of(ref.uri).unlink(missing_ok=True)
