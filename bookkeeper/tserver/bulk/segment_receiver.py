"""The receiving side of a segment transfer: tablets take another cluster's segments, checked, without rewriting them.

The input is offers, parts of files, and the order to take them. One row put for each tablet refers to the files, with
the high-water of the complete stream (R18; see ``bulk_loader``). A crash may leave some tablets with their files and
others without. The others take theirs when the sender offers the file again, or get its records: a tablet drops
repeated records, and the sender's fact stays where it was until all tablets have them (R19).

A file that crosses the borders of tablets is taken by each of them, which reads its own rows. The tserver that receives
a file decodes it once, before any tablet takes it (``storage.tablet.segments.segment_check``): so the file has the
records that its offer describes. Rules: R13, R14, R18, R20 and R21.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    DeclinedError,
    GapError,
    IncompatibleError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import (
    DECLINED,
    TAKEN,
    WANTED,
    AdoptRequest,
    ApplyRequest,
    ImportedSegment,
    OfferAnswer,
    SegmentPart,
    SegmentsOffer,
)
from bookkeeper.storage.tablet.segments.segment_check import Bounds, check_segment
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.segment_offers import (
    OfferedFile,
    Standing,
    files_of,
    first_root,
    reason_of_origin,
    reason_of_tablets,
    reason_to_decline,
    relay_facts_of,
    segments_by_tablet,
    standing_of,
)
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads, Upload
from bookkeeper.tserver.receive.message_admission import MessageAdmission
from bookkeeper.tserver.receive.message_decoding import PeerLimits
from bookkeeper.tserver.receive.receiver import Receiver
from bookkeeper.tserver.receive.receiving_tablets import Located, ReceivingTablets

LOG = logging.getLogger(__name__)

RECEIVED_TAIL_BYTES_MAX = 16 << 20
"""Most bytes behind the row groups of a received file: ten times what its index, filter and footer take when an import
made it (``segment_offers.FILE_RECORDS_MAX``).
"""

CALLS_MAX = 16
"""Calls to tablets under way at once; the other tablets of a file wait for them in turn."""


class SegmentReceiver:
    """Decides about offers, gathers files, and has tablets take them."""

    def __init__(
        self,
        volume: Volume,
        admission: MessageAdmission,
        tablets: ReceivingTablets,
        receiver: Receiver,
        loader: BulkLoader,
        uploads: SegmentUploads,
        limits: PeerLimits,
    ) -> None:
        self._volume = volume
        self._admission = admission
        self._tablets = tablets
        self._receiver = receiver
        self._loader = loader
        self._uploads = uploads
        self._limits = limits
        self._calls = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="take")

    def close(self) -> None:
        """Let calls to other tservers end."""
        self._calls.shutdown()

    # ---- from other clusters

    def offer(self, offer: SegmentsOffer, origins: Collection[str] | None = None) -> OfferAnswer:
        """Whether this cluster has the file already, wants its segments, or wants its records. ``origins``: the
        instances under whose origins the sender may send records; None = any. Raises RefusedError, NotFoundError,
        InvalidInputError, CorruptionError, TransientError.
        """
        stream = offer.stream
        view = self._admission.admit(offer.provenance, offer.stream_session, stream)
        files = files_of(offer)
        relay = relay_facts_of(offer)
        reason = reason_of_origin(offer.stream, relay, origins) or reason_to_decline(
            offer, files, view, self._limits.batch
        )
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
        bounds = Bounds(self._limits.batch, RECEIVED_TAIL_BYTES_MAX, view.groups, self._limits.latest_ms())
        check = partial(check_received, self._volume, bounds=bounds)
        received_bytes = self._uploads.begin(stream, offer.to_offset, files, check, relay)
        return OfferAnswer(WANTED, received_bytes=received_bytes)

    def put(self, part: SegmentPart) -> None:
        """See :meth:`SegmentUploads.put`."""
        self._admission.admit_part(part.stream_session, part.stream)
        self._uploads.put(part)

    def take(self, token: str, stream: StreamKey) -> OfferAnswer:
        """Have every tablet take its rows of the files; returns when all have them durably. Raises RefusedError,
        NotFoundError, InvalidInputError, TransientError.
        """
        self._admission.admit_token(token, stream)
        with self._uploads.complete(stream) as upload:
            self._admission.admit_segments(stream, first_root(stream, upload.relay).log)
            errors = self._take_all(upload)
            if errors:
                self._tablets.forget(stream.target_table_id)
                return declined_or_raise(errors)
        self._admission.note_durable(stream, upload.to_offset)
        LOG.info("%s was taken as %d segments of %d records", stream.file, len(upload.files), upload.to_offset)
        return OfferAnswer(TAKEN)

    # ---- each tablet

    def _standings(self, offer: SegmentsOffer, files: Sequence[OfferedFile]) -> list[Standing]:
        """The standing of each tablet that the files reach."""
        tablets = self._tablets.of_table(offer.stream.target_table_id)
        waits = [
            self._calls.submit(self._standing, tablets[extent], offer) for extent in segments_by_tablet(files, tablets)
        ]
        try:
            return [wait.result() for wait in waits]
        except BookkeeperError:
            self._tablets.forget(offer.stream.target_table_id)
            raise

    def _standing(self, tablet: Located, offer: SegmentsOffer) -> Standing:
        """Send an empty range behind the file's end: the tablet declines it unless it has all records before (R19). The
        records of another path are visible at a tablet of this server only (R22); other tablets decline the files
        later.
        """
        end = offer.to_offset
        probe = ApplyRequest(tablet.extent, offer.stream, offer.provenance, 0, end, end, ())
        is_here = self._tablets.is_here(tablet)
        try:
            if is_here:
                self._receiver.apply_replicated(probe)
            else:
                self._tablets.tserver(tablet).apply_replicated(probe)
        except GapError as error:
            if is_here and self._loader.has_records_of(tablet.extent, first_root(offer.stream, relay_facts_of(offer))):
                return Standing.SOME
            return standing_of(error.high_water, False, end)
        return Standing.ALL

    def _take_all(self, upload: Upload) -> list[BookkeeperError]:
        """Every tablet at once; waits for all of them."""
        tablets = self._tablets.of_table(upload.stream.target_table_id)
        by_tablet = segments_by_tablet(upload.offered, tablets)
        waits = [self._calls.submit(self._order, tablets[extent], upload, files) for extent, files in by_tablet.items()]
        errors = []
        for wait in waits:
            try:
                wait.result()
            except BookkeeperError as error:
                errors.append(error)
        return errors

    def _order(self, tablet: Located, upload: Upload, files: Mapping[int, SegmentEntry]) -> None:
        names = upload.names
        segments = tuple(ImportedSegment(names[number], entry.encode()) for number, entry in files.items())
        request = AdoptRequest(tablet.extent, upload.stream, segments, through=upload.to_offset, relay=upload.relay)
        if self._tablets.is_here(tablet):
            self._loader.adopt(request)
        else:
            self._tablets.tserver(tablet).adopt_segments(request)


def check_received(volume: Volume, name: str, offered: OfferedFile, bounds: Bounds) -> None:
    """Decode a file from another cluster. Raises CorruptionError, IncompatibleError, UnavailableError."""
    check_segment(volume, segment_ref(name, offered.entry), bounds)


def declined_or_raise(errors: Sequence[BookkeeperError]) -> OfferAnswer:
    """The answer when some tablets did not take their files: the sender ships records instead, unless an error may
    pass or would stop records, too. Raises such an error.
    """
    again = [error for error in errors if isinstance(error, TransientError)]
    forms = (DeclinedError, CorruptionError, IncompatibleError, InvalidInputError)
    final = [error for error in errors if isinstance(error, PermanentError) and not isinstance(error, forms)]
    if final or again:
        raise (final or again)[0]
    return OfferAnswer(DECLINED, errors[0].message)
