"""A cache of the names that the interactive shell shows and completes: of the cluster, its tables and its peers.

A background thread reads the names, so a prompt never waits long for a cluster: a caller waits for a bounded time, and
then gets the cached names.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from msgspec import Struct

from bookkeeper.client import Client
from bookkeeper.client.client import CONNECT_BUDGET_MS
from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError
from bookkeeper.security.access import CredentialFiles

FRESH_MS = 3_000
"""Age at which cached names are read again."""

WAIT_MS = 500
"""Longest wait of a prompt or a completion."""


class ClusterNames(Struct, frozen=True):
    """Names at one moment; ``cluster`` is empty before the first answer."""

    cluster: str = ""
    tables: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


class NameCache:
    """Names of one cluster, which ``read`` asks of it. Thread-safe."""

    def __init__(self, read: Callable[[], ClusterNames], clock: Clock | None = None) -> None:
        self._read = read
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._names = ClusterNames()
        self._stale_from_ns = 0
        self._is_reading = False

    def get(self, wait_ms: float = WAIT_MS) -> ClusterNames:
        """The newest names, after ``wait_ms`` at most."""
        with self._changed:
            if not self._is_reading and self._clock.boot_ns() >= self._stale_from_ns:
                self._is_reading = True
                threading.Thread(target=self._refresh, name="names", daemon=True).start()
            self._changed.wait_for(lambda: not self._is_reading, wait_ms / 1000)
            return self._names

    def _refresh(self) -> None:
        names = self._names
        try:
            with contextlib.suppress(BookkeeperError):  # the next command reports the error
                names = self._read()
        finally:
            with self._changed:
                self._names = names
                self._stale_from_ns = self._clock.boot_ns() + FRESH_MS * 1_000_000
                self._is_reading = False
                self._changed.notify_all()


def connect(cluster: str, credentials: CredentialFiles, budget_ms: float | None = None) -> Client:
    """A client of ``cluster``, a directory or a quorum. It searches for a master for up to ``budget_ms``. Raises
    BookkeeperError.
    """
    return Client.connect(
        cluster,
        secret_file=credentials.secret_file,
        tls_ca=credentials.tls_ca,
        tls_certificate=credentials.tls_certificate,
        budget_ms=CONNECT_BUDGET_MS if budget_ms is None else budget_ms,
    )


def read_names(cluster: str, credentials: CredentialFiles | None = None) -> ClusterNames:
    """Ask ``cluster``, a directory or a quorum, for its names, once. Raises BookkeeperError."""
    with connect(cluster, credentials or CredentialFiles(), 0) as client:
        return ClusterNames(
            client.cluster_name(),
            tuple(sorted(table.name for table in client.tables.list())),
            tuple(sorted(peer.name for peer in client.replication.clusters())),
        )
