"""Roles, targets, joins and leaves from a tablet's row; the end of a parent; progress."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.replicas.events import ContentArrived, LeaderNamed, OfferArrived
from bookkeeper.replicas.instructions import Answer, Name
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.messages import Accept, Offer
from bookkeeper.replicas.placements import (
    Phase,
    Role,
    RowReplica,
    TabletRow,
    join,
    join_finalized,
    left,
    may_finalize_join,
    stage_of,
    start_of,
    targets_of,
    voters_of,
)
from bookkeeper.replicas.progress import progress
from bookkeeper.replicas.rules import CORRECTED, LITERAL, Rules
from bookkeeper.replicas.values import (
    Entry,
    KeyRange,
    Placement,
    ProtocolError,
    Replica,
    Segment,
    Stage,
    Target,
    state_id,
)
from tests.support.segment_simulation.splitting import may_drop_parent, split_finalized

P, Q = Placement("p"), Placement("q")
ROW = TabletRow("t", (RowReplica("a", P), RowReplica("b", Q)), "a")
CHILD = TabletRow("t1", (RowReplica("x", P), RowReplica("y", Q)), "x", KeyRange(None, "m"), Phase.LOADING)


def test_a_row_says_the_stage_of_each_host() -> None:
    joining = join(ROW, "d", Placement("r"))
    assert stage_of(joining, "a", CORRECTED) is Stage.LIVE
    assert stage_of(joining, "d", CORRECTED) is Stage.JOINING
    assert stage_of(CHILD, "x", CORRECTED) is Stage.LOADING
    assert stage_of(replace(ROW, phase=Phase.SPLIT), "b", CORRECTED) is Stage.UNLOAD
    assert stage_of(ROW, "d", CORRECTED) is None


def test_e58_e65_targets_are_the_others_then_also_the_children_then_the_children_alone() -> None:
    splitting, split = replace(ROW, phase=Phase.SPLITTING), replace(ROW, phase=Phase.SPLIT)
    hosts = [[one.host for one in targets_of(row, (CHILD,), "a", LITERAL)] for row in (ROW, splitting, split)]
    assert hosts == [["b"], ["b", "x"], ["x", "y"]]


def test_e53_e54_operations_may_be_repeated() -> None:
    once = join(ROW, "d", Placement("r"))
    assert join(once, "d", Placement("r")) is once
    assert voters_of(once) == (P, Q)
    done = join_finalized(once, "d", Placement("r"))
    assert join_finalized(done, "d", Placement("r")) == done
    assert [one.role for one in done.replicas] == [Role.VOTER] * 3
    assert left(left(done, "d", 2), "d", 2) == ROW
    split = split_finalized(replace(ROW, phase=Phase.SPLITTING))
    assert split_finalized(split) == split


def test_operations_that_do_not_fit_the_row_are_refused() -> None:
    with pytest.raises(ProtocolError, match="is a replica of tablet t already"):
        join(ROW, "b", Placement("r"))
    with pytest.raises(ProtocolError, match="is not joining"):
        join_finalized(ROW, "b", Placement("r"))
    with pytest.raises(ProtocolError, match="elect another leader"):
        left(ROW, "a", 1)
    with pytest.raises(ProtocolError, match="needs 2 voters"):
        left(ROW, "b", 2)
    with pytest.raises(ProtocolError, match="does not split"):
        split_finalized(ROW)


def test_a_host_leads_from_the_named_state_or_not_at_all() -> None:
    root = Segment(5, None, True, files=("5",), logs=((1, 7),))
    host = Replica("a", P, root=5, entries=(Entry(root),), files=frozenset({"4", "5"}))
    assert start_of(host, None, CORRECTED) is None
    assert start_of(host, Name(5, ("5",), ((1, 7),)), CORRECTED) == root
    named = start_of(host, Name(4, ("4",), ((1, 3),)), CORRECTED)
    assert named is not None
    assert (named.id, named.list, named.logs) == (4, ("4",), ((1, 3),))
    with pytest.raises(ProtocolError, match="lacks file 6 of the named state"):
        start_of(host, Name(6, ("6",), ((1, 9),)), CORRECTED)


def test_n5_n6_a_term_begins_with_a_major_on_the_named_state() -> None:
    named, unnamed = Segment(4, None, True, files=("4",), logs=((1, 3),)), Segment(5, 4, files=("5",), retained=("4",))
    host = Replica("a", P, root=5, entries=(Entry(named), Entry(unnamed)), files=frozenset({"4", "5"}))
    event = LeaderNamed("a", 2, Name(4, ("4",), ((1, 3),)), replayed=((1, 7),))
    led, _ = decide(host, event, CORRECTED)
    first = led.held(state_id(2, 0)).segment
    assert (led.root, first.base, first.is_major, first.list) == (first.id, 4, True, ("4",))
    other = Replica("b", Q, root=5, entries=(Entry(named), Entry(unnamed)), files=frozenset({"4", "5"}), leader="a")
    offer = Offer("a", P, first, term=2, leader="a")
    follower, (answer,) = decide(other, OfferArrived(offer), CORRECTED)
    assert answer == Answer("a", Accept(first.id, Q, need=()))
    follower, _ = decide(follower, ContentArrived(first.id, "a"), CORRECTED)
    assert follower.root == led.root, "a follower with an unnamed other root takes the major"


def test_e66_p7_the_parent_goes_when_each_child_has_its_copies() -> None:
    done = Replica("a", P, stage=Stage.UNLOAD_FINAL)
    final, has_all, lacks = Name(9, ("9",), ((1, 7),)), Name(4, ("4",), ((1, 8),)), Name(5, ("5",), ((1, 6),))
    assert may_drop_parent(done, final, (has_all, has_all), CORRECTED)
    for child in (lacks, None):
        assert not may_drop_parent(done, final, (has_all, child), CORRECTED), "a child without a copy loses its parent"
        assert may_drop_parent(done, final, (has_all, child), LITERAL)
    assert not may_drop_parent(replace(done, stage=Stage.UNLOAD), final, (has_all, has_all), CORRECTED)


def test_e54_a_joiner_that_lacks_the_named_state_votes_after_the_name_of_the_latest_unless_it_is_needed_for_that() -> (
    None
):
    joiner, follower = Placement("r"), Placement("q")
    named, latest = Segment(4, None, True, files=("4",)), Segment(5, 4, True, files=("5",))
    name = Name(4, ("4",), ())

    def may(acked: frozenset[Placement], named_by: Name | None = name, rules: Rules = CORRECTED) -> bool:
        entries = (Entry(named, frozenset({follower})), Entry(latest, acked))
        leader = Replica("a", P, root=5, entries=entries, files=frozenset({"4", "5"}), leader="a")
        return may_finalize_join(leader, joiner, named_by, (P, follower), 2, rules)

    assert not may(frozenset({follower})), "the joiner lacks the latest segment"
    assert not may(frozenset({joiner, follower})), "the latest can be named without it, and then it may lead, too"
    assert may(frozenset({joiner, follower}), Name(5, ("5",), ()))
    assert may(frozenset({joiner, follower}), None), "before the first name there is nothing that it lacks"
    assert may(frozenset({joiner})), "without its vote the latest is never named"
    assert may(frozenset({joiner, follower}), rules=LITERAL), "to the letter the root leads"


def test_progress_names_what_each_target_lacks() -> None:
    first, second = Segment(1, None, True), Segment(2, 1)
    entries = (Entry(first, frozenset({P, Q})), Entry(second, frozenset({P})))
    leader = Replica("a", Placement("o"), root=2, entries=entries, targets=(Target("b", P), Target("c", Q)))
    assert [(one.host, one.lacking, one.is_in_sync) for one in progress(leader, CORRECTED)] == [
        ("b", (), True),
        ("c", (2,), False),
    ]
