"""The report about replicas: what hosts say, beside the rows of the books."""

from __future__ import annotations

import pytest

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.queries.replica_report import (
    HostSums,
    NamedFiles,
    answer_of,
    deletion_reason,
    segment_note,
    tablet_standing,
    waiting_files,
)
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell, ReplicaRole
from bookkeeper.model import Extent
from bookkeeper.monitor.replica_views import leader_of
from bookkeeper.rpc.contract.messages import (
    HeldReplicaInfo,
    HeldReplicas,
    HeldSegment,
    ReplicaLag,
    ReplicaPlacement,
    SegmentRecord,
    UnlistedFile,
)

EXTENT = Extent("1", b"m", None)
NAMED = NamedFiles(7, frozenset({"a", "b"}))


def cell(host: str, role: ReplicaRole = VOTER) -> TabletReplica:
    """A replica of the row."""
    return TabletReplica(host, ReplicaCell("p", f"disk of {host}", role))


def view(*replicas: TabletReplica, session: str | None = "s1") -> TabletView:
    """The tablet, served by this session."""
    return TabletView(b"1;m", EXTENT, "t", session, None, flush_rank=7, replicas=replicas)


def segment(number: int, *, is_complete: bool = True, acked: tuple[str, ...] = (), lists: str = "f") -> HeldSegment:
    """A segment with one file of ten bytes."""
    record = SegmentRecord(number, None, False, (), (lists,), (), ())
    return HeldSegment(record, is_complete, tuple(ReplicaPlacement(host, "p", "d") for host in acked), 10)


def held(
    host: str,
    *segments: HeldSegment,
    lags: tuple[ReplicaLag, ...] = (),
    unlisted: tuple[UnlistedFile, ...] = (),
    size: int = 10,
    incoming: int = 0,
    placement: str = "p",
) -> HeldReplicaInfo:
    """The answer of a host."""
    placed = ReplicaPlacement(host, placement, f"disk of {host}")
    return HeldReplicaInfo(
        EXTENT, "t", placed, "LIVE", 1, None, bool(lags), 7, (7,), 1, size, lags, segments, incoming, unlisted
    )


def test_each_segment_says_who_holds_it_who_acknowledged_it_and_what_it_waits_for() -> None:
    row = view(cell("h1"), cell("h2"), cell("h3", JOINING), cell("h4"))
    answers = {
        "h1": answer_of(
            HeldReplicas((held("h1", segment(5), segment(7, acked=("h2",)), segment(9, acked=("h3",))),), {})
        ),
        "h2": answer_of(HeldReplicas((held("h2", segment(7), segment(9, is_complete=False)),), {})),
        "h3": answer_of(HeldReplicas((held("h3", segment(9)),), {})),
        "h4": (None, "the host is away"),
    }
    found = tablet_standing(row, NAMED, 2, 3, {"h1": "s1"}, answers, "nobody can")
    assert [(one.segment_id, one.held_by, one.acked_by, one.waits_for) for one in found.segments] == [
        (5, ("h1",), (), "older than the named state: its files go when no newer state lists them"),
        (7, ("h1", "h2"), ("h2",), "named by the books"),
        (9, ("h1", "h3"), ("h3",), "to be named: 1 of 2 copies are there"),
    ]
    assert (leader_of(found), found.problem, found.replicas[3].problem) == ("h1", "", "the host is away")
    assert [one.held.segments for one in found.replicas if one.held is not None] == [(), (), ()]


def test_a_tablet_without_a_leader_says_why() -> None:
    found = tablet_standing(view(cell("h1")), NAMED, 1, 1, {}, {"h1": (None, "away")}, "no live voter holds state 7")
    assert (leader_of(found), found.problem) == (None, "no live voter holds state 7")


def test_an_answer_about_another_placement_does_not_count() -> None:
    answer = answer_of(HeldReplicas((held("h1", placement="p-old"),), {}))
    found = tablet_standing(view(cell("h1")), NAMED, 1, 1, {}, {"h1": answer}, "")
    assert (found.replicas[0].held, found.replicas[0].problem) == (None, "the host holds nothing of it")


def test_a_state_with_enough_copies_is_about_to_be_named() -> None:
    assert segment_note(9, 7, 2, 2) == "to be named"


@pytest.mark.parametrize(
    ("name", "in_use", "named", "reason"),
    [
        ("a", True, NamedFiles(), "the books name no state yet"),
        ("a", True, NAMED, "the books name state 7, which lists them; they go when a newer state is named"),
        ("c", True, NAMED, "state 9, which may be named next, lists them"),
        ("d", True, NAMED, "a reader, a copy or a segment under way uses them"),
        ("d", False, NAMED, "nothing needs them: the collector deletes them within two minutes"),
    ],
)
def test_n4_a_file_waits_for_the_first_reason_that_keeps_it(
    name: str, in_use: bool, named: NamedFiles, reason: str
) -> None:
    assert deletion_reason(UnlistedFile(name, 1, in_use), named, {"c": 9}) == reason


def test_files_that_wait_are_summed_by_reason() -> None:
    unlisted = tuple(UnlistedFile(name, 5, False) for name in ("a", "b", "c", "d"))
    found = waiting_files(held("h1", segment(7, lists="d"), segment(9, lists="c"), unlisted=unlisted), NAMED)
    assert {one.names: one.bytes for one in found} == {("a", "b"): 10, ("c",): 5, ("d",): 5}


def test_a_host_s_sums_have_what_it_lacks_what_others_wait_for_and_how_far_joins_are() -> None:
    row = view(cell("h1"), cell("h2"), cell("h3", JOINING))
    lags = (ReplicaLag("h2", 2, 30), ReplicaLag("h3", 5, 80))
    answers = {
        "h1": answer_of(HeldReplicas((held("h1", lags=lags, size=100),), {})),
        "h2": answer_of(HeldReplicas((held("h2", size=70),), {})),
        "h3": answer_of(HeldReplicas((held("h3", size=20, incoming=60),), {})),
    }
    sums = HostSums()
    sums.add(row, "h1", answers)
    assert (sums.replicas["h2"], sums.joining["h3"], sums.leads["h1"]) == (1, 1, 1)
    assert (sums.lacking_segments["h2"], sums.lacking_bytes["h2"]) == (2, 30)
    assert (sums.unsent_segments["h1"], sums.unsent_bytes["h1"]) == (7, 110)
    assert (sums.joined_bytes["h3"], sums.joining_bytes["h3"]) == (80, 100)


def test_a_tablet_that_nobody_leads_counts_its_replicas_alone() -> None:
    sums = HostSums()
    sums.add(view(cell("h1"), session=None), None, {"h1": (None, "away")})
    assert (sums.replicas["h1"], sums.leads["h1"], sums.lacking_segments["h1"]) == (1, 0, 0)
