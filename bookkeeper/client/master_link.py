"""Calls of the leading master, whichever of the cluster's masters that is now.

Arrives: the addresses of the masters (a quorum). Leaves: results. Any master says who leads; a master that does not
lead, or does not answer, is asked no more and the leader is looked up again, for as long as the budget lasts. A call
may therefore be carried out twice; :meth:`MasterLink.call` says what that means.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from bookkeeper.client.retry import retrying
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, NotLeaderError, TransientError, UnavailableError
from bookkeeper.rpc.address import Address, format_quorum
from bookkeeper.rpc.rpc_pool import RpcPool

FIND_TIMEOUT_MS = 5_000
BUDGET_MS = 30_000
"""How long a call is repeated by default: a master that was killed is back in a few seconds."""

CALL_TIMEOUT_MS = 120_000
"""How long one attempt may take: enabling replication, for one, waits for every tserver."""

LOOK_TIMEOUT_MS = 15_000
"""The same for methods that only look: a master that is stopped shall not hold up those who could ask another."""

LOOKS = {
    "tables",
    "is_read_only",
    "locate",
    "locate_tablet",
    "clusters",
    "authorizations",
    "replication_config",
    "replication_status",
    "replication_pending",
    "quarantine",
}


class MasterLink:
    """Finds the leader and calls it; thread-safe."""

    def __init__(
        self, pool: RpcPool, quorum: tuple[Address, ...], clock: Clock, rng: random.Random, stopped: threading.Event
    ) -> None:
        self._pool = pool
        self._quorum = quorum
        self._clock = clock
        self._rng = rng
        self._stopped = stopped
        self._leader: str | None = None

    def find_leader(self) -> str:
        """Ask the masters once, one after the other, who leads; raises UnavailableError naming each and its reason."""
        reasons = []
        for address in self._quorum:
            try:
                self._leader = self._pool.master(str(address), FIND_TIMEOUT_MS).leader()
            except TransientError as error:
                reasons.append(error.message)
            else:
                return self._leader
        raise UnavailableError(f"no master of {format_quorum(self._quorum)} says who leads: {'; '.join(reasons)}")

    def wait_for_leader(self, budget_ms: float) -> str:
        """:meth:`find_leader`, again until one is named; raises its last UnavailableError when the budget is over."""
        return retrying(self._clock, self._rng, self._stopped, budget_ms, "leader")(self.find_leader)

    def call(
        self,
        method: str,
        *arguments: Any,
        budget_ms: float = BUDGET_MS,
        settled_by: type[BookkeeperError] | None = None,
    ) -> Any:
        """The result; raises what the leader raised, or UnavailableError when the budget is over.

        When an answer was lost and the repeated call ends with ``settled_by``, the lost one did it: returns None.
        """
        lost = False
        timeout_ms = LOOK_TIMEOUT_MS if method in LOOKS else CALL_TIMEOUT_MS

        def attempt() -> Any:
            nonlocal lost
            leader = self._leader or self.find_leader()
            try:
                return self._pool.call(leader, "Master", method, *arguments, timeout_ms=timeout_ms)
            except NotLeaderError:
                self._leader = None
                raise
            except UnavailableError:
                self._leader = None
                lost = True
                raise

        try:
            return retrying(self._clock, self._rng, self._stopped, budget_ms, method)(attempt)
        except BookkeeperError as error:
            if lost and settled_by is not None and isinstance(error, settled_by):
                return None
            raise
