"""Jumps of the wall clock by hours, ahead or back, change no session."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.clock import SteadyWall, SystemClock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination

SETTINGS = CoordinationSettings(session_lease_ms=60_000, session_renew_ms=10, session_margin_ms=100)
HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """The machine's clock with a wall time that a test sets."""

    set_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.set_by_ms


@pytest.mark.parametrize("set_by_ms", [5 * HOUR_MS, -5 * HOUR_MS])
def test_leases_and_leadership_do_not_depend_on_the_wall_clock(tmp_path: Path, set_by_ms: int) -> None:
    own, others = SetClock(), SetClock()
    first, second = (EmbeddedCoordination(tmp_path, SETTINGS, clock) for clock in (own, others))
    try:
        session = first.open_session("master", "127.0.0.1:1")
        leader = first.try_lead(session)
        own.set_by_ms = set_by_ms
        assert session.is_valid()
        assert [info.alive for info in second.sessions("master")] == [True]
        others.set_by_ms = set_by_ms
        assert second.leader() == leader
        assert second.try_lead(second.open_session("master", "127.0.0.1:2")) is None
        own.set_by_ms = 0
        assert session.is_valid()
    finally:
        second.close()
        first.close()


def test_the_steady_wall_ignores_forward_jumps() -> None:
    clock = SetClock()
    steady = SteadyWall(clock)
    before = clock.wall_ms()
    clock.set_by_ms = 5 * HOUR_MS
    assert before <= steady.wall_ms() < before + HOUR_MS
    clock.set_by_ms = -5 * HOUR_MS
    assert steady.wall_ms() < before
