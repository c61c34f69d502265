"""The sampler's thread: its samples, its interval, and its small share of a core."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.monitor import sampler as module
from bookkeeper.monitor.lag_history import CLUSTERS_MAX, History, point_of
from bookkeeper.monitor.observation import Lag
from bookkeeper.monitor.sampler import Sampler, pause_ms
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.monitor_source import LEADING, STANDING_BY, SetSource, books, kept, status


def lag(cluster: str, records: int, table: str = "t") -> Lag:
    return Lag(table, cluster, records, records * 10, records / 2, {"waiting": 1})


def test_a_long_pause_follows_a_slow_sample() -> None:
    def share_of_a_core(took_ms: float) -> float:
        return took_ms / (took_ms + module.pause_ms(2_000, took_ms))

    assert pause_ms(2_000, 1) == 2_000
    assert max(share_of_a_core(took_ms) for took_ms in (1, 50, 500, 5_000)) <= 0.05
    with fault("the-monitor-never-pauses"):
        assert share_of_a_core(5_000) > 0.5


def test_retained_files_are_read_when_due_and_an_error_is_reported() -> None:
    clock, source = TestClock(), SetSource(files=(kept("a", 1, "recovery"),))
    sampler = Sampler(source, clock, 1)
    assert [file.file for file in sampler.sample().retained] == ["a"]
    sampler.sample()
    assert source.calls == ["observe", "retained", "observe"]
    clock.jump(module.RETAINED_INTERVAL_MS + 1)
    source.error = UnavailableError("the books are busy")
    sample = sampler.sample()
    assert (sample.retained_problem, len(sample.retained)) == ("the books are busy", 1)


def test_readers_share_the_latest_sample_and_only_a_leader_adds_to_the_history() -> None:
    source = SetSource()
    sampler = Sampler(source, SystemClock(), 1)
    assert sampler.latest is sampler.latest
    source.observation = STANDING_BY
    assert sampler.sample().observation is STANDING_BY
    assert len(sampler.history.columns()["at_ms"]) == 1


def test_it_samples_until_it_is_stopped() -> None:
    stop = threading.Event()

    class Counting(SetSource):
        def observe(self):  # type: ignore[no-untyped-def]
            if len(self.calls) > 4:
                stop.set()
            return super().observe()

    source = Counting(observation=replace(LEADING, books=books(status("a"))))
    Sampler(source, SystemClock(), 1).run(stop)
    assert source.calls.count("observe") >= 4


def test_points_sum_the_tables_of_a_cluster_and_history_is_bounded() -> None:
    point = point_of(5, [lag("east", 3), lag("east", 5, "u"), lag("north", 1)])
    assert point.lags == {"east": (8, 80, 2.5), "north": (1, 10, 0.5)}
    unknown = replace(lag("east", 3), seconds=None)
    assert point_of(5, [lag("east", 5, "u"), unknown]).lags == {"east": (8, 80, None)}
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
