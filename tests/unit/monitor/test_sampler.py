"""The thread that looks: what it keeps, how often it asks, and that it never takes much of a core."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.monitor import sampler as module
from bookkeeper.monitor.lag_history import CLUSTERS_MAX, History, point_of
from bookkeeper.monitor.observation import Lag
from bookkeeper.monitor.sampler import Sampler, rest_ms
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.monitor_source import LEADING, STANDING_BY, SetSource, books, kept, status


def lag(cluster: str, records: int, table: str = "t") -> Lag:
    return Lag(table, cluster, records, records * 10, records / 2, {"waiting": 1})


def test_a_look_that_takes_long_is_followed_by_a_long_rest() -> None:
    def share_of_a_core(took_ms: float) -> float:
        return took_ms / (took_ms + module.rest_ms(2_000, took_ms))

    assert rest_ms(2_000, 1) == 2_000
    assert max(share_of_a_core(took_ms) for took_ms in (1, 50, 500, 5_000)) <= 0.05
    with fault("the-monitor-never-rests"):
        assert share_of_a_core(5_000) > 0.5


def test_what_is_kept_is_read_when_it_is_due_and_an_error_there_is_told() -> None:
    clock, source = TestClock(), SetSource(files=(kept("a", 1, "recovery"),))
    looking = Sampler(source, clock, 1)
    assert [file.file for file in looking.look().kept] == ["a"]
    looking.look()
    assert source.looks == ["observe", "kept", "observe"]
    clock.jump(module.KEPT_INTERVAL_MS + 1)
    source.error = UnavailableError("the books are busy")
    sample = looking.look()
    assert (sample.kept_problem, len(sample.kept)) == ("the books are busy", 1)


def test_readers_share_the_latest_look_and_only_a_leader_adds_to_the_history() -> None:
    source = SetSource()
    looking = Sampler(source, SystemClock(), 1)
    assert looking.latest is looking.latest
    source.seen = STANDING_BY
    assert looking.look().seen is STANDING_BY
    assert len(looking.history.columns()["at_ms"]) == 1


def test_it_looks_again_and_again_until_it_is_stopped() -> None:
    stop = threading.Event()

    class Counting(SetSource):
        def observe(self):  # type: ignore[no-untyped-def]
            if len(self.looks) > 4:
                stop.set()
            return super().observe()

    source = Counting(seen=replace(LEADING, books=books(status("a"))))
    Sampler(source, SystemClock(), 1).run(stop)
    assert source.looks.count("observe") >= 4


def test_points_sum_the_tables_of_a_cluster_and_history_is_bounded() -> None:
    point = point_of(5, [lag("east", 3), lag("east", 5, "u"), lag("north", 1)])
    assert point.lags == {"east": (8, 80, 2.5), "north": (1, 10, 0.5)}
    assert len(point_of(5, [lag(f"c{n:03}", 1) for n in range(CLUSTERS_MAX + 9)]).lags) == CLUSTERS_MAX
    history = History(points_max=2)
    for at_ms, lags in enumerate(([lag("a", 1)], [lag("east", 1)], [lag("east", 2), lag("north", 4)])):
        history.add(point_of(at_ms, lags))
    assert history.columns() == {
        "at_ms": [1, 2],
        "series": [
            {"cluster": "east", "lag_records": [1, 2], "lag_bytes": [10, 20], "lag_seconds": [0.5, 1.0]},
            {"cluster": "north", "lag_records": [None, 4], "lag_bytes": [None, 40], "lag_seconds": [None, 2.0]},
        ],
    }


def test_a_source_that_breaks_is_not_hidden() -> None:
    class Broken(SetSource):
        def observe(self):  # type: ignore[no-untyped-def]
            raise KeyError("gone")

    with pytest.raises(KeyError):
        Sampler(Broken(), SystemClock(), 1).run(threading.Event())
