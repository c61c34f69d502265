"""The reports of a replay process to the leading master: that it works, or what keeps it from its work.

The master names these words as the cause of all that waits for a replay process. A lost report costs the words only:
the master also sees that the process has no session. A new leader gets the report again.
"""

from __future__ import annotations

import logging
import threading

from bookkeeper.coordination.coordination_protocol import Coordination, Leader
from bookkeeper.errors import BookkeeperError, UnavailableError
from bookkeeper.rpc.rpc_pool import RpcPool

LOG = logging.getLogger(__name__)

TIMEOUT_MS = 1_000
"""The process ends after its last words: nobody waits long for them."""


class LastWords:
    """The reports of one session. Thread-safe."""

    def __init__(self, coordination: Coordination, pool: RpcPool, session_id: str) -> None:
        self._coordination = coordination
        self._pool = pool
        self._session_id = session_id
        self._lock = threading.Lock()
        self._told: tuple[Leader, str] | None = None

    def tell(self, problem: str) -> None:
        """Report to the leader, unless it knows; "" = this process works."""
        try:
            leader = self._coordination.leader()
            if leader is None:
                raise UnavailableError("no master leads now")
            with self._lock:
                if self._told == (leader, problem):
                    return
            self._pool.master(leader.address, TIMEOUT_MS).report_replay(self._session_id, problem)
            with self._lock:
                self._told = leader, problem
        except BookkeeperError as error:
            LOG.warning("the master could not be told that %s: %s", problem or "replay works", error)
