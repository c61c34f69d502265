"""Administration of hosts; each method is a call of the leading master."""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.client.master_link import MasterLink
from bookkeeper.rpc.contract.messages import HostInfo, TabletReplicas


class Hosts:
    """``client.hosts``: list and drain hosts, and show the replicas of tables. Raises as ``client.tables`` does."""

    def __init__(self, master: MasterLink) -> None:
        self._master = master

    def list(self) -> Sequence[HostInfo]:
        """All hosts."""
        hosts: Sequence[HostInfo] = self._master.call("hosts")
        return hosts

    def drain(self, name: str, draining: bool) -> None:
        """Let a host give away its replicas, or let it have some again. Raises NotFoundError."""
        self._master.call("drain_host", name, draining)

    def forget(self, name: str) -> None:
        """Accept that the logs on the lost disk of a host are lost for ever. Raises NotFoundError, RefusedError."""
        self._master.call("forget_host", name)

    def replicas(self, table_id: str, with_segments: bool = False) -> Sequence[TabletReplicas]:
        """The replicas of each tablet of a table, in order. Raises NotFoundError."""
        found: Sequence[TabletReplicas] = self._master.call("table_replicas", table_id, with_segments)
        return found
