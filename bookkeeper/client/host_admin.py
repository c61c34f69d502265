"""Administration of hosts; each method is a call of the leading master."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from bookkeeper.client.master_link import MasterLink
from bookkeeper.clock import Clock
from bookkeeper.rpc.contract.messages import HostInfo, OperationInfo, TableInfo, TabletReplicas

POLL_MS = 500
"""Pause between two looks of :meth:`Hosts.wait`: each one asks every host."""

WAIT_LIMIT_MS = 600_000

MOVING_KINDS = ("move_replicas", "change_store")
"""Kinds of operations that move replicas: while one runs, a tablet may have its replicas where they are not to stay."""


class MovesLeft(Struct, frozen=True):
    """The replicas that are not where they are to be yet, and of those that join the bytes that are not there yet."""

    replicas: int
    bytes: int


class Hosts:
    """``client.hosts``: list and drain hosts, and show the replicas of tables. Raises as ``client.tables`` does."""

    def __init__(self, master: MasterLink, clock: Clock, stopped: threading.Event) -> None:
        self._master = master
        self._clock = clock
        self._stopped = stopped

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

    def moves_left(self) -> MovesLeft:
        """The replicas of all tables that still have to join, move, or leave a host that is drained."""
        tables: Sequence[TableInfo] = self._master.call("tables")
        operations: Sequence[OperationInfo] = self._master.call("operations")
        tablets = (one for table in tables for one in self.replicas(table.table_id))
        return moves_left(self.list(), tablets, operations)

    def wait(self, timeout_ms: float = WAIT_LIMIT_MS, progress: Callable[[MovesLeft], None] | None = None) -> MovesLeft:
        """Wait until every tablet has as many voters as its table asks for, no replica joins, and hosts that are
        drained have none. Waits for ``timeout_ms`` milliseconds at most and returns what is left then: no replica is
        success. Calls ``progress`` with it after each look.
        """
        deadline_ns = self._clock.boot_ns() + int(timeout_ms * 1e6)
        while True:
            left = self.moves_left()
            if progress is not None:
                progress(left)
            if not left.replicas or self._clock.boot_ns() >= deadline_ns or self._clock.wait(self._stopped, POLL_MS):
                return left


def moves_left(
    hosts: Iterable[HostInfo], tablets: Iterable[TabletReplicas], operations: Iterable[OperationInfo]
) -> MovesLeft:
    """The replicas left to move on these hosts, for these tablets; at least one for each operation that moves some."""
    known = list(hosts)
    drained = {host.name for host in known if host.draining}
    replicas = sum(replicas_left(tablet, drained) for tablet in tablets)
    moving = sum(one.kind in MOVING_KINDS and one.step != "failed" for one in operations)
    return MovesLeft(max(replicas, moving), sum(max(0, host.joining_bytes - host.joined_bytes) for host in known))


def replicas_left(tablet: TabletReplicas, drained: set[str]) -> int:
    """The replicas of a tablet that are still to be made voters, or to be removed. A tablet of one replica has none on
    hosts.
    """
    wanted = tablet.wanted if tablet.wanted > 1 else 0
    staying = sum(one.role == "voter" and one.host not in drained for one in tablet.replicas)
    others = len(tablet.replicas) - staying
    return max(abs(wanted - staying), others)
