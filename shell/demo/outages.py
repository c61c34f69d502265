"""The outages of the demo: kills of processes, one at a time, each after the restart of the previous process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.standalone.cluster_process import ClusterProcess


class Outage(Struct, frozen=True):
    """A kill of ``role`` of a cluster once the share ``at`` of the load is written."""

    at: float
    cluster: ClusterProcess
    role: str

    @property
    def label(self) -> str:
        """Cluster and role, such as ``west master``."""
        return f"{self.cluster.settings.instance.name} {self.role}"


class Outages:
    """A plan of outages under way; ``log`` gets a line for every kill and every restart."""

    def __init__(self, plan: Sequence[Outage], log: Callable[[str], None], clock: Clock) -> None:
        self._pending = sorted(plan, key=lambda outage: outage.at)
        self._log = log
        self._clock = clock
        self._current: tuple[Outage, int, int] | None = None

    def step(self, share: float) -> bool:
        """Make the kill that is due at ``share`` (0 to 1) of the load, without waiting; True after the last restart."""
        if self._current is not None:
            self._check_restart()
        elif self._pending and share >= self._pending[0].at:
            outage = self._pending.pop(0)
            self._current = (outage, outage.cluster.kill9(outage.role), self._clock.boot_ns())
            self._log(f"{share:4.0%} written: kill -9 {outage.label} (pid {self._current[1]})")
        return self._current is None and not self._pending

    def _check_restart(self) -> None:
        assert self._current is not None
        outage, old_pid, since_ns = self._current
        pid = outage.cluster.role(outage.role).pid
        if pid != old_pid:
            self._current = None
            self._log(
                f"{outage.label} was started again after {(self._clock.boot_ns() - since_ns) / 1e9:.1f} s (pid {pid})"
            )
