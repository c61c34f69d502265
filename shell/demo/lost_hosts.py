"""The third act of the demo: a table with a replica on each of three hosts, and hosts that are lost under load."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from msgspec import Struct

from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.joining import local_directory


class LostHost(Struct, frozen=True):
    """The end of a host of a cluster, once the share ``at`` of the load is written."""

    at: float
    cluster: ClusterProcess
    host: str


class LostHosts:
    """A plan of losses under way; ``log`` gets a line for each."""

    def __init__(self, plan: Sequence[LostHost], log: Callable[[str], None]) -> None:
        self._pending = sorted(plan, key=lambda loss: loss.at)
        self._log = log

    def step(self, share: float) -> None:
        """Kill each host whose end is due at ``share`` (0 to 1) of the load, and remove its directory."""
        while self._pending and share >= self._pending[0].at:
            loss = self._pending.pop(0)
            pid = loss.cluster.kill9(f"{loss.host}.tserver1")
            home = local_directory(loss.cluster.settings, loss.host)
            shutil.rmtree(home.rename(home.with_name(f"{loss.host}-lost")))  # at once: its processes start again soon
            name = loss.cluster.settings.instance.name
            self._log(f"{share:4.0%} written: kill -9 {name} {loss.host} (pid {pid}), and its directory is removed")
