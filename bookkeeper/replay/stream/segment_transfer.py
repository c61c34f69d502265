"""Segment transfer, the sending side: an import's log goes to a peer as the segments beside it, or as records.

Arrives: a range of a log. Leaves: the result of the complete range, or the reason why its records are shipped instead.
The stream and its offsets are the same in both forms. Rules: R13 and R21.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.log_segments import LogSegment, SegmentedLog, read_segmented_log
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError
from bookkeeper.origins import Root, root_of
from bookkeeper.peers.extensions import SegmentTransfer, SegmentTransferSession, TransferAnswer
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from bookkeeper.replay.stream import filters
from bookkeeper.replay.stream.block_stream import CALLS_MAX, OpenSessions
from bookkeeper.replay.stream.peer_errors import errors_of_peer
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import block_origins_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers

BY_SEGMENTS = "whole segments"
BY_RECORDS = "records"


class TransferOutcome(Struct, frozen=True):
    """The outcome of a try: the range's result, or the reason why its records are shipped instead; "" when there are no
    segments.
    """

    result: RangeResult | None = None
    reason: str = ""

    @property
    def way(self) -> str:
        """The form in which the records went, for people."""
        return f"{BY_RECORDS}: {self.reason}" if self.reason else ""


def reason_for_records(r: Range, log: SegmentedLog, header: BlockHeader) -> str | None:
    """The reason why the target does not get the segments; None when it does (R13, R21). All blocks of an import's log
    have the targets and the provenance of the first one.
    """
    if not wanted_segments(r, log, header):
        return "none of it is for this target"
    if r.last != log.records:
        return "only a part of it is due"
    return None


def wanted_segments(r: Range, log: SegmentedLog, header: BlockHeader) -> tuple[LogSegment, ...]:
    """The segments of the locality groups that the log has for the target; none when the data has been at the peer."""
    block_target = filters.block_target_for(header, r.target)
    if block_target is None or filters.would_loop(header.provenance, r.peer_instance_id):
        return ()
    return tuple(
        part for part in log.segments if block_target.groups is None or part.entry.group in block_target.groups
    )


def root_in(header: BlockHeader) -> Root | None:
    """Rule R22: the root of the records of a log that another cluster sent; None = this file. The records have the same
    offsets there (see ``tserver.bulk.relay_log``). Raises CorruptionError.
    """
    if not header.HasField("origin"):
        return None
    found = block_origins_from_pb(header.block_origins, root_of(stream_from_pb(header.origin.stream)))
    if len(found.records) != 1 or found.records[0][1].first != 1:
        raise CorruptionError("its first block does not begin at the first offset of one root")
    return found.records[0][0]


def try_segment_transfer(
    volume: Volume, r: Range, sessions: OpenSessions, clock: Clock, patience_ms: int
) -> TransferOutcome:
    """Ship the range as segments if that is possible; after ``patience_ms`` its records go instead. Errors of the peer
    are in the result.
    """
    started_ns = clock.boot_ns()
    try:
        # Only from its beginning: a stream that began with records goes on with records.
        log = read_segmented_log(volume, r.file) if r.first == 1 and not r.run_id else None
        if log is None:
            return TransferOutcome()
        header = next(read_headers(volume, r.file)).header
        reason = reason_for_records(r, log, header)
        root = root_in(header)
        wanted = replace(log, segments=wanted_segments(r, log, header))
    except (BookkeeperError, OSError) as error:
        return TransferOutcome(reason=f"its segments can't be read: {error}")
    if reason is not None:
        return TransferOutcome(reason=reason)
    try:
        with sessions.waiting(CALLS_MAX, patience_ms), errors_of_peer():
            session = sessions.session(r)
            if not isinstance(session, SegmentTransferSession):
                return TransferOutcome(reason="the peer takes nothing else")
            provenance = filters.provenance_for(header, r.own_instance_id)
            answer = session.transfer_segments(
                SegmentTransfer(volume, provenance, wanted, root), started_ns + patience_ms * 1_000_000
            )
    except BookkeeperError as error:
        sessions.forget(r)
        return TransferOutcome(
            _result(volume, r, wanted, None, RangeError.of(error), (clock.boot_ns() - started_ns) / 1e9)
        )
    if answer.declined is not None:
        return TransferOutcome(reason=answer.declined)
    with sessions.waiting(CALLS_MAX):  # for the disk: it reads all headers
        return TransferOutcome(_result(volume, r, wanted, answer, None, (clock.boot_ns() - started_ns) / 1e9))


def _share_of(volume: Volume, r: Range) -> tuple[int, int]:
    """The target's share of the complete log, by its last block."""
    header = next(iter(deque(read_headers(volume, r.file), maxlen=1))).header
    return filters.share_up_to(header, r.target) or (0, 0)


def _result(
    volume: Volume,
    r: Range,
    wanted: SegmentedLog,
    answer: TransferAnswer | None,
    error: RangeError | None,
    seconds: float,
) -> RangeResult:
    taken = answer is not None
    records = sum(segment.entry.records for segment in wanted.segments)
    sent = 0 if answer is None else answer.sent_bytes
    share_records, share_bytes = _share_of(volume, r) if taken else (0, 0)
    return RangeResult(
        range_id=r.range_id,
        acked_offset=r.last if taken else r.finished,
        acked_position=0,
        high_water=None,
        records=records if taken else 0,
        bytes=wanted.size_bytes if taken else 0,
        filtered=wanted.records - records if taken else 0,
        resent=records if taken and not sent else 0,
        blocks=1 if taken else 0,
        sent_records=records if sent else 0,
        sent_bytes=sent,
        error=error,
        host=socket.gethostname(),
        pid=os.getpid(),
        seconds=seconds,
        way=BY_SEGMENTS,
        share_records=share_records,
        share_bytes=share_bytes,
    )
