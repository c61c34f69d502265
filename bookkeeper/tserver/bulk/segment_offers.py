"""Decisions about offers: whether tablets take a source file as segments. Pure.

An offer, the table's configuration here and the standing of each tablet give a reason to decline, or none. A
declined file comes as records, in the same stream with the same offsets, so either form may go on where the other one
stopped: a tablet that took the segments has all of the stream and drops its records (R18); a tablet with some of the
records takes no segments. Rules: R13 and R18.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import part_of_segment
from bookkeeper.bulk.segment_conversion import CHUNK_BYTES, CHUNK_RECORDS
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import Root, root_of
from bookkeeper.rpc.contract.messages import RelayFacts, SegmentsOffer
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.tserver.receive.slice_decision import check_offset
from bookkeeper.tserver.tablets.block_targets import TableView

FILE_SEQ_MAX = 1 << 40
"""Highest sequence number in a file of an import: they count its records from 1 on."""

FILE_RECORDS_MAX = 2 * CHUNK_RECORDS
FILE_BYTES_MAX = 2 * CHUNK_BYTES
"""Most of one file; an import makes smaller ones."""

FILES_MAX = 2_000
OFFER_BYTES_MAX = 1 << 30
"""Most files, and bytes of them, of one offer; larger ones come as records."""


class Standing(Enum):
    """The part that a tablet has of a stream whose segments are offered."""

    ALL = "all"
    NOTHING = "nothing"
    SOME = "some"


def standing_of(high_water: int, has_partial: bool, through: int) -> Standing:
    """``high_water`` is durable here. ``has_partial``: rows of a tablet that was merged into this one have more."""
    if high_water >= through:
        return Standing.ALL
    return Standing.SOME if high_water or has_partial else Standing.NOTHING


class OfferedFile(Struct, frozen=True):
    """A file of an offer."""

    entry: SegmentEntry
    sha256: str


def files_of(offer: SegmentsOffer) -> tuple[OfferedFile, ...]:
    """The files of an offer. Raises CorruptionError, InvalidInputError when they can't be those of an import."""
    found = tuple(OfferedFile(SegmentEntry.decode(segment.entry), segment.sha256) for segment in offer.segments)
    if not found or offer.to_offset < 1:
        raise InvalidInputError(f"{offer.stream.file} is offered as {len(found)} files of {offer.to_offset} records")
    if sum(file.entry.records for file in found) > offer.to_offset or any(file.entry.ranges for file in found):
        raise InvalidInputError(f"the files of {offer.stream.file} can't hold its {offer.to_offset} records or fewer")
    check_offset(offer.to_offset)
    for file in found:
        check_entry(file.entry)
    return found


def check_entry(entry: SegmentEntry) -> None:
    """Raise InvalidInputError when no file of an import has these numbers, before the file is sent."""
    if not 1 <= entry.first_seq <= entry.last_seq <= FILE_SEQ_MAX or entry.shift:
        raise InvalidInputError(
            f"a file with sequence numbers {entry.first_seq} to {entry.last_seq}, shifted by {entry.shift}: those of "
            f"an import are 1 to {FILE_SEQ_MAX}, not shifted"
        )
    if not 1 <= entry.records <= entry.last_seq - entry.first_seq + 1:
        raise InvalidInputError(f"{entry.records} records can't have the numbers {entry.first_seq} to {entry.last_seq}")
    if entry.min_row > entry.max_row or not entry.size_bytes:
        raise InvalidInputError(f"a file of {entry.size_bytes} bytes with rows {entry.min_row!r} to {entry.max_row!r}")


def reason_to_decline(
    offer: SegmentsOffer, files: Sequence[OfferedFile], view: TableView, limits: BatchLimits
) -> str | None:
    """The reason why this table does not take the offer; None when it may."""
    size = sum(file.entry.size_bytes for file in files)
    if any(file.entry.records > FILE_RECORDS_MAX or file.entry.size_bytes > FILE_BYTES_MAX for file in files):
        return f"a file is too large: at most {FILE_RECORDS_MAX} records and {FILE_BYTES_MAX} bytes are taken"
    if view.block_targets and sum(file.entry.records for file in files) != offer.to_offset:
        return targets_reason(view, "and these files hold a part of their log only")
    if GroupMap({group.name: group.families for group in offer.groups}) != view.groups:
        return f"table {view.name} has other locality groups here"
    if len(files) > FILES_MAX or size > OFFER_BYTES_MAX:
        return f"{len(files)} files of {size} bytes are too many: at most {FILES_MAX} of {OFFER_BYTES_MAX} are taken"
    over = [
        f"a {what} of {longest} bytes is above the limit of {most}"
        for what, longest, most in (
            ("row", offer.row_bytes, limits.row_bytes_max),
            ("column", offer.column_bytes, limits.column_bytes_max),
            ("value", offer.value_bytes, limits.value_bytes_max),
        )
        if longest > most
    ]
    return over[0] if over else None


def reason_of_origin(stream: StreamKey, relay: RelayFacts, origins: Collection[str] | None) -> str | None:
    """Rule R22: the reason why files come as records when their sender may not name their origin: the records are then
    known by their stream alone. ``origins``: the instances that it may name; None = any.
    """
    origin = first_root(stream, relay).instance_id
    if origins is None or origin in (stream.source_instance_id, *origins):
        return None
    return f"the secret of instance {stream.source_instance_id} does not name it a relay of instance {origin}"


def reason_of_tablets(view: TableView, tablets: int) -> str | None:
    """The reason why several tablets do not share the files: in a table with targets one log stands for them (R13)."""
    if view.block_targets and tablets > 1:
        return targets_reason(view, f"and {tablets} of its tablets share these files")
    return None


def targets_reason(view: TableView, why: str) -> str:
    """The reason why a table with targets takes records: its own log has them then, for its peers (R13, R21)."""
    return f"table {view.name} is replicated further from here, {why}"


def relay_facts_of(offer: SegmentsOffer) -> RelayFacts:
    """The facts that the table's own peers need about the files. Raises CorruptionError."""
    if offer.root is not None:
        decode_root(offer.root)
    return RelayFacts(offer.provenance, offer.root)


def decode_root(raw: str) -> Root:
    """The root in an offer. Raises CorruptionError."""
    try:
        return Root.decode(raw)
    except ValueError as error:
        raise CorruptionError(f"{raw!r} is no log of a cluster: {error}") from error


def first_root(stream: StreamKey, relay: RelayFacts | None) -> Root:
    """Rule R22: the root of the records of a stream that comes as segments."""
    raw = None if relay is None else relay.root
    return root_of(stream) if raw is None else decode_root(raw)


def segments_by_tablet(
    files: Sequence[OfferedFile], extents: Iterable[Extent]
) -> dict[Extent, dict[int, SegmentEntry]]:
    """The files that each tablet refers to, by their numbers, with the rows that lie in it; only tablets with some."""
    found: dict[Extent, dict[int, SegmentEntry]] = {}
    for extent in extents:
        parts = {number: part_of_segment(file.entry, extent.rows) for number, file in enumerate(files)}
        touched = {number: replace(part, shift=0) for number, part in parts.items() if part is not None}
        if touched:
            found[extent] = touched
    return found
