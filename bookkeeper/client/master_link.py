"""Calls of the leading master of a cluster.

Each master names the leader. When a master does not lead or does not answer, the link finds the leader again, until the
budget is over. So the leader may execute a call twice; :meth:`MasterLink.call` describes the result. A master that was
silent is asked last and briefly for a while: the others name it as the leader until its lease is over, and then
another one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bookkeeper.client.retry import retrying
from bookkeeper.clock import Clock
from bookkeeper.coordination.masters import MasterAddress, MasterFinder, normal_quorum
from bookkeeper.errors import BookkeeperError, NotLeaderError, PermanentError, TransientError, UnavailableError
from bookkeeper.rpc.contract.tables import READ_METHODS
from bookkeeper.rpc.rpc_pool import SILENT, RpcPool

LEADER_TIMEOUT_MS = 5_000

SILENT_TIMEOUT_MS = 500
"""The same for a master that was silent within :data:`SILENT_FOR_MS`. After that time it has all of the time again,
because it may be far away.
"""

SILENT_FOR_MS = 10_000
BUDGET_MS = 30_000
"""Default time for a call with all its tries, ms: a killed master is back in a few seconds."""

CALL_TIMEOUT_MS = 120_000
"""Time-out of one try, ms: enabling replication, for example, waits for every tserver."""

READ_TIMEOUT_MS = 15_000
"""Time-out of one try of a method that only reads, ms: another master may answer when one is stopped."""


class MasterLink:
    """Finds the leader and calls it; thread-safe."""

    def __init__(
        self,
        pool: RpcPool,
        quorum: str,
        clock: Clock,
        rng: random.Random,
        stopped: threading.Event,
        home: Path | None = None,
    ) -> None:
        """``quorum``: as of :mod:`bookkeeper.coordination.masters`; ``home``: the cluster's directory, None when it is
        not known. Raises InvalidInputError.
        """
        self._pool = pool
        self._quorum = normal_quorum(quorum)
        self._finder = MasterFinder(clock)
        self._clock = clock
        self._rng = rng
        self._stopped = stopped
        self._home = home
        self._leader: str | None = None
        self._silent: dict[str, int] = {}
        """The addresses of masters that were silent when they had all of the time to answer, and when that was."""
        self._instance_id = ""
        """That of the masters which answered, where ZooKeeper names it."""

    def find_leader(self) -> str:
        """Ask each master once for the leader's address, and a leader that was silent whether it answers; raises
        UnavailableError with the reason of each master, or the error of one that refuses.
        """
        reasons, refusal, asked = list[str](), None, set[str]()
        for master in self._silent_last(self._finder.addresses(self._quorum, LEADER_TIMEOUT_MS, self._instance_id)):
            if master.address in asked:
                continue
            try:
                leader = self._ask(master, asked)
                if self._is_silent(leader):
                    if leader in asked:
                        continue
                    leader = self._ask(MasterAddress(leader, master.instance_id), asked)
            except TransientError as error:
                reasons.append(error.message)
            except PermanentError as error:  # the process may have the address of a master that moved
                refusal = refusal or error
            else:
                self._leader, self._instance_id = leader, master.instance_id
                return leader
        if refusal is not None:
            raise refusal
        raise UnavailableError(
            f"no master of {self._quorum} says who leads: {'; '.join(reasons)}; "
            f"start the cluster, if it does not run: bookkeeper standalone {self._home or 'DIR'}"
        )

    def _silent_last(self, masters: Iterable[MasterAddress]) -> Iterator[MasterAddress]:
        silent = []
        for master in masters:
            if self._is_silent(master.address):
                silent.append(master)
            else:
                yield master
        yield from silent

    def _ask(self, master: MasterAddress, asked: set[str]) -> str:
        """The leader that a master names; adds its address to ``asked``. Raises its error."""
        asked.add(master.address)
        pool = self._pool.of_instance(master.instance_id) if master.instance_id else self._pool
        timeout_ms = SILENT_TIMEOUT_MS if self._is_silent(master.address) else LEADER_TIMEOUT_MS
        try:
            leader: str = pool.master(master.address, timeout_ms).leader()
        except UnavailableError as error:
            self._note_failure(master.address, error)
            raise
        self._silent.pop(master.address, None)
        return leader

    def _note_failure(self, address: str, error: UnavailableError) -> None:
        if error.details.get(SILENT) == address and not self._is_silent(address):
            self._silent[address] = self._clock.boot_ns()

    def _is_silent(self, address: str) -> bool:
        since_ns = self._silent.get(address)
        return since_ns is not None and self._clock.boot_ns() - since_ns < SILENT_FOR_MS * 1_000_000

    def wait_for_leader(self, budget_ms: float) -> str:
        """Repeat :meth:`find_leader` until it succeeds; raises its last UnavailableError when the budget is over."""
        return retrying(self._clock, self._rng, self._stopped, budget_ms, "leader")(self.find_leader)

    def call(
        self,
        method: str,
        *arguments: Any,
        budget_ms: float = BUDGET_MS,
        settled_by: type[BookkeeperError] | None = None,
    ) -> Any:
        """Call the leader and return its result; raises the leader's error, or UnavailableError when the budget is
        over.

        When an answer is lost and the repeated call raises ``settled_by``, the first call succeeded: returns None.
        """
        lost = False
        timeout_ms = READ_TIMEOUT_MS if method in READ_METHODS else CALL_TIMEOUT_MS

        def attempt() -> Any:
            nonlocal lost
            leader = self._leader or self.find_leader()
            try:
                return self._pool.call(leader, "Master", method, *arguments, timeout_ms=timeout_ms)
            except NotLeaderError:
                self._leader = None
                raise
            except UnavailableError as error:
                self._note_failure(leader, error)
                self._leader = None
                lost = True
                raise

        try:
            return retrying(self._clock, self._rng, self._stopped, budget_ms, method)(attempt)
        except BookkeeperError as error:
            if lost and settled_by is not None and isinstance(error, settled_by):
                return None
            raise
