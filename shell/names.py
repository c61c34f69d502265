"""Names that the interactive shell shows and completes: those of the cluster, its tables and its peers.

Arrives: a function that asks the cluster. Leaves: what it answered when last asked. A prompt must not wait: the cluster
is asked in the background, and whoever wants names waits for a bounded time, then makes do with what is known.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from bookkeeper.client import Client
from bookkeeper.client.client import CONNECT_BUDGET_MS
from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError
from bookkeeper.security.access import CredentialFiles

FRESH_MS = 3_000
"""How long an answer is taken for true."""

WAIT_MS = 500
"""How long a prompt or a completion waits."""


@dataclass(frozen=True, slots=True)
class Known:
    """An answer. ``cluster`` is empty as long as nobody answered."""

    cluster: str = ""
    tables: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


class Names:
    """See the module. Thread-safe."""

    def __init__(self, ask: Callable[[], Known], clock: Clock | None = None) -> None:
        self._ask = ask
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._known = Known()
        self._stale_from_ns = 0
        self._asking = False

    def look(self, wait_ms: float = WAIT_MS) -> Known:
        """What is known, after ``wait_ms`` at most."""
        with self._changed:
            if not self._asking and self._clock.boot_ns() >= self._stale_from_ns:
                self._asking = True
                threading.Thread(target=self._refresh, name="names", daemon=True).start()
            self._changed.wait_for(lambda: not self._asking, wait_ms / 1000)
            return self._known

    def _refresh(self) -> None:
        known = self._known
        try:
            with contextlib.suppress(BookkeeperError):  # the next command says why nobody answers
                known = self._ask()
        finally:
            with self._changed:
                self._known = known
                self._stale_from_ns = self._clock.boot_ns() + FRESH_MS * 1_000_000
                self._asking = False
                self._changed.notify_all()


def connect(where: str, given: CredentialFiles, budget_ms: float | None = None) -> Client:
    """A client of the cluster that is named as on a command line; raises BookkeeperError. ``budget_ms``: how long a
    master is looked for.
    """
    return Client.connect(
        where,
        secret_file=given.secret_file,
        tls_ca=given.tls_ca,
        tls_certificate=given.tls_certificate,
        budget_ms=CONNECT_BUDGET_MS if budget_ms is None else budget_ms,
    )


def ask_cluster(where: str, given: CredentialFiles | None = None) -> Known:
    """Ask the cluster that is named as on a command line, once; raises BookkeeperError."""
    with connect(where, given or CredentialFiles(), 0) as client:
        return Known(
            client.cluster_name(),
            tuple(sorted(table.name for table in client.tables.list())),
            tuple(sorted(cluster.name for cluster in client.replication.clusters())),
        )
