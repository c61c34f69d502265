"""The messages of segment transfers: segments of an import to its tablets, segments of a source file to a peer.

Field names are those of the contract.
"""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.model import Extent, LocalityGroup, StreamKey


class ImportedSegment(Struct, frozen=True):
    """A segment file of an import; ``entry`` is its JSON in the books."""

    name: str
    entry: bytes


class ImportedLog(Struct, frozen=True):
    """The log with the records of an import, for peers: the offset of its last record, the byte position after it."""

    name: str
    offset: int
    position: int
    created_ms: int


class RelayFacts(Struct, frozen=True):
    """Facts about another cluster's file for the peers that get it from here: the instances that its records have
    passed, and the root where they were first written (``Root.encode``; None = that file).
    """

    provenance: tuple[str, ...]
    root: str | None = None


class AdoptRequest(Struct, frozen=True):
    """The segments of an import for one tablet; ``stream`` identifies the import, ``log`` is set for a replicated
    table.

    ``through``: the stream is another cluster's, and the segments hold all that comes of it up to this last offset;
    ``relay`` is of such a stream.
    """

    extent: Extent
    stream: StreamKey
    segments: tuple[ImportedSegment, ...]
    log: ImportedLog | None = None
    through: int | None = None
    relay: RelayFacts | None = None


class OfferedSegment(Struct, frozen=True):
    """A segment file of a source file; ``entry`` is its JSON in the books, the SHA-256 is in hex."""

    entry: bytes
    sha256: str


class SegmentsOffer(Struct, frozen=True):
    """A source file as segments, for one target table; the longest row, column part and value in bytes.

    ``root`` (``Root.encode``): where its records were first written, with the same offsets; None = in that file.
    """

    stream_session: str
    stream: StreamKey
    provenance: tuple[str, ...]
    to_offset: int
    groups: tuple[LocalityGroup, ...]
    row_bytes: int
    column_bytes: int
    value_bytes: int
    segments: tuple[OfferedSegment, ...]
    root: str | None = None


TAKEN, WANTED, DECLINED = "taken", "wanted", "declined"
"""States of an :class:`OfferAnswer`."""


class OfferAnswer(Struct, frozen=True):
    """The outcome of an offer, the reason when it is declined, and the bytes of each file that the peer has when it is
    wanted.
    """

    state: str
    reason: str = ""
    received_bytes: tuple[int, ...] = ()


class SegmentPart(Struct, frozen=True):
    """Some bytes of the file ``number`` of an offer, from position ``start`` on."""

    stream_session: str
    stream: StreamKey
    number: int
    start: int
    content: bytes
