"""A whole source file on its way to another cluster of this project: the offer, and its files in parts.

Arrives: the segments beside a log, how much of each the peer has. Leaves: messages, one part in memory at a time.
Survives a crash: nothing; the peer knows what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.bulk.log_segments import WholeLog
from bookkeeper.errors import BookkeeperError, DeclinedError, NotFoundError, PermanentError, RefusedError
from bookkeeper.model import StreamKey
from bookkeeper.peers.protocol import WholeFile
from bookkeeper.rpc.contract.offer_messages import OfferedSegment, SegmentPart, SegmentsOffer
from bookkeeper.storage.wal import path_of


@dataclass(slots=True)
class SentBytes:
    """Bytes of files that went out, in all tries."""

    total: int = 0

    def add(self, size: int) -> None:
        """So many more went out."""
        self.total += size


def offer_of(token: str, stream: StreamKey, whole: WholeFile) -> SegmentsOffer:
    """What the peer judges by."""
    log = whole.log
    return SegmentsOffer(
        stream_session=token,
        stream=stream,
        provenance=whole.provenance,
        to_offset=log.records,
        groups=log.groups,
        row_bytes=log.lengths.row,
        column_bytes=log.lengths.column,
        value_bytes=log.lengths.value,
        segments=tuple(OfferedSegment(segment.entry.encode(), segment.sha256) for segment in log.segments),
        root=None if whole.root is None else whole.root.encode(),
    )


def parts_of(
    token: str, stream: StreamKey, log: WholeLog, held: Sequence[int], part_bytes: int
) -> Iterator[SegmentPart]:
    """What the peer lacks, in order. Raises DeclinedError when a file can't be read: its records may be."""
    for number, (segment, start) in enumerate(zip(log.segments, held, strict=True)):
        try:
            with path_of(segment.uri).open("rb") as content:
                content.seek(start)
                while part := content.read(part_bytes):
                    yield SegmentPart(token, stream, number, start, part)
                    start += len(part)
        except OSError as error:
            raise DeclinedError(f"{segment.uri} can't be read: {error.strerror}") from error


def is_about_form(error: BookkeeperError) -> bool:
    """Whether the same records may be taken as records: what is wrong with the peer as a whole would be said again."""
    return isinstance(error, PermanentError) and not isinstance(error, RefusedError | NotFoundError)
