"""Which process is killed when, and whether it is back.

Arrives: how far the load is. Leaves: one kill at a time, each at its moment and not before the one before it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.standalone.cluster_process import ClusterProcess


@dataclass(frozen=True, slots=True)
class Outage:
    """Kill ``role`` of a cluster once this share of the load is written."""

    at: float
    cluster: ClusterProcess
    role: str

    @property
    def what(self) -> str:
        """For people: ``west master``."""
        return f"{self.cluster.settings.instance.name} {self.role}"


class Outages:
    """Runs a plan of outages; ``say`` gets a line for every kill and every return."""

    def __init__(self, plan: Sequence[Outage], say: Callable[[str], None], clock: Clock) -> None:
        self._left = sorted(plan, key=lambda outage: outage.at)
        self._say = say
        self._clock = clock
        self._open: tuple[Outage, int, int] | None = None

    def step(self, share: float) -> bool:
        """Do what is due when ``share`` (0 to 1) of the load is written, without waiting; True when all is over."""
        if self._open is not None:
            self._look()
        elif self._left and share >= self._left[0].at:
            outage = self._left.pop(0)
            self._open = (outage, outage.cluster.kill9(outage.role), self._clock.boot_ns())
            self._say(f"{share:4.0%} written: kill -9 {outage.what} (pid {self._open[1]})")
        return self._open is None and not self._left

    def _look(self) -> None:
        assert self._open is not None
        outage, old_pid, since_ns = self._open
        pid = outage.cluster.role(outage.role).pid
        if pid != old_pid:
            self._open = None
            self._say(
                f"{outage.what} was started again after {(self._clock.boot_ns() - since_ns) / 1e9:.1f} s (pid {pid})"
            )
