"""The pauses of copies: for a lane's own work, while clients write."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.tserver.leading.copy_pace import PAUSE_MAX_MS, CopyPace


@dataclass
class Machine(SystemClock):
    """Time and work as a test lets them pass."""

    now_ns: int = 0
    computed_ns: int = 0
    is_busy: bool = True
    pauses: list[float] = field(default_factory=list)

    def boot_ns(self) -> int:
        return self.now_ns

    def cpu_ns(self) -> int:
        return self.computed_ns

    def run(self, took_ms: float, computed_ms: float) -> None:
        self.now_ns += int(took_ms * 1e6)
        self.computed_ns += int(computed_ms * 1e6)

    def rest(self, pause_ms: float) -> None:
        self.pauses.append(pause_ms)
        self.run(pause_ms, 0)

    def pace(self, share: float = 0.1) -> CopyPace:
        return CopyPace(self, share, lambda: self.is_busy, self.rest, self.cpu_ns)


@pytest.mark.parametrize(
    ("share", "took_ms", "computed_ms", "pauses"),
    [
        (0.1, 2, 2, [18]),
        (0.25, 3, 2, [5]),
        (1.0, 2, 2, []),
        (0.1, 20, 2, []),
        (0.1, 300, 2, []),
        (0.01, 500, 500, [PAUSE_MAX_MS]),
    ],
)
def test_a_lane_takes_its_share_and_a_slow_network_is_no_work(
    share: float, took_ms: float, computed_ms: float, pauses: list[float]
) -> None:
    machine = Machine()
    pace = machine.pace(share)
    pace.begin()
    machine.run(took_ms, computed_ms)
    pace.keep()
    assert machine.pauses == pauses


def test_a_copy_goes_on_without_pauses_when_nobody_writes() -> None:
    machine = Machine(is_busy=False)
    pace = machine.pace()
    pace.begin()
    for _ in range(10):
        machine.run(2, 2)
        pace.keep()
    assert machine.pauses == []
    machine.is_busy = True
    machine.run(2, 2)
    pace.keep()
    assert machine.pauses == [18]


def test_many_parts_take_a_tenth_of_the_time() -> None:
    machine = Machine()
    pace = machine.pace()
    pace.begin()
    for took_ms in (2, 30, 5, 2):
        machine.run(took_ms, 2)
        pace.keep()
    assert machine.pauses == [18, 15, 18]
