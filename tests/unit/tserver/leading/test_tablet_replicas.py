"""Facts in a tablet's row: copies, targets, and whether a host may lead."""

from __future__ import annotations

import pytest

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, copies_needed, parse_properties
from bookkeeper.errors import RefusedError
from bookkeeper.model import Extent, HostIdentity
from bookkeeper.replicas.placements import Role, RowReplica
from bookkeeper.replicas.values import Entry, Placement, Replica, Segment, Target, state_id
from bookkeeper.tserver.leading.leader_chain import taken_terms
from bookkeeper.tserver.leading.namer import late_reason
from bookkeeper.tserver.leading.tablet_replicas import (
    check_complete,
    own_replica,
    targets_on,
    voters_in,
)

EXTENT = Extent("1", None, None)
A, B, C = (Placement(f"p{name}", f"disk-{name}") for name in "abc")
REPLICAS = (RowReplica("a", A), RowReplica("b", B), RowReplica("c", C, Role.JOINING))


def test_a_joining_replica_is_a_target_and_no_copy() -> None:
    assert voters_in(REPLICAS) == (A, B)
    assert targets_on(REPLICAS, EXTENT, "a") == (Target("b", B), Target("c", C))


@pytest.mark.parametrize(
    ("replicas", "copies_min", "voters", "needed"),
    [(1, 0, 1, 1), (2, 0, 2, 2), (3, 0, 3, 2), (5, 0, 5, 3), (3, 1, 3, 1), (2, 0, 1, 2), (3, 0, 1, 2), (1, 0, 3, 2)],
)
def test_without_a_number_a_majority_of_replicas_holds_a_named_state_and_of_voters_if_they_are_more(
    replicas: int, copies_min: int, voters: int, needed: int
) -> None:
    properties = parse_properties({"table.replicas": str(replicas), "table.copies_min": str(copies_min)})
    assert copies_needed(properties, voters) == needed


def test_a_voter_with_the_same_disk_may_lead() -> None:
    assert own_replica(REPLICAS, EXTENT, HostIdentity("b", "disk-b")) == REPLICAS[1]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (HostIdentity("d", "disk-d"), "has no replica on host d: assign it to one of a, b, c"),
        (HostIdentity("b", "disk-new"), "was placed on another disk of host b"),
        (HostIdentity("c", "disk-c"), "on host c is joining"),
    ],
)
def test_a_host_that_may_not_lead_is_told_why(host: HostIdentity, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        own_replica(REPLICAS, EXTENT, host)


def test_a_host_without_a_file_of_the_named_state_may_not_lead() -> None:
    check_complete(("f1", "f2"), {"f1", "f2", "f3"}, EXTENT, "a")
    with pytest.raises(RefusedError, match=r"host a lacks f2 of the named state .* \(1 of 2 files\)"):
        check_complete(("f1", "f2"), {"f1"}, EXTENT, "a")


def test_p17_a_target_counts_by_the_newest_term_that_it_has_taken() -> None:
    first, second = Segment(state_id(1, 0), None), Segment(state_id(2, 0), state_id(1, 0))
    entries = (Entry(first, frozenset({B, C})), Entry(second, frozenset({B})))
    replica = Replica("a", A, entries=entries, targets=targets_on(REPLICAS, EXTENT, "a"))
    assert taken_terms(replica) == (2, 1)


def test_a_tablet_with_too_few_copies_names_the_hosts() -> None:
    entry = Entry(Segment(state_id(1, 0), None))
    replica = Replica("a", A, root=state_id(1, 0), entries=(entry,), leader="a")
    reason = late_reason(replica, REPLICAS, DEFAULT_PROPERTIES)
    assert reason == (
        "the newest state has 1 of 2 copies, so its logs are retained; without it: b; start these hosts, or give the "
        "tablet other replicas"
    )


def test_a_tablet_that_lost_a_voter_asks_for_another_replica() -> None:
    entry = Entry(Segment(state_id(1, 0), None))
    replica = Replica("a", A, root=state_id(1, 0), entries=(entry,), leader="a")
    reason = late_reason(replica, REPLICAS[:1], parse_properties({"table.replicas": "2"}))
    assert reason == (
        "the newest state has 1 of 2 copies, so its logs are retained; each voter has it: the tablet needs another "
        "replica, so add a host, or start those that are away"
    )
