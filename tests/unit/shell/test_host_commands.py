"""The texts of the commands about hosts: a tablet's replicas and segments."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import (
    HeldReplicaInfo,
    HostInfo,
    ReplicaPlacement,
    ReplicaStanding,
    SegmentStanding,
    TabletReplicas,
    WaitingFiles,
)
from shell.host_commands import host_state, joined_part, replicas_text, segment_records
from shell.tablet_commands import with_replicas

EXTENT = Extent("1", b"m", None)


def held(host: str) -> HeldReplicaInfo:
    """The answer of a host."""
    placement = ReplicaPlacement(host, "p", "d")
    return HeldReplicaInfo(EXTENT, "t", placement, "LIVE", 1, None, False, 7, (7,), 1, 10)


OLD = WaitingFiles("the books name state 7, which lists them", ("a", "b"), 30)
TABLET = TabletReplicas(
    EXTENT,
    7,
    2,
    (
        ReplicaStanding("h1", "p", "voter", True, held("h1"), waiting=(OLD,)),
        ReplicaStanding("h2", "p", "voter", False, held("h2"), waiting=(replace(OLD, names=("b",), bytes=20),)),
        ReplicaStanding("h3", "p", "joining", False, held("h3")),
        ReplicaStanding("h4", "p", "voter", False, None, "the host is away"),
    ),
    segments=(SegmentStanding(7, 5, True, 1, 10, 2, ("h1", "h2"), ("h2",), "named by the books"),),
)


def test_the_leader_joiners_and_missing_replicas_of_a_tablet_are_told_apart() -> None:
    assert replicas_text(TABLET) == "h1*, h2, h3 (joining), h4 (nothing held)"


def test_a_tablet_names_the_problems_of_its_hosts_beside_its_own() -> None:
    """Such as a full disk."""
    found = with_replicas({"after": None, "problem": None}, TABLET)
    assert found == {"after": None, "replicas": replicas_text(TABLET), "problem": "h4: the host is away"}
    waits = with_replicas({"problem": "it waits"}, TABLET)
    assert waits["problem"] == "it waits; h4: the host is away"
    sound = replace(TABLET, replicas=TABLET.replicas[:1])
    assert with_replicas({"problem": None}, sound) == {"replicas": "h1*", "problem": None}
    assert with_replicas({"problem": None}, None) == {"replicas": None, "problem": None}


def test_damaged_files_are_shown_with_their_hosts() -> None:
    (standing, *others) = TABLET.replicas
    assert standing.held is not None
    damaged = replace(standing, held=replace(standing.held, damaged=("f", "g")))
    *_, shown = segment_records(replace(TABLET, replicas=(damaged, *others)))
    assert (shown["segment"], shown["files"], shown["held_by"]) == (None, 2, ["h1"])
    assert shown["waits_for"] == "a sound copy of another host: the files are damaged"


def test_segments_come_first_and_files_that_wait_for_deletion_follow_by_their_reason() -> None:
    segment, waiting = segment_records(TABLET)
    assert (segment["segment"], segment["held_by"], segment["acked_by"]) == (7, ["h1", "h2"], ["h2"])
    assert (waiting["segment"], waiting["files"], waiting["bytes"], waiting["held_by"]) == (None, 2, 50, ["h1", "h2"])
    assert waiting["waits_for"] == "deletion: the books name state 7, which lists them"


def test_a_host_is_alive_away_or_draining() -> None:
    alive = HostInfo("h1", "d", "127.0.0.1:1", False, 1, 0, 1, 10)
    away = HostInfo("h1", None, None, True, 1, 0, 0, None, "the host is away")
    draining = HostInfo("h1", "d", "127.0.0.1:1", True, 1, 0, 1, 10)
    assert alive.away_since_ms is None
    assert [host_state(host) for host in (alive, away, draining)] == ["alive", "away", "draining"]


def test_the_progress_of_joining_replicas_is_a_part_of_their_bytes() -> None:
    host = HostInfo("h1", "d", "127.0.0.1:1", False, 3, 2, 0, 10, joining_bytes=80, joined_bytes=20)
    assert joined_part(host) == "25 %"
    assert joined_part(replace(host, joining_bytes=0, joined_bytes=0)) == "0 %"
    assert joined_part(replace(host, joining=0)) is None
