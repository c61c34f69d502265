"""Hypothesis strategies for replication statuses: any value of a cell, of newer versions, too.

Barriers and unknown fields are drawn from small pools, so that equal ones meet.
"""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from combiners import Barrier, ReplicationStatus, Share, State

UINT64 = st.integers(0, 8) | st.integers(0, 2**64 - 1)

UNKNOWN_FIELDS = [
    bytes.fromhex(field)
    for field in (
        "a00600",  # field 100, varints: 0, 300, 2^64 - 1
        "a006ac02",
        "a006ffffffffffffffffff01",
        "a10600000000000000ff",  # field 100, fixed64
        "a206026162",  # field 100, bytes: "ab" and nothing
        "a20600",
        "ab06080110ac02ac06",  # field 101, a group of two varints
        "ab060b08010cac06",  # field 101, a group whose inner group holds a varint
        "b506010000ff",  # field 102, fixed32
        "1203616263",  # field 2 with the wrong wire type
    )
]
"""Wire bytes of fields that this version does not know, of every wire type."""

UNKNOWN = st.lists(st.sampled_from(UNKNOWN_FIELDS), max_size=3).map(b"".join)
"""Some unknown fields, in any order, possibly repeated."""


def _barrier(offset: int, file: str, until_offset: int, unknown: bytes) -> Barrier:
    barrier = Barrier(offset=offset, file=file, until_offset=until_offset)
    barrier.MergeFromString(unknown)
    return barrier


BARRIERS = [_barrier(*parts) for parts in product((0, 3), ("", "w/é.wal"), (0, 2**64 - 1), (b"", UNKNOWN_FIELDS[1]))]


def _share(target: str, records: int, size: int, unknown: bytes) -> Share:
    share = Share(target=target, records=records, bytes=size)
    share.MergeFromString(unknown)
    return share


SHARES = [_share(*parts) for parts in product(("", "east:r1:1:1"), (0, 7), (0, 2**64 - 1), (b"", UNKNOWN_FIELDS[1]))]


@st.composite
def statuses(draw: st.DrawFn, newer: bool = True) -> ReplicationStatus:
    """Any status that parses; with ``newer``, also states and fields of a version to come."""
    status = ReplicationStatus(
        state=State.ValueType(draw(st.integers(0, 2 if newer else 1))),
        replication_needed_offset=draw(UINT64),
        replication_finished_offset=draw(UINT64),
        created_time=draw(st.none() | st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1)),
        barriers=draw(st.lists(st.sampled_from(BARRIERS), max_size=3)),
        needed_bytes=draw(UINT64),
        finished_bytes=draw(UINT64),
        shares=draw(st.lists(st.sampled_from(SHARES), max_size=3)),
        finished_share_records=draw(UINT64),
        finished_share_bytes=draw(UINT64),
        first_seq=draw(UINT64),
    )
    if newer:
        status.MergeFromString(draw(UNKNOWN))
    return status
