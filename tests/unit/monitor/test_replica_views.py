"""The pages and the JSON about hosts and replicas."""

from __future__ import annotations

import json

from msgspec.structs import replace

from bookkeeper.monitor import replica_views
from bookkeeper.monitor.observation import ReplicaHealth
from bookkeeper.monitor.replica_sampler import ReplicaSample
from bookkeeper.monitor.views import Selection
from bookkeeper.rpc.contract.messages import ReplicaStanding
from tests.support.monitor_source import AWAY, HOST, JOINER, tablet


def test_a_host_shows_what_it_lacks_what_others_wait_for_and_how_far_its_joins_are() -> None:
    rows = replica_views.hosts(ReplicaSample(0, hosts=(HOST, JOINER, AWAY)))
    assert [row["state"] for row in rows] == ["alive", "draining", "away"]
    assert [(row["lacks"], row["lacking_bytes"]) for row in rows] == [(0, 0), (2, 50), (1, 20)]
    assert (rows[0]["unsent_segments"], rows[0]["unsent_bytes"]) == (3, 70)
    assert (rows[1]["joined_bytes"], rows[1]["joining_bytes"]) == (50, 200)
    assert (rows[2]["bytes"], rows[2]["problem"]) == (None, "the host is <away>")
    assert [(row["zone"], row["away_since"]) for row in rows] == [
        ("rack1", None),
        (None, None),
        (None, "2023-11-14T22:13:20.000Z"),
    ]


def test_a_tablet_shows_its_leader_its_copies_and_the_greatest_lag() -> None:
    row = replica_views.tablet_row(tablet(1))
    assert (row["leader"], row["named"], row["newest"], row["lacks"]) == ("host1", 7, 9, 2)
    assert (row["copies"], row["copies_needed"], row["wanted"]) == (1, 2, 3)
    assert row["replicas"] == ["host1*", "host2 (joining)", "host3 (nothing held)"]
    assert row["rows"] == "after 0000 through 0001"
    assert row["problem"] == "host3: the host is <away>"


def test_a_tablet_without_a_leader_shows_the_reason() -> None:
    found = tablet(0)
    nobody = tuple(replace(one, leads=False) for one in found.replicas)
    row = replica_views.tablet_row(replace(found, replicas=nobody, problem="no live voter holds state 7"))
    assert (row["leader"], row["problem"]) == (None, "no live voter holds state 7")


def test_a_tablet_that_is_served_without_acknowledged_rows_says_so_before_all_else() -> None:
    lost = replace(tablet(1), warning="records after 7 of wal/a/1.wal are missing: host host2 is away; start it")
    row = replica_views.tablet_row(lost)
    assert row["problem"] == f"{lost.warning}; host3: the host is <away>"
    new_master = replace(tablet(1), lost_logs=("wal/a/1.wal", "wal/b/2.wal"))
    assert "without the records of wal/a/1.wal, wal/b/2.wal" in replica_views.tablet_row(new_master)["problem"]


def test_the_page_of_a_tablet_has_segments_newest_first_and_what_waits_for_deletion() -> None:
    view = replica_views.tablet(ReplicaSample(0, tablets=(tablet(0),)), Selection())
    assert [row["segment"] for row in view["segments"]] == [3, 2, 1]
    assert [(row["host"], row["lacks"], row["lacking_bytes"]) for row in view["standings"]] == [
        ("host1", 0, 0),
        ("host2", 2, 50),
        ("host3", 1, 20),
    ]
    (waiting,) = view["waiting"]
    assert (waiting["host"], waiting["files"], len(waiting["names"]), waiting["left_out"]) == ("host1", 30, 20, 10)
    json.dumps(view)


def test_rows_are_written_as_the_commands_write_them() -> None:
    found = tablet(0)
    extent = replace(found.extent, prev_row=None, end_row=b"a\\\xff")
    assert replica_views.rows_text(replace(found, extent=extent)) == "through a\\x5c\\xff"
    assert replica_views.rows_text(replace(found, extent=replace(extent, end_row=None))) == "to the end"


def test_an_empty_state_is_held_by_every_host_that_answers() -> None:
    assert replica_views.holds_named(tablet(0).replicas[0], 0)
    assert not replica_views.holds_named(ReplicaStanding("host1", "p", "voter", False), 0)


def test_the_health_of_replicas_has_the_names_of_the_metrics() -> None:
    assert replica_views.health(ReplicaHealth(1, 2, 3, 4, 5, 6, 7, 8)) == {
        "tablets_under_replicated": 1,
        "tablets_in_danger": 2,
        "replicas_joining": 3,
        "lacking_segments_max": 4,
        "damaged_files": 5,
        "lacking_bytes": 6,
        "joining_bytes": 7,
        "joined_bytes": 8,
    }
