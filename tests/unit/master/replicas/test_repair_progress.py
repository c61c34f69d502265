"""The progress of repairs, for operators."""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.held_states import HeldState, HeldStates
from bookkeeper.master.replicas.repair_state import HostState, TabletState
from bookkeeper.master.replicas.repairer import join_bytes, progress_of
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell, ReplicaRole


def cell(host: str, role: ReplicaRole = VOTER) -> TabletReplica:
    """A replica of the row."""
    return TabletReplica(host, ReplicaCell("p", "d", role))


def tablet(held: Mapping[str, HeldState], leader: str | None = "h1") -> TabletState:
    """A tablet on h1 and h2, which h3 joins."""
    replicas = cell("h1"), cell("h2"), cell("h3", JOINING)
    return TabletState(b"1<", replicas, 3, 2, named=7, leader=leader, held=held)


def held(size: int, lacking: dict[str, int] | None = None, incoming: int = 0) -> HeldState:
    """The word of a host; a leader says how much others lack, in bytes."""
    segments, said = dict.fromkeys(lacking or {}, 1), lacking or {}
    return HeldState("p", "d", 7, frozenset({7}), lacking is not None, size, 1, segments, said, incoming)


LEADER = held(100, {"h2": 30, "h3": 80})


def test_a_join_has_arrived_as_far_as_its_files_and_the_bytes_under_way() -> None:
    assert join_bytes(tablet({"h1": LEADER, "h2": held(70)}), frozenset()) == (80, 0)
    assert join_bytes(tablet({"h1": LEADER, "h3": held(20, incoming=50)}), frozenset()) == (100, 70)
    assert join_bytes(tablet({"h1": LEADER, "h3": held(20, incoming=500)}), frozenset()) == (100, 100)


def test_a_tablet_without_a_leader_says_nothing_about_its_joins() -> None:
    assert join_bytes(tablet({"h3": held(20)}, leader=None), frozenset()) == (0, 0)
    assert join_bytes(tablet({"h1": held(100, {"h2": 30})}), frozenset()) == (0, 0)


def test_a_replica_that_leaves_is_no_join() -> None:
    of_tablet = tablet({"h1": LEADER, "h2": held(70), "h3": held(20)})
    assert join_bytes(of_tablet, {"h3"}) == (0, 0)
    hosts = {name: HostState(name, "d") for name in ("h1", "h2", "h3")}
    found = progress_of([of_tablet], hosts, {of_tablet.row: {"h3"}})
    assert (found.joining, found.joining_bytes, found.joined_bytes) == (0, 0, 0)


def test_the_sums_are_those_of_all_tablets() -> None:
    hosts = {name: HostState(name, "d") for name in ("h1", "h2", "h3")}
    found = progress_of([tablet({"h1": LEADER, "h2": held(70), "h3": held(20)})] * 2, hosts, {})
    assert (found.joining, found.lacking_segments, found.lacking_bytes) == (2, 1, 220)
    assert (found.joining_bytes, found.joined_bytes) == (200, 40)


def test_bytes_alone_change_no_plan() -> None:
    states, tablet_key = HeldStates(), ("1", "t")
    assert states.answer("h1", {tablet_key: held(100, {"h3": 80}, incoming=3)})
    assert not states.answer("h1", {tablet_key: held(100, {"h3": 90})})
    assert states.answer("h1", {tablet_key: held(101, {"h3": 90})})
