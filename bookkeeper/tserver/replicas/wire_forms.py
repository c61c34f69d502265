"""Values of the machine as messages of the contract, and back. Pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.messages import Reason
from bookkeeper.replicas.progress import files_to_send, progress
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Placement, Replica, Segment
from bookkeeper.rpc.contract.messages import (
    ACCEPTED,
    ACKED,
    REFUSED,
    FileNeed,
    HeldReplicaInfo,
    HeldSegment,
    LogPosition,
    ReplicaFile,
    ReplicaLag,
    ReplicaPlacement,
    SegmentAnswer,
    SegmentRecord,
    UnlistedFile,
)
from bookkeeper.storage.replicas.manifest import HeldFile, Manifest


def placement_message(host: str, placement: Placement) -> ReplicaPlacement:
    """A placement with its host."""
    return ReplicaPlacement(host, placement.id, placement.incarnation)


def placement_of(message: ReplicaPlacement) -> Placement:
    """The placement without its host."""
    return Placement(message.placement, message.incarnation)


def own_placement(replica: Replica) -> ReplicaPlacement:
    """The placement of a replica on this host."""
    return placement_message(replica.host, replica.placement)


def segment_message(segment: Segment) -> SegmentRecord:
    """A segment for another host; inverse of :func:`segment_of`."""
    return SegmentRecord(
        segment.id,
        segment.base,
        segment.is_major,
        segment.included,
        segment.files,
        segment.retained,
        tuple(LogPosition(term, offset) for term, offset in segment.logs),
    )


def segment_of(record: SegmentRecord) -> Segment:
    """A segment from another host."""
    return Segment(
        record.segment_id,
        record.base,
        record.is_major,
        record.included,
        record.files,
        record.retained,
        tuple((position.term, position.offset) for position in record.logs),
    )


def file_message(file: HeldFile) -> ReplicaFile:
    """The facts about a file, for another host; inverse of :func:`file_of`."""
    return ReplicaFile(file.name, file.size_bytes, file.crc32c, file.entry)


def file_of(message: ReplicaFile) -> HeldFile:
    """The facts about a file of another host."""
    return HeldFile(message.name, message.size_bytes, message.crc32c, message.entry)


def accepted(replica: Replica, need: tuple[FileNeed, ...]) -> SegmentAnswer:
    """SEGMENT_ACCEPT."""
    return SegmentAnswer(ACCEPTED, "", "", own_placement(replica), replica.root, need)


def acked(replica: Replica) -> SegmentAnswer:
    """The last SEGMENT_ACK."""
    return SegmentAnswer(ACKED, "", "", own_placement(replica), replica.root)


def declined(placement: ReplicaPlacement, root: int | None, reason: Reason, problem: str = "") -> SegmentAnswer:
    """SEGMENT_DECLINE."""
    return SegmentAnswer(REFUSED, reason.value, problem, placement, root)


# ---- what a host holds


def replica_info(
    manifest: Manifest, with_segments: bool, incoming_bytes: int = 0, in_use: Collection[str] = ()
) -> HeldReplicaInfo:
    """One tablet's replica on this host. ``incoming_bytes``: of segments under way to it; ``in_use``: the files that
    readers use.
    """
    replica = manifest.replica
    return HeldReplicaInfo(
        extent=manifest.extent,
        directory=manifest.key.directory,
        placement=own_placement(replica),
        stage=replica.stage.value,
        term=replica.term,
        leader=replica.leader,
        is_leader=replica.is_leader,
        root=replica.root,
        complete=tuple(e.segment.id for e in replica.entries if replica.files.issuperset(e.segment.list)),
        files=len(manifest.files),
        damaged=tuple(sorted(replica.damaged)),
        bytes=_bytes_of(manifest, manifest.files),
        lags=_lags(manifest) if replica.is_leader else (),
        segments=_segments(manifest) if with_segments else (),
        incoming_bytes=incoming_bytes,
        unlisted=_unlisted(manifest, in_use) if with_segments else (),
    )


def with_incoming(info: HeldReplicaInfo, incoming_bytes: int) -> HeldReplicaInfo:
    """The same facts, with the bytes of segments under way."""
    return replace(info, incoming_bytes=incoming_bytes) if incoming_bytes else info


def _bytes_of(manifest: Manifest, names: Collection[str]) -> int:
    return sum(manifest.files[name].size_bytes for name in names if name in manifest.files)


def _lags(manifest: Manifest) -> tuple[ReplicaLag, ...]:
    replica = manifest.replica
    return tuple(
        ReplicaLag(
            lag.host,
            len(lag.lacking),
            _bytes_of(manifest, files_to_send(replica, lag.target, CORRECTED)) if lag.lacking else 0,
        )
        for lag in progress(replica, CORRECTED)
    )


def _segments(manifest: Manifest) -> tuple[HeldSegment, ...]:
    replica = manifest.replica
    hosts = {target.placement: target.host for target in replica.targets}
    return tuple(
        HeldSegment(
            segment_message(entry.segment),
            replica.files.issuperset(entry.segment.list),
            tuple(placement_message(hosts[one], one) for one in sorted(entry.acked) if one in hosts),
            _bytes_of(manifest, entry.segment.files),
        )
        for entry in replica.entries
    )


def _unlisted(manifest: Manifest, in_use: Collection[str]) -> tuple[UnlistedFile, ...]:
    replica = manifest.replica
    used = {*in_use, *(name for incoming in replica.incoming for name in incoming.segment.list)}
    names = sorted(replica.files.difference(files_of(replica, replica.root, CORRECTED)))
    return tuple(UnlistedFile(name, manifest.files[name].size_bytes, name in used) for name in names)
