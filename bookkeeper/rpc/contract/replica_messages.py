"""The messages of replicas on hosts: offers of segments, their content, and what a host holds.

Field names are those of the contract, which describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.model import Extent

CONTENT_BYTES_MAX = 1 << 20
"""Most content of one answer with a part of a file."""

TRANSIT_BYTES_MAX = 4 << 20
"""Most content of one :class:`SegmentTransit`. Each message costs time besides its bytes."""

ACCEPTED, ACKED, REFUSED = "accepted", "acked", "declined"
"""States of a :class:`SegmentAnswer`."""


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    """One assignment of a tablet to a host, and the incarnation of the host's disk."""

    host: str
    placement: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Up to which offset a state has the records of a source: a term's log, or an import (a negative number)."""

    term: int
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One step of a tablet's data; see ``bookkeeper.replicas.values.Segment``."""

    segment_id: int
    base: int | None
    is_major: bool
    included: tuple[int, ...]
    files: tuple[str, ...]
    retained: tuple[str, ...]
    logs: tuple[LogPosition, ...]


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    """A segment file: its name on every host, its bytes, their CRC-32C, its JSON in the books."""

    name: str
    size_bytes: int
    crc32c: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class SegmentOffer:
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


@dataclass(frozen=True, slots=True)
class FileNeed:
    """A file that the receiver lacks, from the byte ``start`` on."""

    name: str
    start: int


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """``state`` is accepted (send what is in ``need``), acked (the segment is durable here) or declined, for a
    ``reason`` (E-70) with a ``problem`` in words. ``root`` is the receiver's newest state.
    """

    state: str
    reason: str
    problem: str
    placement: ReplicaPlacement
    root: int | None = None
    need: tuple[FileNeed, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentTransit:
    """Content of a file of an accepted segment, from position ``start`` on. The receiver has it until its answer."""

    table_id: str
    directory: str
    sender: ReplicaPlacement
    receiver: ReplicaPlacement
    segment_id: int
    file: str
    start: int
    content: bytes


@dataclass(frozen=True, slots=True)
class SegmentAck:
    """The bytes of the file that are here; with the last byte of all files the ``answer`` to the segment."""

    file: str
    held_bytes: int
    answer: SegmentAnswer | None = None


@dataclass(frozen=True, slots=True)
class ReplicaContent:
    """Content of a file on a host, with the size and the CRC-32C of the complete file."""

    size_bytes: int
    crc32c: int
    content: bytes


@dataclass(frozen=True, slots=True)
class FileRequest:
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


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment in a replica's list, whether each file of its state is here, and who else acknowledged it. ``bytes``:
    of the files that it brings, as far as they are here.
    """

    segment: SegmentRecord
    is_complete: bool
    acked: tuple[ReplicaPlacement, ...]
    bytes: int = 0  # the name in the contract


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """How many segments a host has not acknowledged, and at most how many bytes have to go there."""

    host: str
    lacking: int
    bytes: int = 0  # the name in the contract


@dataclass(frozen=True, slots=True)
class UnlistedFile:
    """A file on a host that the newest state there does not list. ``in_use``: by a reader, by a copy to another host,
    or by a segment that is under way to this one.
    """

    name: str
    bytes: int  # the name in the contract
    in_use: bool


@dataclass(frozen=True, slots=True)
class HeldReplicaInfo:
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


@dataclass(frozen=True, slots=True)
class HeldReplicas:
    """The replicas on a host; ``damaged``: ``table/directory`` of those that can't be read, and why."""

    replicas: tuple[HeldReplicaInfo, ...]
    damaged: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StateConfirmation:
    """A leader's word that a state, which the receiver has, lacks no write that was acknowledged until ``as_of_ms``."""

    table_id: str
    directory: str
    receiver: ReplicaPlacement
    term: int
    state_id: int
    as_of_ms: int
