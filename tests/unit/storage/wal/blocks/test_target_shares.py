"""The share of each target in a log: every block has it, and it is exact with any blocks between."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from bookkeeper.model import BlockTarget, TargetKey, TargetShare
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb, shares_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, Group
from bookkeeper.storage.wal.blocks.target_shares import LogShares, note_target_records

EAST, NORTH = TargetKey("east", "r1", "1", 1), TargetKey("north", "r1", "1", 2)
OTHER = TargetKey("east", "r2", "2", 3)
PEERS = {"east": "instance-east", "north": "instance-north"}
GROUPS = {"a": [b"a1", b"a2"], "b": [b"b1"]}


def _block(
    table_id: str,
    families: Sequence[bytes],
    block_targets: Sequence[BlockTarget],
    size: int = 10,
    provenance: Sequence[str] = (),
) -> Block:
    present = {name: [family for family in of if family in families] for name, of in GROUPS.items()}
    header = BlockHeader(
        table_id=table_id,
        record_count=len(families),
        block_targets=map(block_target_to_pb, block_targets),
        provenance=provenance,
        groups=[Group(name=name, families=found) for name, found in present.items() if found],
    )
    note_target_records(
        header, pa.array(families, pa.binary()), [PEERS[block_target.target.cluster] for block_target in block_targets]
    )
    return Block(header, pa.py_buffer(b"x" * size))


def _told(*blocks: Block) -> tuple[TargetShare, ...]:
    LogShares().counting(blocks)
    return shares_from_pb(blocks[-1].header)


def test_records_of_other_tables_count_for_nothing() -> None:
    mine, others = [BlockTarget(EAST, None)], [BlockTarget(OTHER, None)]
    told = _told(
        _block("2", [b"a1"] * 100_000, others, 5_000),
        _block("1", [b"a1"] * 7, mine, 70),
        _block("2", [b"a1"] * 5, others, 50),
        _block("1", [b"a1"] * 3, mine, 30),
    )
    assert told == (TargetShare(EAST, 10, 100),)


def test_a_target_that_begins_or_ends_within_the_log_gets_the_blocks_that_name_it() -> None:
    blocks = [
        _block("1", [b"a1"] * 4, [BlockTarget(EAST, None)]),
        _block("1", [b"a1"] * 2, [BlockTarget(EAST, None), BlockTarget(NORTH, None)]),
        _block("1", [b"a1"] * 8, [BlockTarget(NORTH, None)]),
    ]
    LogShares().counting(blocks)
    assert shares_from_pb(blocks[1].header) == (TargetShare(EAST, 6, 20), TargetShare(NORTH, 2, 10))
    assert shares_from_pb(blocks[2].header) == (TargetShare(NORTH, 10, 20),)


@pytest.mark.parametrize(
    ("groups", "records", "size"),
    [(("a",), 3, 10), (("b",), 2, 10), (("a", "b"), 5, 10), (("none",), 0, 0), (None, 5, 10)],
)
def test_only_the_groups_of_a_target_count_exactly(groups: tuple[str, ...] | None, records: int, size: int) -> None:
    families = [b"a1", b"b1", b"a2", b"a1", b"b1"]
    assert _told(_block("1", families, [BlockTarget(EAST, groups)])) == (TargetShare(EAST, records, size),)


def test_what_has_been_at_the_peer_is_not_for_it() -> None:
    both = [BlockTarget(EAST, None), BlockTarget(NORTH, None)]
    block = _block("1", [b"a1"] * 3, both, provenance=["instance-east"])
    assert _told(block) == (TargetShare(EAST, 0, 0), TargetShare(NORTH, 3, 10))


def test_blocks_that_are_given_up_count_for_nothing() -> None:
    before = LogShares().counting([_block("1", [b"a1"] * 2, [BlockTarget(EAST, None)])])
    before.counting([_block("1", [b"a1"] * 9, [BlockTarget(EAST, None)])])
    again = _block("1", [b"a1"] * 1, [BlockTarget(EAST, None)])
    assert before.counting([again]).totals == {astuple(EAST): (3, 20)}
    assert shares_from_pb(again.header) == (TargetShare(EAST, 3, 20),)


_drawn = st.tuples(
    st.sampled_from(["1", "2"]),
    st.lists(st.sampled_from([b"a1", b"a2", b"b1"]), min_size=1, max_size=9),
    st.sets(st.sampled_from([EAST, NORTH])),
    st.sampled_from([None, ("a",), ("b",)]),
    st.sampled_from([(), ("instance-east",), ("elsewhere",)]),
)


@given(st.lists(_drawn, min_size=1, max_size=12))
def test_the_sums_are_those_of_all_blocks_counted_one_by_one(
    drawn: list[tuple[str, list[bytes], set[TargetKey], tuple[str, ...] | None, tuple[str, ...]]],
) -> None:
    counted: dict[TargetKey, tuple[int, int]] = {}
    blocks = []
    for number, (table_id, families, targets, groups, provenance) in enumerate(drawn, 1):
        block_targets = [BlockTarget(target, groups) for target in sorted(targets)] if table_id == "1" else []
        blocks.append(_block(table_id, families, block_targets, number, provenance))
        wanted = [family for name, of in GROUPS.items() if groups is None or name in groups for family in of]
        for block_target in block_targets:
            travels = PEERS[block_target.target.cluster] not in provenance
            own = sum(family in wanted for family in families) if travels else 0
            records, size = counted.get(block_target.target, (0, 0))
            counted[block_target.target] = records + own, size + number * (own > 0)
    assert LogShares().counting(blocks).totals == {astuple(target): sums for target, sums in counted.items()}
