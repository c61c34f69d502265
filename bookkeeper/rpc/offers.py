"""The messages of a whole source file that is offered as segments. Field names are those of the contract.

Arrives: a file's segments at the sender. Leaves: what goes over the wire of them. Survives a crash: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.model import LocalityGroup, StreamKey


@dataclass(frozen=True, slots=True)
class OfferedSegment:
    """A segment file of a source file; ``entry`` as the books hold it, the SHA-256 in hex."""

    entry: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class SegmentsOffer:
    """A whole source file as segments, for one target table; the longest row, column part and value in bytes.

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


@dataclass(frozen=True, slots=True)
class OfferAnswer:
    """What became of an offer, why it is declined, and how many bytes of each file are here when it is wanted."""

    state: str
    reason: str = ""
    held: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Some bytes of the file ``number`` of an offer, behind ``start`` others."""

    stream_session: str
    stream: StreamKey
    number: int
    start: int
    content: bytes
