"""The messages of replicas on hosts: offers of segments, their content, and what a host holds.

Field names are those of the contract, which describes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.model import Extent

CONTENT_BYTES_MAX = 1 << 20
"""Most content of one answer with a part of a file."""

TRANSIT_BYTES_MAX = 4 << 20
"""Most content of one :class:`SegmentTransit`. Each message costs time besides its bytes."""

ACCEPTED, ACKED, REFUSED = "accepted", "acked", "declined"
"""States of a :class:`SegmentAnswer`."""


class ReplicaPlacement(Struct, frozen=True):
    """One assignment of a tablet to a host, and the incarnation of the host's disk."""

    host: str
    placement: str
    incarnation: str


class LogPosition(Struct, frozen=True):
    """Up to which offset a state has the records of a source: a term's log, or an import (a negative number)."""

    term: int
    offset: int


class SegmentRecord(Struct, frozen=True):
    """One step of a tablet's data; see ``bookkeeper.replicas.values.Segment``."""

    segment_id: int
    base: int | None
    is_major: bool
    included: tuple[int, ...]
    files: tuple[str, ...]
    retained: tuple[str, ...]
    logs: tuple[LogPosition, ...]


class ReplicaFile(Struct, frozen=True):
    """A segment file: its name on every host, its bytes, their CRC-32C, its JSON in the books."""

    name: str
    size_bytes: int
    crc32c: int
    entry: bytes


class SegmentOffer(Struct, frozen=True):
    """A segment of a tablet for one replica. ``files``: each file of its list. ``state``: JSON, as in the books.
    ``as_of_ms``: the sender confirms that the state after it has every write acknowledged until then; None = unknown.
    """

    extent: Extent
    directory: str
    term: int
    leader: str | None
    sender: ReplicaPlacement
    receiver: ReplicaPlacement
    segment: SegmentRecord
    files: tuple[ReplicaFile, ...]
    state: bytes
    as_of_ms: int | None = None


class FileNeed(Struct, frozen=True):
    """A file that the receiver lacks, from the byte ``start`` on."""

    name: str
    start: int


class SegmentAnswer(Struct, frozen=True):
    """``state`` is accepted (send what is in ``need``), acked (the segment is durable here) or declined, for a
    ``reason`` (E-70) with a ``problem`` in words. ``root`` is the receiver's newest state.
    """

    state: str
    reason: str
    problem: str
    placement: ReplicaPlacement
    root: int | None = None
    need: tuple[FileNeed, ...] = ()


class SegmentTransit(Struct, frozen=True):
    """Content of a file of an accepted segment, from position ``start`` on. The receiver has it until its answer."""

    table_id: str
    directory: str
    sender: ReplicaPlacement
    receiver: ReplicaPlacement
    segment_id: int
    file: str
    start: int
    content: bytes


class SegmentAck(Struct, frozen=True):
    """The bytes of the file that are here; with the last byte of all files the ``answer`` to the segment."""

    file: str
    held_bytes: int
    answer: SegmentAnswer | None = None


class ReplicaContent(Struct, frozen=True):
    """Content of a file on a host, with the size and the CRC-32C of the complete file."""

    size_bytes: int
    crc32c: int
    content: bytes


class FileRequest(Struct, frozen=True):
    """A part of a file of a replica, from position ``start`` on, for a replica whose copy is damaged. A host that holds
    the file with this size and checksum answers.
    """

    table_id: str
    directory: str
    receiver: ReplicaPlacement
    file: str
    size_bytes: int
    crc32c: int
    start: int


class HeldSegment(Struct, frozen=True):
    """A segment in a replica's list, whether each file of its state is here, and who else acknowledged it. ``bytes``:
    of the files that it brings, as far as they are here.
    """

    segment: SegmentRecord
    is_complete: bool
    acked: tuple[ReplicaPlacement, ...]
    bytes: int = 0  # the name in the contract


class ReplicaLag(Struct, frozen=True):
    """How many segments a host has not acknowledged, and at most how many bytes have to go there."""

    host: str
    lacking: int
    bytes: int = 0  # the name in the contract


class UnlistedFile(Struct, frozen=True):
    """A file on a host that the newest state there does not list. ``in_use``: by a reader, by a copy to another host,
    or by a segment that is under way to this one.
    """

    name: str
    bytes: int  # the name in the contract
    in_use: bool


class HeldReplicaInfo(Struct, frozen=True):
    """One tablet's replica on a host. ``complete``: states of which it has each file; ``lags``: of a leader;
    ``segments`` and ``unlisted``: empty unless segments were asked for; ``incoming_bytes``: of segments under way;
    ``damaged``: files that are to be replaced by sound copies.
    """

    extent: Extent
    directory: str
    placement: ReplicaPlacement
    stage: str
    term: int
    leader: str | None
    is_leader: bool
    root: int | None
    complete: tuple[int, ...]
    files: int
    bytes: int  # the name in the contract
    lags: tuple[ReplicaLag, ...] = ()
    segments: tuple[HeldSegment, ...] = ()
    incoming_bytes: int = 0
    unlisted: tuple[UnlistedFile, ...] = ()
    damaged: tuple[str, ...] = ()


class HeldReplicas(Struct, frozen=True):
    """The replicas on a host; ``damaged``: ``table/directory`` of those that can't be read, and why."""

    replicas: tuple[HeldReplicaInfo, ...]
    damaged: Mapping[str, str]


class StateConfirmation(Struct, frozen=True):
    """A leader's word that a state, which the receiver has, lacks no write that was acknowledged until ``as_of_ms``."""

    table_id: str
    directory: str
    receiver: ReplicaPlacement
    term: int
    state_id: int
    as_of_ms: int
