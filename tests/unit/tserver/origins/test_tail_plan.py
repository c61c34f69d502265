"""The tail of a given-up log brings each record once, whatever other clusters have sent again (R18, R22, N6)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.model import Origin, StreamKey
from bookkeeper.origins import Part, Root, RootIntervals, Runs, root_of
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import origin_to_pb
from bookkeeper.storage.wal.blocks.block_origins import EVERY_ROW, BlockOrigins, Claim, block_origins_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.origins.tail_plan import plan_merge
from bookkeeper.tserver.tablets.tablet import MergedBlock
from tests.support.faults import fault
from tests.support.tservers import records

STREAM = StreamKey("east", "their.wal", "7", "1", 1)
ROOT = root_of(STREAM)
OTHER = Root("north", "first.wal", "3")


def own(*rows: bytes) -> Block:
    """A block of users' records."""
    payload = encode_batch(records([(row, b"v") for row in rows], timestamp=1))
    return Block(BlockHeader(table_id="1", record_count=len(rows), first_seq=5, write_time_ms=70), payload)


def received(after: int, to: int, *rows: bytes, origins: BlockOrigins | None = None) -> Block:
    """A block with this part of the stream."""
    block = own(*rows)
    header = block.header
    header.origin.CopyFrom(origin_to_pb(Origin(STREAM, after, to)))
    if origins is not None:
        header.block_origins.CopyFrom(block_origins_to_pb(origins, ROOT))
    return block


def claim(root: Root, first: int, last: int) -> Claim:
    return Claim(root, Part(EVERY_ROW, None, Runs.of((first, last))))


def have(root: Root, first: int, last: int) -> dict[Root, RootIntervals]:
    """The intervals of a tablet that has these records of a root."""
    return {root: RootIntervals().taking(claim(root, first, last).part, 1)}


def planned(
    tail: Iterable[Block], high_water: int = 0, intervals: dict[Root, RootIntervals] | None = None
) -> list[MergedBlock]:
    known = intervals or {}
    return plan_merge(tail, lambda _: high_water, lambda root: known.get(root, RootIntervals()))


def rows_of(merged: Iterable[MergedBlock]) -> list[bytes]:
    return [row for one in merged if one.batch is not None for row in one.batch.column("row").to_pylist()]


def test_users_records_keep_their_numbers_and_their_time() -> None:
    (merged,) = planned([own(b"a", b"b")])
    assert rows_of([merged]) == [b"a", b"b"]
    assert (merged.first_seq, merged.write_time_ms, merged.stream) == (5, 70, None)


def test_r18_a_block_that_came_again_is_left_out() -> None:
    ends = [BlockOrigins(((ROOT, Runs.of((to, to))),), ()) for to in (10, 20, 30)]
    tail = [
        received(to - 10, to, row, origins=end)
        for to, row, end in zip((10, 20, 30), (b"a", b"b", b"c"), ends, strict=True)
    ]
    merged = planned(tail, high_water=20)
    assert rows_of(merged) == [b"c"], "R18: records that their source has sent again are applied twice"
    assert [(one.stream, one.high_water) for one in merged] == [(STREAM, 30)]


def test_red_r18_all_blocks_are_new() -> None:
    with fault("tails-are-all-new"), pytest.raises(AssertionError, match="R18: records that their source"):
        test_r18_a_block_that_came_again_is_left_out()


def test_a_tail_is_one_stream() -> None:
    tail = [received(0, 10, b"a"), received(0, 10, b"a"), received(10, 20, b"b")]
    assert rows_of(planned(tail)) == [b"a", b"b"]


def test_r22_records_of_another_path_are_left_out_one_by_one() -> None:
    origins = BlockOrigins(((OTHER, Runs.of((4, 6))),), (claim(OTHER, 4, 6),))
    merged = planned([received(0, 10, b"a", b"b", b"c", origins=origins)], 0, have(OTHER, 1, 5))
    assert rows_of(merged) == [b"c"]
    assert merged[0].intervals[OTHER].runs_of(EVERY_ROW, None) == Runs.of((1, 6))


def test_r22_without_the_origin_of_each_record_all_or_none_are_known() -> None:
    origins = BlockOrigins((), (claim(OTHER, 4, 6),))
    block = received(0, 10, b"a", b"b", b"c", origins=origins)
    assert rows_of(planned([block])) == [b"a", b"b", b"c"]
    merged = planned([block], 0, have(OTHER, 1, 6))
    assert rows_of(merged) == []
    assert merged[0].high_water == 10
    with pytest.raises(UnavailableError, match="came again in part, by another message"):
        planned([block], 0, have(OTHER, 1, 5))


def test_a_block_that_its_source_has_sent_in_part_waits_for_the_rest() -> None:
    with pytest.raises(UnavailableError, match="waits until the source has sent all of them"):
        planned([received(0, 10, b"a", b"b")], high_water=5)
    origins = BlockOrigins(((ROOT, Runs.of((5, 6))),), (claim(ROOT, 5, 6),))
    assert rows_of(planned([received(0, 10, b"a", b"b", origins=origins)], 5, have(ROOT, 1, 5))) == [b"b"]
