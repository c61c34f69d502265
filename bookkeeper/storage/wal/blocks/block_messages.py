"""Values of ``bookkeeper.model`` to and from the messages of a block header. Pure.

The messages live inside WAL files, so every function here is part of the file format (``block.proto``). A field that is
unknown here stays in the message.
"""

from __future__ import annotations

from bookkeeper.model import BlockTarget, Origin, StreamKey, TargetKey, TargetShare
from bookkeeper.storage.wal.blocks import block_pb2 as pb


def target_from_pb(message: pb.BlockTarget) -> TargetKey:
    """The target of a block, without its groups (rule R5)."""
    return TargetKey(message.cluster, message.remote_table_id, message.source_table_id, message.incarnation)


def block_target_to_pb(block_target: BlockTarget) -> pb.BlockTarget:
    """A target in force, as a block carries it (rule R13)."""
    return pb.BlockTarget(
        cluster=block_target.target.cluster,
        remote_table_id=block_target.target.remote_table_id,
        source_table_id=block_target.target.source_table_id,
        incarnation=block_target.target.incarnation,
        all_groups=block_target.groups is None,
        groups=block_target.groups or (),
    )


def block_target_from_pb(message: pb.BlockTarget) -> BlockTarget:
    """Inverse of :func:`block_target_to_pb`."""
    return BlockTarget(target_from_pb(message), None if message.all_groups else tuple(message.groups))


def shares_from_pb(header: pb.BlockHeader) -> tuple[TargetShare, ...]:
    """Each target's share of the file up to this block, sorted; the targets are those of the block (R13)."""
    numbers = zip(header.block_targets, header.target_records, header.target_bytes, strict=False)
    return tuple(
        sorted(TargetShare(target_from_pb(block_target), records, size) for block_target, records, size in numbers)
    )


def stream_to_pb(stream: StreamKey) -> pb.Stream:
    """The stream that a received block belongs to (rule R18)."""
    return pb.Stream(
        source_instance_id=stream.source_instance_id,
        file=stream.file,
        source_table_id=stream.source_table_id,
        target_table_id=stream.target_table_id,
        incarnation=stream.incarnation,
        run_id=stream.run_id,
    )


def stream_from_pb(message: pb.Stream) -> StreamKey:
    """Inverse of :func:`stream_to_pb`."""
    return StreamKey(
        message.source_instance_id,
        message.file,
        message.source_table_id,
        message.target_table_id,
        message.incarnation,
        message.run_id,
    )


def origin_to_pb(origin: Origin) -> pb.Origin:
    """The part of a stream that a block is: everything in (after, to] for its tablet (rule R18)."""
    return pb.Origin(stream=stream_to_pb(origin.stream), after_offset=origin.after_offset, to_offset=origin.to_offset)


def origin_from_pb(message: pb.Origin) -> Origin:
    """Inverse of :func:`origin_to_pb`."""
    return Origin(stream_from_pb(message.stream), message.after_offset, message.to_offset)
