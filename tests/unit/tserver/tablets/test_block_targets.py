"""R13: a block says which targets were in force when it was written, and which groups it holds."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.errors import NotFoundError
from bookkeeper.model import BlockTarget, LocalityGroup, Target, TargetKey
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb
from bookkeeper.tserver.tablets.block_targets import groups_present, view_of

NARROW = Target(TargetKey("east", "r1", "1", 3), ("a",), "east-id", "there")
WIDE = Target(TargetKey("south", "r9", "1", 4), None, "south-id", "there")


def config(*targets: Target, state: str = "online") -> ClusterConfig:
    groups = (LocalityGroup("a", (b"f1", b"f2")), LocalityGroup("b", (b"f3",)))
    table = TableConfig("1", "tweets", state, groups, {}, targets)  # type: ignore[arg-type]
    return ClusterConfig(9, None, {}, {"1": table})


def test_r13_a_block_names_every_target_in_force_and_its_groups() -> None:
    block_targets = view_of(config(NARROW, WIDE)).table("1").block_targets
    assert [block_target_from_pb(block_target) for block_target in block_targets] == [
        BlockTarget(NARROW.key, ("a",)),
        BlockTarget(WIDE.key, None),
    ], "R13: the stamps of a block are not its targets"


def test_without_targets_a_block_names_none() -> None:
    assert view_of(config()).table("1").block_targets == ()


def test_a_header_lists_the_groups_present_with_their_families() -> None:
    groups = view_of(config()).table("1").groups
    found = {group.name: list(group.families) for group in groups_present([b"f2", b"zz", b"f1"], groups)}
    assert found == {"a": [b"f1", b"f2"], "default": [b"zz"]}


def test_a_table_that_is_being_deleted_or_is_not_there_takes_no_writes() -> None:
    with pytest.raises(NotFoundError):
        view_of(config(state="deleting")).table("1")
    with pytest.raises(NotFoundError):
        view_of(config()).table("2")
