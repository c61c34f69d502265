"""The pages and the JSON of a sample."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from bookkeeper.model import BlockRange
from bookkeeper.monitor import views
from bookkeeper.monitor.metrics import METRICS
from bookkeeper.monitor.observation import Age, Cycles, LagSums, greatest_age
from bookkeeper.monitor.sampler import Sample
from bookkeeper.monitor.views import Selection
from tests.support.monitor_source import EAST, LEADING, QUARANTINED, STANDING_BY, books, kept, status


def test_sums_count_every_file_and_a_target_without_files_is_shown_with_nothing() -> None:
    sums = LagSums([("cities", "east"), ("cities", "north")])
    for records in (3, 4):
        sums.add("cities", "east", "waiting", records, records * 10, Age(records / 2, records / 2))
    sums.add("gone", "east", "done", 0, 0, Age())
    east, north, gone = sums.lags()
    assert (east.records, east.bytes, east.seconds, east.files) == (7, 70, 2.0, 2)
    assert (north.cluster, north.files) == ("north", 0)
    assert (gone.table, gone.phases) == ("gone", {"done": 1})


@pytest.mark.parametrize(("file_age_s", "shown"), [(4.0, 5.0), (6.0, None)])
def test_an_age_is_unknown_while_a_file_that_was_not_read_may_be_older(file_age_s: float, shown: float | None) -> None:
    sums = LagSums()
    sums.add("cities", "east", "waiting", 3, 30, Age(5.0, 5.0))
    sums.add("cities", "east", "waiting", 3, 30, Age(None, file_age_s))
    (lag,) = sums.lags()
    assert lag.seconds == shown


def test_an_unknown_age_is_null_in_every_sum_and_has_no_sample() -> None:
    found = books(replace(status("a", "waiting", 4), lag_seconds=None))
    found = replace(found, lags=tuple(replace(lag, seconds=None) for lag in found.lags))
    rows = [views.tables(found)[0], views.peers(found)[0], views.files(found, Selection())["files"][0]]
    assert [row["lag_seconds"] for row in rows] == [None, None, None]
    (metric,) = [metric for metric in METRICS if metric.name == "replication_lag_seconds"]
    assert list(metric.values(Sample(LEADING, 1.0), found)) == []
    assert greatest_age([1.0, None]) is None
    assert greatest_age([]) == 0.0


def test_the_overview_of_a_leader_has_sums_and_that_of_another_master_only_who_leads() -> None:
    observation = replace(LEADING, books=books(status("a", "waiting", 4), status("b", "done", 0)))
    view = views.overview(Sample(observation, 1.0, (kept("a", 70, "replication"), kept("b", 30, "recovery"))))
    assert (view["lag_records"], view["files_behind"], view["outstanding_files"]) == (4, 1, 2)
    assert (view["kept_files"], view["kept_bytes"], view["unassigned_tablets"]) == (2, 100, 1)
    other = views.overview(Sample(STANDING_BY, 1.0))
    assert other["leader"] == {"address": "127.0.0.1:9797", "epoch": 3, "monitor": "http://127.0.0.1:9100/"}
    assert "lag_records" not in other


def test_ranges_that_only_block_are_not_in_quarantine() -> None:
    ranges = (QUARANTINED, replace(QUARANTINED, state="blocking"), replace(QUARANTINED, state="held"))
    observation = replace(LEADING, books=replace(books(), quarantined=ranges[1:]))
    view = views.overview(Sample(observation, 1.0))
    assert (view["quarantined_ranges"], view["blocking_ranges"]) == (1, 1)


def test_the_way_of_a_file_has_what_each_peer_lacks_and_what_is_held() -> None:
    held, blocking = QUARANTINED, replace(QUARANTINED, state="blocking", blocks=BlockRange(91, 92, 0, 0))
    found = replace(
        books(status("w/1.wal", "shipping"), status("w/2.wal")),
        quarantined=(held, blocking),
        under_way={("w/1.wal", EAST): 95},
    )
    sample = Sample(LEADING, 1.0, (kept("w/1.wal", 70, "replication"), kept("w/3.wal", 5, "recovery")))
    view = views.file_way(sample, found, "w/1.wal")
    assert view is not None
    assert (view["bytes"], view["reasons"][0]["kind"]) == (70, "replication")
    (way,) = view["ways"]
    assert [(one["kind"], one["first"], one["last"]) for one in way["spans"]] == [
        ("finished", 1, 2),
        ("held", 3, 5),
        ("finished", 6, 90),
        ("under_way", 91, 95),
        ("not_sent", 96, 100),
    ]
    assert [one["state"] for one in way["ranges"]] == ["held", "blocking"]
    only_kept = views.file_way(sample, found, "w/3.wal")
    assert only_kept is not None
    assert only_kept["ways"] == []
    assert views.file_way(sample, found, "w/4.wal") is None
    json.dumps([view, only_kept])


def test_a_file_of_which_only_a_range_in_quarantine_is_missing_is_finished_around_it() -> None:
    row = replace(status("w/1.wal", "quarantined", 3), needed=5, finished=2)
    found = replace(books(row), quarantined=(QUARANTINED,))
    view = views.file_way(Sample(LEADING, 1.0), found, "w/1.wal")
    assert view is not None
    assert [one["kind"] for one in view["ways"][0]["spans"]] == ["finished", "held"]
    assert view["bytes"] is None


def test_files_are_chosen_and_paged_and_a_page_beyond_the_last_is_the_last() -> None:
    found = books(*(status(f"f{number:03}", "waiting" if number % 2 else "blocked") for number in range(130)))
    first = views.files(found, Selection(rows=50))
    assert (first["files"][0]["file"], first["total"], first["pages"]) == ("f000", 130, 3)
    last = views.files(found, Selection(page=99, rows=50))
    assert (last["page"], len(last["files"])) == (3, 30)
    blocked = views.files(found, Selection(phase="blocked", rows=9_999))
    assert blocked["total"] == 65
    assert {row["phase"] for row in blocked["files"]} == {"blocked"}
    assert views.files(found, Selection(table="other"))["total"] == 0
    assert views.files(found, Selection(rows=-5, page=-1))["page"] == 1


def test_rows_of_one_page_are_bounded_and_left_out_rows_are_counted() -> None:
    found = books(*(status(str(number)) for number in range(views.ROWS_MAX + 1)))
    assert len(views.files(found, Selection(rows=10**9))["files"]) == views.ROWS_MAX
    cut = replace(found, statuses=found.statuses[:10])
    assert views.files(cut, Selection())["left_out"] == views.ROWS_MAX - 9


def test_a_file_with_several_reasons_counts_in_each() -> None:
    sample = Sample(LEADING, 1.0, (kept("a", 7, "recovery", "replication"), kept("b", 5, "recovery")))
    assert views.retained(sample, Selection())["reasons"] == {
        "recovery": {"files": 2, "bytes": 12},
        "replication": {"files": 1, "bytes": 7},
    }


def test_tables_and_peers_say_what_belongs_to_them() -> None:
    found = books(status("a", "backing_off", 4))
    (table,), (peer,) = views.tables(found), views.peers(found)
    assert (table["lag_records"], table["targets"][0]["cluster"]) == (4, "east")
    assert (peer["tables"], peer["failures"], peer["phases"]) == (["cities"], 2, {"backing_off": 1})
    json.dumps([table, peer, views.quarantine(replace(found, quarantined=(QUARANTINED,)))])


def test_a_master_is_ready_when_a_master_leads_and_its_own_cycles_work() -> None:
    assert views.readiness(LEADING)[0]
    assert views.readiness(STANDING_BY)[0]
    failing = replace(books(), cycles=Cycles(failed_in_row=2), problems=("last_cycle_error: disk full",))
    for observation, reason in (
        (replace(STANDING_BY, leader=None), "this master stands by"),
        (replace(LEADING, books=None, problem="the store is busy"), "the store is busy"),
        (replace(LEADING, books=failing), "the last 2 cycles failed: last_cycle_error: disk full"),
        (replace(LEADING, books=replace(books(), tservers=())), "no tserver lives"),
        (replace(LEADING, is_alive=False), "the session of this master is over"),
    ):
        ready, view = views.readiness(observation)
        assert (ready, view["reason"]) == (False, reason)


def test_a_process_is_healthy_while_its_session_is_valid_and_its_monitor_samples() -> None:
    sample = Sample(LEADING, 1.0, sampled_ns=5_000_000)
    assert views.health(sample, 14_000_000, 10)[0]
    assert not views.health(sample, 16_000_000, 10)[0]
    assert not views.health(replace(sample, observation=replace(LEADING, is_alive=False)), 5_000_000, 10)[0]
