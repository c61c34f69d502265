"""The election: any candidate holds the named state, and the newest one leads."""

from __future__ import annotations

import pytest

from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.election import Candidate, candidates, newest, why_nobody
from bookkeeper.master.replicas.held_states import HeldState, HeldStates
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell, ReplicaRole
from bookkeeper.model import HostIdentity
from tests.support.faults import fault


def replica(host: str, role: ReplicaRole = VOTER, disk: str = "d1") -> TabletReplica:
    """A cell of the row."""
    return TabletReplica(host, ReplicaCell("p1", disk, role))


def held(*states: int, placement: str = "p1", disk: str = "d1") -> HeldState:
    """A replica with these states."""
    return HeldState(placement, disk, max(states, default=0), frozenset(states))


ROW = (replica("h1"), replica("h2"), replica("h3", JOINING), replica("h4", disk="d0"), replica("h5"))
SESSIONS = {name: (f"s-{name}", HostIdentity(name, "d1")) for name in ("h1", "h2", "h3", "h4")}
HELD = {"h1": held(4, 7), "h2": held(7, 9), "h3": held(7, 9, 10), "h4": held(7, 11)}


def found(named: int) -> list[str]:
    """The hosts that may lead."""
    return [one.host for one in candidates(ROW, SESSIONS, HELD, named, {})]


def test_e23_only_live_voters_on_the_disk_of_the_row_with_the_named_state_may_lead() -> None:
    assert found(7) == ["h1", "h2"]
    assert found(9) == ["h2"]
    assert found(11) == []


def test_e23_red_a_host_leads_that_has_not_what_the_books_name() -> None:
    with fault("any-replica-leads"):
        assert found(11) == ["h1", "h2", "h3", "h4"], "a joiner and a wiped host may lead"


def test_before_the_first_state_a_voter_needs_no_files() -> None:
    assert [one.host for one in candidates(ROW, SESSIONS, {}, 0, {})] == ["h1", "h2"]


@pytest.mark.parametrize(
    ("those", "chosen"),
    [
        ([("h1", 5, 0), ("h2", 6, 9)], "h2"),
        ([("h1", 6, 3), ("h2", 6, 2)], "h2"),
        ([("h2", 6, 2), ("h1", 6, 2)], "h1"),
    ],
)
def test_the_newest_state_then_the_fewest_tablets_then_the_name(those: list[tuple[str, int, int]], chosen: str) -> None:
    assert newest([Candidate(f"s-{host}", host, *rest) for host, *rest in those]).host == chosen


def test_it_is_said_why_nobody_may_lead() -> None:
    assert why_nobody(ROW, SESSIONS, HELD, 11) == (
        "no host that may lead holds state 11, which the books name: h1 holds 7, h2 holds 9, the disk of h4 was wiped, "
        "h5 is away; start the hosts that are away"
    )


def test_p10_an_answer_about_another_placement_or_disk_counts_for_nothing() -> None:
    states = HeldStates()
    key = ("1", "t-0")
    assert states.begin_questions(["h1", "h2", "h4"]) == ["h1", "h2", "h4"]
    assert states.begin_questions(["h1", "h2", "h4"]) == [], "one question at a time"
    for host, answer in (("h1", held(7)), ("h2", held(7, placement="p0")), ("h4", held(7, disk="d2"))):
        assert states.answer(host, {key: answer})
        assert not states.answer(host, {key: answer})
        states.end_question(host)
    assert list(states.of_tablet(key, ROW)) == ["h1"]
    states.begin_questions(["h2"])
    assert states.of_host("h1") is None, "a dead host has said nothing"
