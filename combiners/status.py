"""The lattice of replication statuses, and the three changes that one writer may make to its own.

Each function returns a new status and never changes its arguments. After a crash a reader folds the status again from
its cells. Source: ACCUMULO-378, *Data Structure in Value*.
"""

from __future__ import annotations

from collections.abc import Iterable

from combiners.errors import StatusError
from combiners.replication_status_pb2 import CLOSED, Barrier, ReplicationStatus, Share, State
from combiners.unknown import UnknownField, encode_fields, unknown_fields

OFFSET_MAX = 2**64 - 1
"""Highest offset or byte position of a status."""

_BarrierKey = tuple[int, str, int, tuple[UnknownField, ...]]
_ShareValue = tuple[int, int, tuple[UnknownField, ...]]
"""Records, bytes, and fields of a newer version."""


def combine(statuses: Iterable[ReplicationStatus]) -> ReplicationStatus:
    """Fold any number of statuses of one file into the least status that is at least each of them. Raises nothing.

    State, offsets, byte positions and ``first_seq`` merge as the maximum, ``created_time`` (milliseconds since 1970) as
    the minimum of those that are set, barriers and unknown fields as sorted sets, shares as the maximum for
    each target. No status at all gives the empty status, the identity. The result is in normal form: folding it again,
    alone or with any of its inputs, gives an equal message.
    """
    state = needed = finished = needed_bytes = finished_bytes = share_records = share_bytes = first_seq = 0
    created: int | None = None
    barriers: set[_BarrierKey] = set()
    shares: dict[str, _ShareValue] = {}
    unknown: set[UnknownField] = set()
    for status in statuses:
        state = max(state, status.state)
        needed = max(needed, status.replication_needed_offset)
        finished = max(finished, status.replication_finished_offset)
        needed_bytes = max(needed_bytes, status.needed_bytes)
        finished_bytes = max(finished_bytes, status.finished_bytes)
        share_records = max(share_records, status.finished_share_records)
        share_bytes = max(share_bytes, status.finished_share_bytes)
        first_seq = max(first_seq, status.first_seq)
        if status.HasField("created_time"):
            created = status.created_time if created is None else min(created, status.created_time)
        barriers.update(map(_barrier_key, status.barriers))
        for share in status.shares:
            shares[share.target] = _larger(share, shares.get(share.target))
        unknown.update(unknown_fields(status))
    joined = ReplicationStatus(
        state=State.ValueType(state),
        replication_needed_offset=needed,
        replication_finished_offset=finished,
        created_time=created,
        barriers=map(_barrier, sorted(barriers)),
        needed_bytes=needed_bytes,
        finished_bytes=finished_bytes,
        shares=[_share(target, value) for target, value in sorted(shares.items())],
        finished_share_records=share_records,
        finished_share_bytes=share_bytes,
        first_seq=first_seq,
    )
    joined.MergeFromString(encode_fields(sorted(unknown)))
    return joined


def is_fully_replicated(status: ReplicationStatus) -> bool:
    """Whether nothing is left to replicate and no record can be added: the state is CLOSED, and the finished offset has
    reached the needed offset.

    An OPEN status is never fully replicated, also without its needed side. A finished offset above the needed offset
    counts as reached: the reader read an older needed side. An unknown state counts as OPEN, so that the file is kept.
    """
    return status.state == CLOSED and status.replication_finished_offset >= status.replication_needed_offset


def range_needing_replication(status: ReplicationStatus) -> tuple[int, int] | None:
    """The first and last offset, both included, that are needed and not finished; None when nothing is left.

    Offsets count records from 1: finished 100 and needed 300 leave (101, 300).
    """
    first = status.replication_finished_offset + 1
    last = status.replication_needed_offset
    return (first, last) if first <= last else None


def append(status: ReplicationStatus, records: int, *, needed_bytes: int | None = None) -> ReplicationStatus:
    """The status after ``records`` more records became ready for replication. ``needed_bytes`` is the position after
    them in the file, in bytes from its beginning; None = unchanged.

    Raises StatusError when the status is not OPEN, the count is negative, or an offset or position would go back or
    pass 2^64 - 1.
    """
    _require_open(status, "append")
    changed = _copy(status)
    changed.replication_needed_offset = _advanced(status.replication_needed_offset, records, "append")
    if needed_bytes is not None:
        changed.needed_bytes = _position(status.needed_bytes, needed_bytes, "append")
    return changed


def finish(status: ReplicationStatus, records: int, *, finished_bytes: int | None = None) -> ReplicationStatus:
    """The status after ``records`` more records arrived at the target. ``finished_bytes`` is the position after them in
    the file, in bytes from its beginning; None = unchanged. A CLOSED status allows this change only.

    Raises StatusError when the finished offset would pass the needed offset, the count is negative, or the position
    would go back or pass 2^64 - 1.
    """
    finished = _advanced(status.replication_finished_offset, records, "finish")
    if finished > status.replication_needed_offset:
        raise StatusError(
            f"can't finish {records} records: offset {finished} would pass the {status.replication_needed_offset} "
            "that are needed; count the acknowledged records again from the books"
        )
    changed = _copy(status)
    changed.replication_finished_offset = finished
    if finished_bytes is not None:
        changed.finished_bytes = _position(status.finished_bytes, finished_bytes, "finish")
    return changed


def close(status: ReplicationStatus) -> ReplicationStatus:
    """The same status with the state CLOSED: the file gets no more records. Raises StatusError when it is not OPEN."""
    _require_open(status, "close")
    changed = _copy(status)
    changed.state = CLOSED
    return changed


def _barrier_key(barrier: Barrier) -> _BarrierKey:
    return barrier.offset, barrier.file, barrier.until_offset, unknown_fields(barrier)


def _barrier(key: _BarrierKey) -> Barrier:
    offset, file, until_offset, unknown = key
    barrier = Barrier(offset=offset, file=file, until_offset=until_offset)
    barrier.MergeFromString(encode_fields(unknown))
    return barrier


def _larger(share: Share, previous: _ShareValue | None) -> _ShareValue:
    records, size, unknown = previous or (0, 0, ())
    joined = tuple(sorted({*unknown, *unknown_fields(share)}))
    return max(records, share.records), max(size, share.bytes), joined


def _share(target: str, value: _ShareValue) -> Share:
    records, size, unknown = value
    share = Share(target=target, records=records, bytes=size)
    share.MergeFromString(encode_fields(unknown))
    return share


def _copy(status: ReplicationStatus) -> ReplicationStatus:
    changed = ReplicationStatus()
    changed.CopyFrom(status)
    return changed


def _require_open(status: ReplicationStatus, change: str) -> None:
    if status.state != State.OPEN:
        raise StatusError(
            f"can't {change}: the status is not OPEN (state {status.state}, needed "
            f"{status.replication_needed_offset}); after CLOSED only finish is allowed"
        )


def _advanced(offset: int, records: int, change: str) -> int:
    if records < 0 or offset + records > OFFSET_MAX:
        raise StatusError(
            f"can't {change} {records} records at offset {offset}: allowed are 0 to {OFFSET_MAX - offset}"
        )
    return offset + records


def _position(before: int, after: int, change: str) -> int:
    if not before <= after <= OFFSET_MAX:
        raise StatusError(f"can't {change}: byte position {after} lies outside {before} to {OFFSET_MAX}")
    return after
