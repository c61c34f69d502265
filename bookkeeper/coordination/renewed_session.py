"""The lease of this process, which a thread renews: what the sessions of all stores have in common. Rule: R15."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from bookkeeper.clock import Clock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.errors import LeaseLostError
from bookkeeper.runtime.threads import guarded_thread

LOG = logging.getLogger(__name__)


class RenewedSession(ABC):
    """See :class:`bookkeeper.coordination.coordination_protocol.Session`. A store's own session says how it renews."""

    def __init__(self, session_id: str, clock: Clock, settings: CoordinationSettings, since_ns: int) -> None:
        """``since_ns``: when the first lease began."""
        self._session_id = session_id
        self._clock = clock
        self._lease_ns = settings.session_lease_ms * 1_000_000
        self._renew_ms = settings.session_renew_ms
        self._valid_until_ns = since_ns + self._lease_ns
        self._stop = threading.Event()
        self._thread = guarded_thread(f"lease-{session_id}", self._run)

    def start(self) -> None:
        """Start the renewals."""
        self._thread.start()

    @property
    def session_id(self) -> str:
        """See the protocol."""
        return self._session_id

    def is_valid(self) -> bool:
        """See the protocol."""
        return not self._stop.is_set() and self._clock.boot_ns() < self._valid_until_ns

    def check(self) -> None:
        """See the protocol."""
        if not self.is_valid():
            raise LeaseLostError(f"session {self._session_id} is over; this process must stop and be started again")

    def _end_renewals(self) -> None:
        """No renewal is written from now on."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._renew_ms):
            if not self._renew():
                LOG.critical("session %s lost its lease", self._session_id)
                return

    @abstractmethod
    def _renew(self) -> bool:
        """Write a renewal; False once the session is lost. The new lease starts before the write."""
