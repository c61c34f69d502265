"""Whole files of another cluster's import come in, are checked, and tablets take them as they are.

Arrives: offers, parts of files, the order to take them. Leaves: tablets that refer to the files, each by a name of its
own, and whose high-water of the stream says "all of it", in one put each (rule R18; see ``bulk_loader``). Survives a
crash: the tablets that took their share. The others take theirs when the file is offered again, or get it as records:
whoever has it drops what comes again, and the sender's fact stays where it was until all have it (R19).

A file that crosses the borders of tablets is taken by each of them, which reads the rows that lie in it. Each file is
decoded once, by the tserver that it came to, before any tablet hears of it (``storage.tablet.segments.segment_check``):
what it says of its records is what it holds. Rules: R13, R14, R18, R20 and R21.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bookkeeper.bulk import segment_ref
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    DeclinedError,
    GapError,
    IncompatibleError,
    InvalidInputError,
    NotServingError,
    PermanentError,
    TransientError,
)
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import ApplyRequest
from bookkeeper.rpc.contract.offer_messages import (
    DECLINED,
    TAKEN,
    WANTED,
    AdoptRequest,
    ImportedSegment,
    OfferAnswer,
    SegmentPart,
    SegmentsOffer,
)
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.tablet import BatchLimits, GroupMap
from bookkeeper.storage.tablet.segments.segment_check import Bounds, check_segment
from bookkeeper.storage.wal.wal_files import uri_of
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.segment_offers import (
    OfferedFile,
    Standing,
    files_of,
    first_root,
    onward_of,
    reason_of_tablets,
    reason_to_decline,
    shares_of,
    standing_of,
)
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads, Upload
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.receive.receive_streams import Streams
from bookkeeper.tserver.receive.receiver import Receiver, check_provenance, refuse_ended
from bookkeeper.tserver.receive.receiving_tablets import Located, Locations
from bookkeeper.tserver.write.configuration import Configuration

LOG = logging.getLogger(__name__)

RECEIVED_TAIL_BYTES_MAX = 16 << 20
"""Most bytes behind the row groups of a received file: ten times what its index, filter and footer take when an import
made it (``offers.FILE_RECORDS_MAX``).
"""

CALLS_MAX = 16
"""Tablets that are asked at once; the others of a file wait for them in turn."""

Shares = Mapping[Extent, Mapping[int, SegmentEntry]]


class SegmentReceiver:
    """Judges offers, gathers files, and has tablets take them."""

    def __init__(
        self,
        receiver: Receiver,
        adopter: BulkLoader,
        configuration: Configuration,
        locations: Locations,
        streams: Streams,
        index: ReceivedIndex,
        marks: OriginMarks,
        incoming: SegmentUploads,
        pool: RpcPool,
        call_timeout_ms: float,
    ) -> None:
        self._receiver = receiver
        self._adopter = adopter
        self._configuration = configuration
        self._locations = locations
        self._streams = streams
        self._index = index
        self._marks = marks
        self._incoming = incoming
        self._pool = pool
        self._call_timeout_ms = call_timeout_ms
        self._calls = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="take")

    def close(self) -> None:
        """Let calls to other tservers end."""
        self._calls.shutdown()

    # ---- from other clusters

    def offer(self, offer: SegmentsOffer) -> OfferAnswer:
        """Whether the file is here, its segments are wanted, or its records. Raises RefusedError, NotFoundError,
        InvalidInputError, CorruptionError, TransientError.
        """
        stream = offer.stream
        check_provenance(offer.provenance, stream, self._receiver.own_instance_id)
        self._streams.check(offer.stream_session, stream)
        view = self._configuration.table(stream.target_table_id)
        files = files_of(offer)
        onward = onward_of(offer)
        reason = reason_to_decline(offer, files, view, self._receiver.limits)
        if reason is None:
            standings = self._standings(offer, files)
            if set(standings) == {Standing.ALL}:
                return OfferAnswer(TAKEN)
            reason = reason_of_tablets(view, len(standings))
            if Standing.SOME in standings:
                reason = "some of its records are here"
        if reason is not None:
            LOG.info("%s comes as records: %s", stream.file, reason)
            return OfferAnswer(DECLINED, reason)
        check = partial(
            check_received, bounds=received_bounds(self._receiver.limits, view.groups, self._receiver.latest_ms())
        )
        return OfferAnswer(WANTED, held=self._incoming.begin(stream, offer.to_offset, files, check, onward))

    def put(self, part: SegmentPart) -> None:
        """See :meth:`SegmentUploads.put`."""
        self._streams.check(part.stream_session, part.stream)
        self._incoming.put(part)

    def take(self, token: str, stream: StreamKey) -> OfferAnswer:
        """Let every tablet take its share of the files; returns when all have it durably. Raises RefusedError,
        NotFoundError, InvalidInputError, TransientError.
        """
        self._streams.check(token, stream)
        self._configuration.table(stream.target_table_id)
        with self._incoming.taken(stream) as upload:
            refuse_ended(stream, self._index.is_open(stream))
            self._marks.announce([first_root(stream, upload.onward).log], stream.source_instance_id)
            errors = self._take_all(upload)
            if errors:
                self._locations.forget(stream.target_table_id)
                return declined_or_raise(errors)
        self._index.note(stream, upload.to_offset)
        LOG.info("%s was taken as %d segments of %d records", stream.file, len(upload.files), upload.to_offset)
        return OfferAnswer(TAKEN)

    # ---- inside

    def _tablets(self, stream: StreamKey, files: Sequence[OfferedFile]) -> tuple[dict[Extent, Located], Shares]:
        tablets = {tablet.extent: tablet for tablet in self._locations.of_table(stream.target_table_id)}
        return tablets, shares_of(files, list(tablets))

    def _standings(self, offer: SegmentsOffer, files: Sequence[OfferedFile]) -> list[Standing]:
        """Of each tablet that the files reach."""
        tablets, shares = self._tablets(offer.stream, files)
        waits = [self._calls.submit(self._standing, tablets[extent], offer) for extent in shares]
        try:
            return [wait.result() for wait in waits]
        except BookkeeperError:
            self._locations.forget(offer.stream.target_table_id)
            raise

    def _standing(self, tablet: Located, offer: SegmentsOffer) -> Standing:
        """What the tablet has: it declines a range behind the file's end unless it has all before (R19). What came by
        another path is known of a tablet that is served here (R22): others decline when the files have come.
        """
        end = offer.to_offset
        probe = ApplyRequest(tablet.extent, offer.stream, offer.provenance, 0, end, end, ())
        is_own = self._address(tablet) == self._receiver.own_address
        try:
            if is_own:
                self._receiver.apply_replicated(probe)
            else:
                self._pool.tserver(self._address(tablet), self._call_timeout_ms).apply_replicated(probe)
        except GapError as error:
            if is_own and self._adopter.knows(tablet.extent, first_root(offer.stream, onward_of(offer))):
                return Standing.SOME
            return standing_of(error.high_water, False, end)
        return Standing.ALL

    def _address(self, tablet: Located) -> str:
        if tablet.address is None:
            raise NotServingError(f"tablet {tablet.extent} is assigned to nobody now: try again")
        return tablet.address

    def _take_all(self, upload: Upload) -> list[BookkeeperError]:
        """Every tablet at once; waits for all of them."""
        tablets, shares = self._tablets(upload.stream, upload.offered)
        waits = [self._calls.submit(self._order, tablets[extent], upload, share) for extent, share in shares.items()]
        errors = []
        for wait in waits:
            try:
                wait.result()
            except BookkeeperError as error:
                errors.append(error)
        return errors

    def _order(self, tablet: Located, upload: Upload, share: Mapping[int, SegmentEntry]) -> None:
        uris = upload.uris
        segments = tuple(ImportedSegment(uris[number], entry.encode()) for number, entry in share.items())
        request = AdoptRequest(tablet.extent, upload.stream, segments, through=upload.to_offset, onward=upload.onward)
        adopt: Callable[[AdoptRequest], None] = self._adopter.adopt
        if self._address(tablet) != self._receiver.own_address:
            adopt = self._pool.tserver(self._address(tablet), self._call_timeout_ms).adopt_segments
        adopt(request)


def received_bounds(limits: BatchLimits, groups: GroupMap, latest_ms: int | None = None) -> Bounds:
    """What a file from another cluster may hold, for a table of these groups; no timestamp above ``latest_ms``."""
    return Bounds(limits, RECEIVED_TAIL_BYTES_MAX, groups, latest_ms)


def check_received(path: Path, offered: OfferedFile, bounds: Bounds) -> None:
    """Decode a file from another cluster. Raises CorruptionError, IncompatibleError, UnavailableError."""
    check_segment(segment_ref(uri_of(path), offered.entry), bounds)


def declined_or_raise(errors: Sequence[BookkeeperError]) -> OfferAnswer:
    """What becomes of an offer when some tablets did not take their shares: it is offered again when that may help,
    else it comes as records. Raises what is no fault of the form in which it came.
    """
    again = [error for error in errors if isinstance(error, TransientError)]
    forms = (DeclinedError, CorruptionError, IncompatibleError, InvalidInputError)
    final = [error for error in errors if isinstance(error, PermanentError) and not isinstance(error, forms)]
    if final or again:
        raise (final or again)[0]
    return OfferAnswer(DECLINED, errors[0].message)
