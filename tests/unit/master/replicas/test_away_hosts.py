"""Since when a host is away: as a master noticed it, also after the master has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.master.replicas.away_hosts import AwayHosts
from tests.support.jumping_clock import TestClock

NAMES = ("h1", "h2")
HOUR_MS = 3_600_000


class Counting(EmbeddedCoordination):
    """Counts the writes."""

    writes = 0

    def raise_number(self, name: str, least: int) -> None:
        self.writes += 1
        super().raise_number(name, least)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counting]:
    """A store."""
    made = Counting(tmp_path, CoordinationSettings())
    yield made
    made.close()


def test_a_host_is_away_since_a_master_noticed_it_until_it_is_back(store: Counting) -> None:
    clock = TestClock()
    away = AwayHosts(store, clock)
    away.note(NAMES, {"h1", "h2"})
    assert away.since_ms == {}
    clock.set_by_ms = 1_000
    first = clock.wall_ms()
    away.note(NAMES, {"h1"})
    noted = dict(away.since_ms)
    assert noted["h2"] >= first
    clock.set_by_ms = 60_000
    away.note(NAMES, {"h1"})
    assert away.since_ms == noted
    assert store.writes == 1, "only changes are written"
    away.note(NAMES, {"h1", "h2"})
    assert away.since_ms == {}
    away.note(NAMES, {"h1"})
    assert away.since_ms["h2"] >= first + 59_000, "the time of the first absence is shown for the second"


def test_another_master_shows_the_same_time(store: Counting) -> None:
    clock = TestClock()
    first = AwayHosts(store, clock)
    first.note(NAMES, {"h1"})
    clock.set_by_ms = 9_000
    later = AwayHosts(store, clock)
    later.note(NAMES, {"h1"})
    assert later.since_ms == first.since_ms
    assert set(later.since_ms) == {"h2"}


def test_a_wall_clock_that_went_back_hides_no_absence(store: Counting) -> None:
    clock = TestClock()
    away = AwayHosts(store, clock)
    away.note(NAMES, {"h1"})
    away.note(NAMES, {"h1", "h2"})
    clock.set_by_ms = -60_000
    again = AwayHosts(store, clock)
    again.note(NAMES, {"h1"})
    assert set(again.since_ms) == {"h2"}
    again.note(NAMES, {"h1", "h2"})
    assert AwayHosts(store, clock).since_ms == again.since_ms == {}


def test_a_repair_counts_the_boot_clock_of_its_own_reign(store: Counting) -> None:
    clock = TestClock()
    away = AwayHosts(store, clock)
    away.note(NAMES, {"h1"})
    clock.set_by_ms = HOUR_MS
    assert away.away_ms("h2") < HOUR_MS, "a wall clock that jumps begins a repair"
    clock.jump(HOUR_MS)
    away.note(NAMES, {"h1"})
    assert away.away_ms("h2") >= HOUR_MS
    assert away.away_ms("h1") == 0
    later = AwayHosts(store, clock)
    later.note(NAMES, {"h1"})
    assert later.away_ms("h2") < HOUR_MS, "the time before this reign counts"
    away.note(NAMES, {"h1", "h2"})
    clock.jump(HOUR_MS)
    away.note(NAMES, {"h1"})
    assert away.away_ms("h2") < HOUR_MS, "the first absence counts for the second"
