"""What is left of joins, moves and leaves."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.client.host_admin import MOVING_KINDS, MovesLeft, moves_left
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND
from bookkeeper.master.operations.split_merge import STORE_KIND
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import HostInfo, OperationInfo, ReplicaStanding, TabletReplicas

HOSTS = [HostInfo(f"h{number}", "d", "a", False, 1, 0, 0, 0) for number in (1, 2, 3)]


def tablet(wanted: int, *hosts: str, joining: str = "") -> TabletReplicas:
    """A tablet with voters on these hosts, and one that joins."""
    found = [ReplicaStanding(host, "p", "voter", False, None) for host in hosts]
    found += [ReplicaStanding(joining, "p", "joining", False, None)] if joining else []
    return TabletReplicas(Extent("1", None, None), 0, 2, tuple(found), wanted=wanted)


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (tablet(3, "h1", "h2", "h3"), 0),
        (tablet(1), 0),
        (tablet(3), 3),
        (tablet(3, "h1", "h2", joining="h3"), 1),
        (tablet(3, "h1", joining="h2"), 2),
        (tablet(2, "h1", "h2", "h3"), 1),
        (tablet(1, "h1", "h2", "h3"), 3),
        (tablet(2, "h1", "h2", joining="h3"), 1),
    ],
)
def test_a_tablet_has_left_what_is_to_be_a_voter_or_to_go(found: TabletReplicas, left: int) -> None:
    assert moves_left(HOSTS, [found], []) == MovesLeft(left, 0)


def test_a_drained_host_has_its_replicas_left_and_joins_their_bytes() -> None:
    hosts = [replace(HOSTS[0], draining=True), replace(HOSTS[1], joining_bytes=100, joined_bytes=40), HOSTS[2]]
    assert moves_left(hosts, [tablet(2, "h1", "h2"), tablet(2, "h2", "h3")], []) == MovesLeft(1, 60)


def test_an_operation_that_moves_replicas_is_left_until_it_ends() -> None:
    there = tablet(2, "h1", "h2")
    running = OperationInfo("1", "move_replicas", "rewrite", "", "{}", 0)
    assert moves_left(HOSTS, [there], [running]) == MovesLeft(1, 0)
    assert (
        moves_left(HOSTS, [there], [replace(running, step="failed"), replace(running, kind="add_splits")]).replicas == 0
    )
    assert set(MOVING_KINDS) == {MOVE_KIND, STORE_KIND}
