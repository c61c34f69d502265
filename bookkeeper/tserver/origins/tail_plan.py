"""The records of a given-up log's tail that its tablet lacks, as one stream (N6, R18 and R22).

While the log was away, other clusters may have sent some of the tail's records again, by the same stream or by another
path. A block of users' records came nowhere else. Arrives: the blocks of the tail in order, and the tablet's
high-waters and intervals now. Leaves: the records to apply with the sequence numbers that they have, and the progress
that they bring. Pure; the commit thread applies the result at once, so nothing changes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from bookkeeper.errors import UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.origins import Root, RootIntervals, Runs, root_of
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, block_origins_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.origins.origin_dedup import IntervalsOf, unknown_records
from bookkeeper.tserver.tablets.tablet import MergedBlock, ReceivedBlock, tablet_records


class _Progress(Struct):
    """The tablet's progress, with the blocks that were planned before."""

    high_water_of: Callable[[StreamKey], int]
    intervals_before: IntervalsOf
    high_waters: dict[StreamKey, int] = field(default_factory=dict)
    intervals: dict[Root, RootIntervals] = field(default_factory=dict)

    def high_water(self, stream: StreamKey) -> int:
        return self.high_waters.get(stream, self.high_water_of(stream))

    def of(self, root: Root) -> RootIntervals:
        return self.intervals.get(root) or self.intervals_before(root)


def plan_merge(
    tail: Iterable[Block], high_water_of: Callable[[StreamKey], int], intervals_of: IntervalsOf
) -> list[MergedBlock]:
    """The blocks of a tail that are new to its tablet. Raises UnavailableError when a block is known in part and its
    header does not tell which of its records are: it waits until its source has sent the rest.
    """
    progress = _Progress(high_water_of, intervals_of)
    return [planned for block in tail if (planned := _planned(block, progress)) is not None]


def has_gap(headers: Iterable[BlockHeader], high_water_of: Callable[[StreamKey], int]) -> bool:
    """Whether earlier records of a stream may lie elsewhere: a block of a tail begins behind the records of its stream
    that the tablet has, with the blocks before it.
    """
    reached: dict[StreamKey, int] = {}
    for header in headers:
        if header.HasField("origin"):
            stream = stream_from_pb(header.origin.stream)
            high_water = reached.get(stream, high_water_of(stream))
            if header.origin.after_offset > high_water:
                return True
            reached[stream] = max(high_water, header.origin.to_offset)
    return False


def is_known(high_water: int, to_offset: int) -> bool:
    """Rule R18: whether the tablet has had a block's part of its stream again."""
    return to_offset <= high_water


def _planned(block: Block, progress: _Progress) -> MergedBlock | None:
    header = block.header
    if not header.HasField("origin"):
        return MergedBlock(block.batch(), header.first_seq, header.write_time_ms)
    stream = stream_from_pb(header.origin.stream)
    high_water, to_offset = progress.high_water(stream), header.origin.to_offset
    if is_known(high_water, to_offset):
        return None
    origins = block_origins_from_pb(header.block_origins, root_of(stream))
    new = _new_records(block, origins, high_water > header.origin.after_offset, progress.of)
    progress.high_waters[stream] = to_offset
    changed = _claimed(origins, progress, header.write_time_ms)
    batch = None if new is None else new.records.batch
    return MergedBlock(batch, header.first_seq, header.write_time_ms, stream, to_offset, changed)


def _claimed(origins: BlockOrigins, progress: _Progress, time_ms: int) -> Mapping[Root, RootIntervals]:
    changed = {}
    for claim in origins.claims:
        progress.intervals[claim.root] = changed[claim.root] = progress.of(claim.root).taking(claim.part, time_ms)
    return changed


def _new_records(
    block: Block, origins: BlockOrigins, overlaps: bool, intervals_of: IntervalsOf
) -> ReceivedBlock | None:
    """The records of a received block that no other message has brought."""
    received = ReceivedBlock(block.first_offset, block.last_offset, tablet_records(block.batch()), origins)
    if origins.records:
        return unknown_records(received, intervals_of)
    known = [_known_runs(origins, root, intervals_of) for root in {claim.root for claim in origins.claims}]
    if not overlaps and not any(met for met, _ in known):
        return received
    if known and all(is_whole for _, is_whole in known):
        return None
    raise UnavailableError(
        f"records {block.first_offset} to {block.last_offset} of a given-up log came again in part, by another "
        "message: their merge waits until the source has sent all of them"
    )


def _known_runs(origins: BlockOrigins, root: Root, intervals_of: IntervalsOf) -> tuple[bool, bool]:
    """Whether some, and whether all, of a root's claimed records are here."""
    met, is_whole = False, True
    parts = intervals_of(root).parts
    for claim in origins.claims:
        if claim.root != root:
            continue
        left: Runs = claim.part.runs
        for part in parts:
            met = met or part.runs.meets(claim.part.runs)
            if claim.part.rows.part_in(part.rows) == claim.part.rows and part.family in (None, claim.part.family):
                left = left - part.runs
        is_whole = is_whole and not len(left)
    return met, is_whole
