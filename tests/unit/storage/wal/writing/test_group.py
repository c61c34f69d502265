"""Merging small neighbours: one block says of each record exactly what its own header said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import BlockTarget, Origin, StreamKey
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb, origin_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, Group, Predecessor
from bookkeeper.storage.wal.writing.block_merge import MergeLimits, check_draft, form_blocks
from tests.support.faults import fault
from tests.support.wal_files import TO_EAST, records

LIMITS = MergeLimits()


def place(headers_and_rows: list[tuple[BlockHeader, list[bytes]]]) -> list[PlacedBlock]:
    placed, offset = [], 1
    for header, rows in headers_and_rows:
        header.min_row, header.max_row = min(rows), max(rows)
        placed.append(PlacedBlock("w", offset, DraftBlock(header, records(rows))))
        offset += len(rows)
    return placed


def header(first_seq: int, **more: object) -> BlockHeader:
    made = BlockHeader(table_id="t1", first_seq=first_seq)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_neighbours_of_one_tablet_become_one_block() -> None:
    one, two = header(7, write_time_ms=5), header(9, write_time_ms=6)
    one.groups.add(name="g", families=[b"f"])
    two.groups.extend([Group(name="g", families=[b"e", b"f"]), Group(name="h", families=[b"x"])])
    placed = place([(one, [b"m", b"n"]), (two, [b"a", b"z", b"k"])])
    (block,) = form_blocks(placed, LIMITS)
    assert (block.first_offset, block.last_offset) == (1, 5)
    assert block.batch().column("row").to_pylist() == [b"m", b"n", b"a", b"z", b"k"]
    assert (block.header.min_row, block.header.max_row) == (b"a", b"z")
    assert (block.header.first_seq, block.header.write_time_ms) == (7, 6)
    assert {g.name: list(g.families) for g in block.header.groups} == {"g": [b"f", b"e"], "h": [b"x"]}
    assert one.first_offset == 0, "drafts stay as they were"
    assert [g.name for g in one.groups] == ["g"]


def _stamp(made: BlockHeader) -> None:
    made.block_targets.append(block_target_to_pb(BlockTarget(TO_EAST, None)))


def _origin(made: BlockHeader) -> None:
    made.origin.CopyFrom(origin_to_pb(Origin(StreamKey("i", "f", "s", "t", 1), 0, 5)))


def _other_tablet(made: BlockHeader) -> None:
    made.end_row = b""


def _after(made: BlockHeader) -> None:
    made.after.append(Predecessor(file="v", offset=3))


def _provenance(made: BlockHeader) -> None:
    made.provenance.append("elsewhere")


def _table(made: BlockHeader) -> None:
    made.table_id = "t2"


def _gap(made: BlockHeader) -> None:
    made.first_seq += 1


def _compression(made: BlockHeader) -> None:
    made.compression = "lz4"


@pytest.mark.parametrize("change", [_stamp, _origin, _other_tablet, _after, _provenance, _table, _gap, _compression])
def test_neighbours_that_differ_stay_apart(change: Callable[[BlockHeader], None]) -> None:
    second = header(2)
    change(second)
    blocks = form_blocks(place([(header(1), [b"a"]), (second, [b"b"])]), LIMITS)
    assert [block.header.record_count for block in blocks] == [1, 1]


def check_received_blocks_stay_apart() -> None:
    """Rule R18: one range of a stream, one block, for its header is the high-water."""
    first = header(1)
    _origin(first)
    assert len(form_blocks(place([(first, [b"a"]), (header(2), [b"b"])]), LIMITS)) == 2, (
        "R18: a received block merges with its neighbour"
    )


def test_what_was_received_stays_a_block_of_its_own() -> None:
    check_received_blocks_stay_apart()


def test_merged_with_its_neighbours_it_would_claim_them() -> None:
    with fault("everything-merges"), pytest.raises(AssertionError, match="a received block merges with its neighbour"):
        check_received_blocks_stay_apart()


def test_the_first_of_a_block_may_follow_another_file() -> None:
    first = header(1)
    _after(first)
    (block,) = form_blocks(place([(first, [b"a"]), (header(2), [b"b"])]), LIMITS)
    assert block.header.after[0].offset == 3


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 20), st.integers(1, 2000))
def test_every_record_is_in_one_block_in_order(sizes: list[int], records_max: int, bytes_max: int) -> None:
    drafts, seq = [], 1
    for index, size in enumerate(sizes):
        drafts.append((header(seq), [b"%d.%d" % (index, i) for i in range(size)]))
        seq += size
    limits = MergeLimits(merge_records_max=records_max, merge_bytes_max=bytes_max)
    blocks = form_blocks(place(drafts), limits)
    rows = [row for block in blocks for row in block.batch().column("row").to_pylist()]
    assert rows == [row for _, rows in drafts for row in rows]
    assert [block.header.first_seq for block in blocks] == [block.first_offset for block in blocks]
    assert [b.first_offset for b in blocks[1:]] == [b.last_offset + 1 for b in blocks[:-1]]
    assert all(block.header.record_count <= max(records_max, *sizes) for block in blocks)


def test_headers_stay_below_the_limit_of_the_format() -> None:
    def wide(seq: int) -> BlockHeader:
        made = header(seq)
        made.groups.add(name="g", families=[b"%d" % seq + bytes(400_000)])
        return made

    blocks = form_blocks(place([(wide(1), [b"a"]), (wide(2), [b"b"]), (wide(3), [b"c"])]), LIMITS)
    assert [block.header.record_count for block in blocks] == [2, 1]
    made = wide(1)
    made.groups.add(name="h", families=[bytes(700_000)])
    with pytest.raises(InvalidInputError, match="header"):
        check_draft(DraftBlock(made, records([b"a"])), LIMITS)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_drafts_may_ask_for_compression(compression: str) -> None:
    (block,) = form_blocks(place([(header(1, compression=compression), [b"a" * 1000] * 50)]), LIMITS)
    assert block.payload.size < 10_000
    assert block.batch().num_rows == 50
    with pytest.raises(InvalidInputError, match="snappy"):
        check_draft(DraftBlock(header(1, compression="snappy"), records([b"a"])), LIMITS)


def test_unknown_fields_of_a_newer_version_are_kept() -> None:
    newer = BlockHeader.FromString(header(1).SerializeToString() + b"\xaa\x06\x03new")
    first = place([(newer, [b"a"]), (header(2), [b"b"])])
    (block,) = form_blocks(first, LIMITS)
    assert b"\xaa\x06\x03new" in block.header.SerializeToString()
