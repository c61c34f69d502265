"""The wire messages of a segment transfer: the offer, and the parts of the files that the peer does not have.

One part is in memory at a time. The peer's answer has the bytes that it has of each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from bookkeeper.errors import BookkeeperError, DeclinedError, NotFoundError, PermanentError, RefusedError
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import SegmentTransfer
from bookkeeper.rpc.contract.messages import OfferedSegment, SegmentPart, SegmentsOffer


class SentBytes(Struct):
    """Bytes of files that went out, in all tries."""

    total: int = 0

    def add(self, size: int) -> None:
        """Count bytes that went out."""
        self.total += size


def offer_of(token: str, stream: StreamKey, transfer: SegmentTransfer) -> SegmentsOffer:
    """The facts by which the peer decides whether it takes the files."""
    log = transfer.log
    return SegmentsOffer(
        stream_session=token,
        stream=stream,
        provenance=transfer.provenance,
        to_offset=log.records,
        groups=log.groups,
        row_bytes=log.lengths.row,
        column_bytes=log.lengths.column,
        value_bytes=log.lengths.value,
        segments=tuple(OfferedSegment(segment.entry.encode(), segment.sha256) for segment in log.segments),
        root=None if transfer.root is None else transfer.root.encode(),
    )


def missing_parts(
    token: str, stream: StreamKey, transfer: SegmentTransfer, received_bytes: Sequence[int], part_bytes: int
) -> Iterator[SegmentPart]:
    """The parts that the peer does not have, in order. Raises DeclinedError when a file can't be read, and when the
    peer's word of what it has fits no file: the log's records may still be readable.
    """
    sizes = [segment.entry.size_bytes for segment in transfer.log.segments]
    if len(received_bytes) != len(sizes) or any(
        not 0 <= found <= size for found, size in zip(received_bytes, sizes, strict=True)
    ):
        raise DeclinedError("the peer's word of the bytes that it has fits none of the files")
    for number, (segment, start) in enumerate(zip(transfer.log.segments, received_bytes, strict=True)):
        try:
            while part := transfer.volume.read_range(segment.name, start, part_bytes):
                yield SegmentPart(token, stream, number, start, part)
                start += len(part)
        except OSError as error:
            raise DeclinedError(f"{segment.name} can't be read: {error}") from error


def is_about_form(error: BookkeeperError) -> bool:
    """Whether the peer refuses the files and may still take their records. RefusedError and NotFoundError are about
    the peer or the table, so messages of records would meet them again.
    """
    return isinstance(error, PermanentError) and not isinstance(error, RefusedError | NotFoundError)
