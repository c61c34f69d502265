"""The end of a tablet, splits in place, merges, UNLOAD, imports, and what peers and logs wait for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.replicas.collecting import may_delete_log
from bookkeeper.replicas.events import Adopted, OfferArrived, TargetsChanged
from bookkeeper.replicas.instructions import Answer, Name, Send
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.messages import Accept, Offer, Reason
from bookkeeper.replicas.naming import has_import, settled, shippable
from bookkeeper.replicas.placements import Phase, RowReplica, TabletRow
from bookkeeper.replicas.receiving import judge
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.splitting import divided
from bookkeeper.replicas.values import (
    Entry,
    KeyRange,
    Placement,
    ProtocolError,
    Replica,
    Segment,
    Stage,
    Step,
    Target,
    state_id,
)
from tests.support.segment_simulation.splitting import (
    closed_at,
    copies_together,
    merged_row,
    split_in_place,
    successor_replica,
)
from tests.support.segment_simulation.unloading import begun, unload_on

P, Q = Placement("p"), Placement("q", "2")
ROW = TabletRow("t", (RowReplica("a", P), RowReplica("b", Q)), "a", term=3)
ROOT = state_id(3, 1)
NAMED = Name(ROOT, ("f",), ((3, 7),), term=3)
FIRST = Segment(ROOT, None, True, files=("f",), logs=((3, 7),))
LEADER = Replica("a", P, root=ROOT, entries=(Entry(FIRST),), files=frozenset({"f"}), leader="a", term=3, led=3)


def test_a_tablet_is_closed_when_the_newest_leader_has_nothing_beyond_the_named_state() -> None:
    assert closed_at(ROW, LEADER, NAMED, ()) is NAMED
    with pytest.raises(ProtocolError, match="flush, replicate and name first"):
        closed_at(ROW, replace(LEADER, has_memory=True), NAMED, ())
    with pytest.raises(ProtocolError, match="flush, replicate and name first"):
        closed_at(ROW, LEADER, replace(NAMED, state_id=ROOT - 1), ())
    with pytest.raises(ProtocolError, match="has a given-up log"):
        closed_at(ROW, LEADER, NAMED, (2,))
    with pytest.raises(ProtocolError, match="ask the leader of term 4"):
        closed_at(replace(ROW, term=4), LEADER, NAMED, ())


def test_a_split_in_place_keeps_hosts_and_incarnations_under_new_placement_ids() -> None:
    low, high = split_in_place(ROW, "m", "t1", "t2")
    assert (low.key_range, high.key_range) == (KeyRange(None, "m"), KeyRange("m", None))
    assert [(one.host, one.placement) for one in low.replicas] == [
        ("a", Placement("t1:p", "1")),
        ("b", Placement("t1:q", "2")),
    ]
    child = successor_replica((LEADER,), low, "a", frozenset({"f"}), CORRECTED)
    assert (child.stage, child.files, child.root, child.leader) == (Stage.LIVE, frozenset({"f"}), None, None)
    with pytest.raises(ProtocolError, match="still takes the data of p"):
        split_in_place(replace(ROW, parent="p"), "m", "t1", "t2")
    with pytest.raises(ProtocolError, match="has no replica on c"):
        successor_replica((LEADER,), low, "c", frozenset(), CORRECTED)


def test_neighbours_on_the_same_hosts_merge() -> None:
    low, high = split_in_place(ROW, "m", "t1", "t2")
    assert merged_row(low, high, "t3").key_range == KeyRange(None, None)
    held = tuple(one.placement for one in low.replicas), (high.replicas[0].placement,)
    assert copies_together(low, high, *held) == 1
    with pytest.raises(ProtocolError, match="no neighbours"):
        merged_row(high, low, "t3")
    with pytest.raises(ProtocolError, match="bring them together first"):
        merged_row(low, replace(high, replicas=high.replicas[:1]), "t3")


def test_e65_a_replica_in_unload_hands_on_the_last_named_state_alone() -> None:
    stray = Entry(Segment(state_id(2, 5), None, True, files=("g",)))
    child = Target("x", Placement("x"), KeyRange(None, "m"), term=4)
    old = replace(LEADER, stage=Stage.UNLOAD, leader=None, entries=(stray, *LEADER.entries), targets=(child,))
    _, (offer,) = unload_on(old, begun(old, NAMED, CORRECTED), CORRECTED)
    assert isinstance(offer, Send)
    assert offer.offer.segment.id == ROOT
    away = replace(old, entries=(stray,), root=stray.segment.id)
    after, decision = unload_on(away, begun(away, NAMED, CORRECTED), CORRECTED)
    assert (after.stage, decision) == (Stage.UNLOAD_FINAL, ())


def test_an_acknowledgement_of_a_child_counts_for_the_term_of_its_leader() -> None:
    child = Target("x", Placement("x"), KeyRange(None, "m"), term=4)
    acked = replace(LEADER, targets=(child,), entries=(Entry(FIRST, frozenset({Placement("x"), Q})),))
    same, _ = decide(acked, TargetsChanged((child,)), CORRECTED)
    assert same.entries[0].acked == {Placement("x"), Q}
    newer, _ = decide(acked, TargetsChanged((replace(child, term=6),)), CORRECTED)
    assert newer.entries[0].acked == {Q}, "the new leader of a child never gets what the old one had"


def test_p6_a_child_with_memory_fast_forwards_nothing() -> None:
    """A deposed leader of the parent offers a segment whose rows the child has merged from the newer leader."""
    child = Replica("x", Placement("x"), Stage.LOADING, leader="x", term=4, led=4, has_memory=True)
    offer = Offer("a", P, FIRST, None)
    assert judge(child, offer, CORRECTED) is Step.MERGE
    assert judge(replace(child, has_memory=False), offer, CORRECTED) is Step.FAST_FORWARD
    assert judge(child, offer, replace(CORRECTED, p6_loading_fast_forward=False)) is Step.FAST_FORWARD


def test_an_import_is_one_source_of_a_state_and_is_taken_once() -> None:
    taken, _ = decide(LEADER, Adopted(7, ("i",)), CORRECTED)
    segment = taken.held(state_id(3, 0)).segment
    assert (segment.list, segment.logs) == (("f", "i"), ((-7, 1), (3, 7)))
    assert decide(taken, Adopted(7, ("i",)), CORRECTED) == (taken, ())
    with pytest.raises(ProtocolError, match="offer it to the leader of a LIVE tablet"):
        decide(replace(LEADER, stage=Stage.LOADING), Adopted(7, ("i",)), CORRECTED)


def test_a_late_name_of_an_older_term_settles_nothing() -> None:
    named = Name(ROOT, ("f", "i"), ((-7, 1),), term=3)
    assert settled(ROW, named) is named
    assert has_import(ROW, named, 7)
    newer = replace(ROW, term=4)
    assert settled(newer, named) is None
    assert not has_import(newer, named, 7), "an import ends with a state beside the chain of the newest term"
    assert not has_import(replace(ROW, phase=Phase.LOADING), named, 7)


def test_a_peer_gets_what_is_durable_and_a_log_stays_while_somebody_needs_it() -> None:
    assert shippable(9, 0, is_on_host=False) == 9
    assert shippable(9, 7, is_on_host=True) == 7
    assert shippable(9, 0, is_on_host=True) == 0
    assert may_delete_log(is_sealed=True, needed_by=())
    assert not may_delete_log(is_sealed=True, needed_by=("u",))
    assert not may_delete_log(is_sealed=False, needed_by=())


CHILD = Segment(state_id(5, 1), None, True, retained=("f",), logs=((5, 7),))
"""The state that the books give a child: the split has term 5."""


def test_a_child_begins_with_the_state_of_the_books_when_the_host_has_its_files() -> None:
    child = divided(Replica("b", Q), CHILD, ["f"])
    assert (child.root, child.term, child.leader, child.files) == (CHILD.id, 5, None, frozenset({"f"}))
    assert child.entries == (Entry(CHILD),)


def test_the_tablet_that_keeps_its_row_takes_no_offer_of_the_whole_any_more() -> None:
    kept = divided(replace(LEADER, leader=None), CHILD, [])
    assert kept.root == CHILD.id
    late = Offer("a", P, Segment(state_id(3, 2), ROOT, files=("g",), retained=("f",)), 3, "a")
    assert judge(kept, late, CORRECTED) is Reason.INVALID
    first = Segment(state_id(6, 0), CHILD.id, True, retained=("f",))
    led, _ = decide(kept, OfferArrived(Offer("b", Q, first, 6, "b")), CORRECTED)
    assert [one.step for one in led.incoming] == [Step.FAST_FORWARD]


def test_a_host_that_lacks_a_file_keeps_its_root_and_gets_the_first_major() -> None:
    lacking = divided(Replica("b", Q), replace(CHILD, retained=("f", "g")), ["f"])
    assert (lacking.root, lacking.files) == (None, frozenset({"f"}))
    first = Segment(state_id(6, 0), CHILD.id, True, retained=("f", "g"))
    (_, decision) = decide(lacking, OfferArrived(Offer("a", P, first, 6, "a")), CORRECTED)
    assert [one.reply.need for one in decision if isinstance(one, Answer) and isinstance(one.reply, Accept)] == [("g",)]


def test_a_late_order_changes_nothing_where_the_child_has_a_leader() -> None:
    led = replace(divided(Replica("b", Q), CHILD, ["f"]), leader="a", term=6, root=state_id(6, 0))
    assert divided(led, CHILD, ["f"]) == led
    once = divided(Replica("b", Q), CHILD, ["f"])
    assert divided(once, CHILD, ["f"]) == once, "the order came twice"
