"""A file of a replica turns out to be damaged: it counts for no state until a sound copy is here (N3)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.replicas.events import (
    Collect,
    ContentArrived,
    CopyDamaged,
    FilesDamaged,
    FilesMended,
    NameDue,
    OfferArrived,
    ReplicateTo,
)
from bookkeeper.replicas.instructions import Answer, Decision, Delete, Name, Send
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.messages import Accept, Ack, Decline, Offer, Reason
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Entry, Placement, Replica, Segment, Target
from tests.support.faults import fault

A, B, C = Placement("a"), Placement("b"), Placement("c")
FIRST = Segment((1 << 32) + 0, None, is_major=True, files=("1",), logs=((1, 5),))
SECOND = Segment((1 << 32) + 1, FIRST.id, files=("2",), retained=("1",), logs=((1, 9),))
LEADER = Replica(
    "a",
    A,
    root=SECOND.id,
    entries=(Entry(FIRST, frozenset({B, C})), Entry(SECOND, frozenset({B}))),
    files=frozenset({"1", "2"}),
    leader="a",
    term=1,
    led=1,
    made=2,
    targets=(Target("b", B), Target("c", C)),
)
FOLLOWER = replace(
    LEADER,
    host="b",
    placement=B,
    root=FIRST.id,
    entries=(Entry(FIRST),),
    files=frozenset({"1"}),
    led=0,
    made=0,
    targets=(Target("a", A), Target("c", C)),
)
DUE = NameDue((A, B, C), 2, FIRST.id)


def offer(segment: Segment) -> OfferArrived:
    """The leader offers a segment."""
    return OfferArrived(Offer("a", A, segment, 1, "a"))


def answer(decision: Decision) -> object:
    """The answer to the sender."""
    return next(one.reply for one in decision if isinstance(one, Answer))


def damaged(replica: Replica, *files: str) -> Replica:
    """The replica after damage."""
    return decide(replica, FilesDamaged(files), CORRECTED)[0]


def test_n3_a_leader_does_not_count_its_own_copy_with_a_damaged_file() -> None:
    assert [one.state_id for one in decide(LEADER, DUE, CORRECTED)[1] if isinstance(one, Name)] == [SECOND.id]
    assert decide(damaged(LEADER, "1"), DUE, CORRECTED)[1] == (), "N3: a damaged copy counts as one that is held"
    mended, _ = decide(damaged(LEADER, "1"), FilesMended(("1",)), CORRECTED)
    assert mended == LEADER


def test_n3_red_a_damaged_file_is_held() -> None:
    with (
        fault("damaged-file-is-held"),
        pytest.raises(AssertionError, match="a damaged copy counts as one"),
    ):
        test_n3_a_leader_does_not_count_its_own_copy_with_a_damaged_file()


def test_n3_a_damaged_copy_elsewhere_takes_its_acknowledgements_back_and_is_offered_again() -> None:
    told, _ = decide(LEADER, CopyDamaged(B, "2"), CORRECTED)
    assert decide(told, DUE, CORRECTED)[1] == (), "N3: a copy counts that its host no longer stands by"
    (send,) = decide(told, ReplicateTo("b"), CORRECTED)[1]
    assert isinstance(send, Send)
    assert send.offer.segment == SECOND, "the state without that file is still acknowledged"
    assert decide(LEADER, CopyDamaged(B, "9"), CORRECTED)[0] == LEADER


def test_n3_red_a_damaged_copy_stays_acknowledged() -> None:
    with (
        fault("damaged-copy-stays-acknowledged"),
        pytest.raises(AssertionError, match="a copy counts that its host no longer stands by"),
    ):
        test_n3_a_damaged_copy_elsewhere_takes_its_acknowledgements_back_and_is_offered_again()


def test_n3_a_segment_whose_file_is_damaged_here_is_to_be_offered_again_later() -> None:
    decline = answer(decide(damaged(FOLLOWER, "1"), offer(FIRST), CORRECTED)[1])
    assert isinstance(decline, Decline)
    assert decline.reason is Reason.OVERLOADED, "N3: a host acknowledges a state of which a file is damaged here"
    decline = answer(decide(FOLLOWER, offer(FIRST), CORRECTED)[1])
    assert isinstance(decline, Decline)
    assert decline.reason is Reason.SEGMENT_EXISTS


def test_n3_red_a_damaged_file_exists() -> None:
    with (
        fault("damaged-file-exists"),
        pytest.raises(AssertionError, match="a host acknowledges a state of which a file is damaged"),
    ):
        test_n3_a_segment_whose_file_is_damaged_here_is_to_be_offered_again_later()


def test_the_next_segment_brings_a_damaged_file_of_its_list_again() -> None:
    replica, decision = decide(damaged(FOLLOWER, "1"), offer(SECOND), CORRECTED)
    accept = answer(decision)
    assert isinstance(accept, Accept)
    assert accept.need == ("1", "2")
    replica, decision = decide(replica, ContentArrived(SECOND.id, "a"), CORRECTED)
    assert isinstance(answer(decision), Ack)
    assert (replica.files, replica.damaged) == (frozenset({"1", "2"}), frozenset())


def test_a_transfer_that_took_a_damaged_file_for_held_ends() -> None:
    replica, _ = decide(FOLLOWER, offer(SECOND), CORRECTED)
    replica, decision = decide(damaged(replica, "1"), ContentArrived(SECOND.id, "a"), CORRECTED)
    assert decision == ()
    assert (replica.root, replica.damaged) == (FIRST.id, frozenset({"1"}))


def test_only_a_file_that_is_held_can_be_damaged_and_only_a_damaged_one_mended() -> None:
    assert damaged(FOLLOWER, "7") == FOLLOWER
    assert decide(FOLLOWER, FilesMended(("1", "7")), CORRECTED)[0] == FOLLOWER


def test_n4_a_damaged_file_goes_like_any_other_when_nothing_needs_it() -> None:
    behind = replace(LEADER, entries=(Entry(replace(SECOND, is_major=True, retained=())),))
    kept, decision = decide(damaged(LEADER, "1"), Collect(SECOND.id, SECOND.list), CORRECTED)
    assert (kept.damaged, decision) == (frozenset({"1"}), ()), "N4: the books still list the damaged file"
    freed, decision = decide(damaged(behind, "1"), Collect(SECOND.id, ("2",)), CORRECTED)
    assert (freed.damaged, decision) == (frozenset(), (Delete(("1",)),))
