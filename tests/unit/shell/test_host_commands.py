"""The texts of the commands about hosts: a tablet's replicas and segments."""

from __future__ import annotations

from dataclasses import replace

from bookkeeper.model import Extent
from bookkeeper.rpc.contract.host_messages import HostInfo, ReplicaStanding, TabletReplicas
from bookkeeper.rpc.contract.replica_messages import HeldReplicaInfo, HeldSegment, ReplicaPlacement, SegmentRecord
from shell.host_commands import host_state, replicas_text, segment_note, segment_records

EXTENT = Extent("1", b"m", None)


def segment(number: int, complete: bool = True) -> HeldSegment:
    """A segment with one file."""
    return HeldSegment(SegmentRecord(number, None, False, (), ("f",), (), ()), complete, ())


def held(host: str, *segments: HeldSegment) -> HeldReplicaInfo:
    """The answer of a host."""
    placement = ReplicaPlacement(host, "p", "d")
    return HeldReplicaInfo(EXTENT, "t", placement, "LIVE", 1, None, False, 7, (7,), 1, 10, (), segments)


TABLET = TabletReplicas(
    EXTENT,
    7,
    2,
    (
        ReplicaStanding("h1", "p", "voter", True, held("h1", segment(5), segment(7), segment(9))),
        ReplicaStanding("h2", "p", "voter", False, held("h2", segment(7), segment(9, complete=False))),
        ReplicaStanding("h3", "p", "joining", False, held("h3", segment(9))),
        ReplicaStanding("h4", "p", "voter", False, None, "the host is away"),
    ),
)


def test_the_leader_joiners_and_missing_replicas_of_a_tablet_are_told_apart() -> None:
    assert replicas_text(TABLET) == "h1*, h2, h3 (joining), h4 (nothing held)"


def test_each_segment_says_who_holds_it_and_what_it_waits_for() -> None:
    shown = [(found["segment"], found["held_by"], found["waits_for"]) for found in segment_records(TABLET)]
    assert shown == [
        (5, ["h1"], "older than the named state: its files go when no newer state lists them"),
        (7, ["h1", "h2"], "named by the books"),
        (9, ["h1", "h3"], "to be named: 1 of 2 copies are there"),
    ]


def test_a_damaged_file_is_shown_at_the_segments_that_list_it() -> None:
    (standing, *others) = TABLET.replicas
    assert standing.held is not None
    damaged = replace(standing, held=replace(standing.held, damaged=("f",)))
    shown = list(segment_records(replace(TABLET, replicas=(damaged, *others))))
    assert [found["damaged_on"] for found in segment_records(TABLET)] == [[], [], []]
    assert [(found["segment"], found["damaged_on"]) for found in shown] == [(5, ["h1"]), (7, ["h1"]), (9, ["h1"])]


def test_a_state_with_enough_copies_is_about_to_be_named() -> None:
    assert segment_note(9, TABLET, 2) == "to be named"


def test_a_host_is_alive_away_or_draining() -> None:
    alive = HostInfo("h1", "d", "127.0.0.1:1", False, 1, 0, 1, 10)
    away = HostInfo("h1", None, None, True, 1, 0, 0, None, "the host is away")
    draining = HostInfo("h1", "d", "127.0.0.1:1", True, 1, 0, 1, 10)
    assert [host_state(host) for host in (alive, away, draining)] == ["alive", "away", "draining"]
