"""Accumulo's property names for replication: their values, and the changes that a value causes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError
from bookkeeper.model import DEFAULT_GROUP, TargetKey
from bookkeeper.rpc.contract.messages import ClusterInfo, ReplicationConfig
from shell.replication_properties import (
    GROUP_PREFIX,
    PeerChange,
    TargetChange,
    are_site_properties,
    peer_changes,
    site_values,
    table_values,
    target_changes,
)

PEERS = [ClusterInfo(name, f"{name}:9797", f"instance-{name}") for name in ("east", "far.east", "north")]
GROUPS = ("cf1", "cf2")


def _target(cluster: str, *groups: str, remote: str = "t") -> ReplicationConfig:
    return ReplicationConfig("t", TargetKey(cluster, "r1", "1", 1), groups, remote)


def test_names_of_the_site_are_shown_and_understood() -> None:
    shown = site_values("west", PEERS)
    assert shown["instance.replication.name"] == "west"
    assert shown["instance.cluster.far.east.zookeepers"] == "far.east:9797"
    del shown["instance.replication.name"]
    assert peer_changes(shown, [], []) == [PeerChange(peer.name, peer.quorum) for peer in PEERS]
    assert peer_changes({}, shown, PEERS) == [PeerChange(peer.name, None) for peer in PEERS]


def test_unknown_properties_of_the_site_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"instance\.name"):
        peer_changes({"instance.replication.name": "east"}, [], PEERS)
    for name in ("instance.cluster..zookeepers", "instance.cluster.east", "instance.zookeepers", "instance.cluster."):
        with pytest.raises(InvalidInputError, match="unknown property"):
            peer_changes({name: "h:1"}, [], PEERS)
    with pytest.raises(NotFoundError):
        peer_changes({}, ["instance.cluster.south.zookeepers"], PEERS)
    with pytest.raises(InvalidInputError, match="comes twice"):
        peer_changes({"instance.cluster.east.zookeepers": "h:1"}, ["instance.cluster.east.zookeepers"], PEERS)
    assert not are_site_properties(["table.versions.max"])
    assert not are_site_properties([])
    with pytest.raises(InvalidInputError, match="two commands"):
        are_site_properties(["table.versions.max", "instance.replication.name"])


def test_a_target_of_all_groups_is_shown_at_each() -> None:
    assert table_values(GROUPS, [_target("north"), _target("east", "cf1")]) == {
        "table.replication.cf1": "east,north",
        "table.replication.cf2": "north",
        "table.replication.default": "north",
    }
    assert table_values(GROUPS, []) == {}


def test_each_peer_is_changed_once_and_other_groups_stay_in_their_remote_table() -> None:
    targets = [_target("north", "cf2", remote="copy"), _target("east", "cf1", "cf2")]
    requested = {"table.replication.cf1": "north", "table.replication.default": "north, far.east"}
    assert target_changes(requested, ["table.replication.cf2"], GROUPS, targets, PEERS) == [
        TargetChange("north", ("cf1", "default"), True, "copy"),
        TargetChange("far.east", ("default",), True, None),
        TargetChange("east", ("cf1", "cf2"), False),
        TargetChange("north", ("cf2",), False),
    ]


_names = st.sampled_from([peer.name for peer in PEERS])
_groups = st.sampled_from([*GROUPS, DEFAULT_GROUP])
_targets = st.builds(
    lambda cluster, groups: _target(cluster, *groups), _names, st.lists(_groups, max_size=3, unique=True)
)


@given(st.lists(_targets, max_size=4), st.dictionaries(_groups, st.lists(_names, max_size=3, unique=True), min_size=1))
def test_changes_set_the_requested_properties_and_no_others(
    targets: list[ReplicationConfig], requested: dict[str, list[str]]
) -> None:
    peers_by_group = {
        group: {target.target.cluster for target in targets if not target.groups or group in target.groups}
        for group in (*GROUPS, DEFAULT_GROUP)
    }
    wanted = {f"{GROUP_PREFIX}{group}": ",".join(peers) for group, peers in requested.items()}
    for change in target_changes(wanted, [], GROUPS, targets, PEERS):
        for group in change.groups:
            assert (change.cluster in peers_by_group[group]) != change.is_enabled, "a change repeats the present state"
            (peers_by_group[group].add if change.is_enabled else peers_by_group[group].remove)(change.cluster)
    assert {group: peers_by_group[group] for group in requested} == {
        group: set(peers) for group, peers in requested.items()
    }
    assert (
        target_changes(
            wanted,
            [],
            GROUPS,
            [_target(peer, group) for group in peers_by_group for peer in peers_by_group[group]],
            PEERS,
        )
        == []
    )
