"""What a message says of where its records were first written, one sentence each (R22)."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from bookkeeper.model import BlockTarget, Origin, RowRange, StreamKey
from bookkeeper.origins import Part, Root, Runs, root_of
from bookkeeper.replay.stream.message_origins import block_origins_of, claimed_families, shipped, taken_since
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb, origin_to_pb
from bookkeeper.storage.wal.blocks.block_origins import (
    EVERY_ROW,
    BlockOrigins,
    Claim,
    block_origins_to_pb,
    parse_block_origins,
)
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, Group
from tests.support.ranges import a_range
from tests.support.wal_files import TO_EAST, WEST

RANGE = a_range("w/1.wal", 11, 20)
OWN = root_of(RANGE.stream)
CAME_BY = StreamKey("south", "s/3.wal", "9", "t1", 1)
SOUTH, FAR = root_of(CAME_BY), Root("far", "f/8.wal", "2")
HELD = Part(RowRange(b"a", b"m"), None, Runs.of((1, 7)))


def header(groups: tuple[str, ...] | None = None, since: int = 5) -> BlockHeader:
    """Three records from 11 on, of groups g (families a and b) and h (family c)."""
    return BlockHeader(
        first_offset=11,
        record_count=3,
        table_id="t1",
        groups=[Group(name="g", families=[b"a", b"b"]), Group(name="h", families=[b"c"])],
        block_targets=[block_target_to_pb(BlockTarget(TO_EAST, groups))],
        since=since,
    )


def received(block_origins: BlockOrigins, groups: tuple[str, ...] | None = None) -> BlockHeader:
    """The same three records, brought by another cluster."""
    made = header(groups)
    made.origin.CopyFrom(origin_to_pb(Origin(CAME_BY, 40, 43)))
    made.block_origins.CopyFrom(block_origins_to_pb(block_origins, SOUTH))
    return made


def said(block: BlockHeader, *row_indices: int, passed_to: int = 0, run_id: str = "") -> BlockOrigins | None:
    """The block origins for east; ``row_indices``: of these records alone."""
    raw = block_origins_of(
        block,
        replace(RANGE, passed_to=passed_to, run_id=run_id),
        np.array(row_indices, np.int64) if row_indices else None,
    )
    return None if raw is None else parse_block_origins(raw, OWN)


# ---- what was written here


def test_the_root_of_the_stream_itself_is_not_spelled_out() -> None:
    raw = block_origins_of(header(), RANGE, None)
    assert raw is not None
    assert list(pb.BlockOrigins.FromString(raw).roots) == []


def test_a_whole_block_says_nothing_of_its_records_and_claims_its_offsets() -> None:
    assert said(header()) == BlockOrigins((), (Claim(OWN, Part(EVERY_ROW, None, Runs.of((11, 13))), 5),))


def test_of_some_records_their_offsets_are_said_and_the_whole_block_is_claimed_of_their_families() -> None:
    found = said(header(("g",)), 0, 2)
    assert found is not None
    assert found.records == ((OWN, Runs.of((11, 11), (13, 13))),)
    whole = Runs.of((11, 13))
    assert found.claims == tuple(Claim(OWN, Part(EVERY_ROW, family, whole), 5) for family in (b"a", b"b"))
    assert OWN.instance_id == WEST


@pytest.mark.parametrize(
    ("groups", "families"),
    [(None, None), (("g",), {b"a", b"b"}), (("h",), {b"c"}), (("g", "h"), {b"a", b"b", b"c"})],
)
def test_block_targets_name_the_claimed_families(groups: tuple[str, ...] | None, families: set[bytes] | None) -> None:
    assert claimed_families(header(groups), RANGE) == families


def test_a_block_without_the_target_claims_no_families() -> None:
    other = replace(RANGE, target=replace(TO_EAST, incarnation=2))
    assert claimed_families(header(("g",)), other) is None


@pytest.mark.parametrize(
    ("since", "passed_to", "run_id", "expected"),
    [(0, 0, "", 0), (5, 0, "", 5), (5, 3, "", 5), (5, 4, "", 5), (5, 5, "", 6), (5, 9, "", 10), (0, 9, "", 0)],
)
def test_a_target_has_all_from_behind_what_is_in_quarantine(
    since: int, passed_to: int, run_id: str, expected: int
) -> None:
    assert taken_since(since, replace(RANGE, passed_to=passed_to, run_id=run_id)) == expected


def test_a_run_of_its_own_has_only_what_it_is_for() -> None:
    assert taken_since(5, replace(RANGE, run_id="again")) == 0
    found = said(header(), run_id="again")
    assert found is not None
    assert [claim.since for claim in found.claims] == [0]


# ---- what came from another cluster

WHOLE = BlockOrigins(((FAR, Runs.of((70, 71))), (SOUTH, Runs.of((41, 41)))), (Claim(FAR, HELD, 66), Claim(SOUTH, HELD)))


def test_what_came_is_said_as_the_other_cluster_said_it() -> None:
    assert said(received(WHOLE)) == WHOLE


def test_of_some_records_that_came_their_own_offsets_are_said() -> None:
    found = said(received(WHOLE), 1, 2)
    assert found == replace(WHOLE, records=((FAR, Runs.of((71, 71))), (SOUTH, Runs.of((41, 41)))))


def test_what_came_in_part_claims_its_records_alone() -> None:
    found = said(received(replace(WHOLE, partial=True)), 0, 1)
    records = ((FAR, Runs.of((70, 71))),)
    assert found == BlockOrigins(records, (Claim(FAR, Part(EVERY_ROW, None, Runs.of((70, 71)))),))


def test_what_came_claims_the_families_that_travel() -> None:
    found = said(received(WHOLE, ("g",)))
    assert found is not None
    assert [(claim.root, claim.part.family, claim.since) for claim in found.claims] == [
        (FAR, b"a", 66),
        (FAR, b"b", 66),
        (SOUTH, b"a", 0),
        (SOUTH, b"b", 0),
    ]


def test_a_log_that_does_not_keep_where_its_records_were_written_says_nothing() -> None:
    assert said(received(BlockOrigins((), (Claim(FAR, HELD, 66),)))) is None


@pytest.mark.parametrize(("passed_to", "run_id", "since"), [(0, "", 66), (3, "", 0), (0, "again", 0)])
def test_what_lies_behind_quarantine_or_in_a_run_of_its_own_claims_no_beginning(
    passed_to: int, run_id: str, since: int
) -> None:
    current = replace(RANGE, passed_to=passed_to, run_id=run_id)
    assert shipped(Claim(FAR, HELD, 66), current) == Claim(FAR, HELD, since)
    found = said(received(WHOLE), passed_to=passed_to, run_id=run_id)
    assert found is not None
    assert [claim.since for claim in found.claims] == [since, 0]
