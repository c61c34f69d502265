"""The pauses of the collector: by its own work, not by its waits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.master.gc.gc_pace import PAUSE_MAX_MS, GcPace
from tests.support.faults import fault

INTERVAL_MS = 10_000


@dataclass
class Machine(SystemClock):
    """Time and work as a test lets them pass."""

    now_ns: int = 0
    computed_ns: int = 0

    def boot_ns(self) -> int:
        return self.now_ns

    def cpu_ns(self) -> int:
        return self.computed_ns

    def run(self, took_ms: int, computed_ms: int) -> None:
        self.now_ns += took_ms * 1_000_000
        self.computed_ns += computed_ms * 1_000_000


def rest_after(took_ms: int, computed_ms: int) -> float:
    machine = Machine()
    pace = GcPace(machine, INTERVAL_MS, machine.cpu_ns)
    with pace.measured():
        machine.run(took_ms, computed_ms)
    return pace.pause_ms


@pytest.mark.parametrize(
    ("took_ms", "computed_ms", "pause_ms"),
    [
        (20, 10, INTERVAL_MS),
        (5_000, 4_000, 45_000),
        (5_000, 1_250, 45_000),
        (40_000, 20_000, 360_000),
        (1_000_000, 900_000, PAUSE_MAX_MS),
    ],
)
def test_it_rests_nine_times_as_long_as_it_worked(took_ms: int, computed_ms: int, pause_ms: float) -> None:
    assert rest_after(took_ms, computed_ms) == pause_ms


def check_outage() -> None:
    """The store was away for five minutes in the middle of a run, the machine was stopped for a night."""
    assert rest_after(300_000, 100) == INTERVAL_MS, "an outage counts as work of the collector"
    assert rest_after(8 * 3_600_000, 100) == INTERVAL_MS


def test_after_an_outage_it_goes_on_soon() -> None:
    check_outage()


def test_red_an_outage_that_counts_as_work_is_paid_for_nine_times() -> None:
    with fault("waits-count-as-work"), pytest.raises(AssertionError, match="an outage counts as work of the collector"):
        check_outage()


def test_a_run_that_fails_is_measured_too_and_a_rest_is_that_of_the_last_run() -> None:
    machine = Machine()
    pace = GcPace(machine, INTERVAL_MS, machine.cpu_ns)
    assert pace.pause_ms == INTERVAL_MS

    def fail() -> None:
        with pace.measured():
            machine.run(5_000, 5_000)
            raise UnavailableError("the store is away")

    with pytest.raises(UnavailableError):
        fail()
    assert pace.pause_ms == 45_000
    with pace.measured():
        machine.run(30_000, 10)
    assert pace.pause_ms == INTERVAL_MS
