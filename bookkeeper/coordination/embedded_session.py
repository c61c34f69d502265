"""A session of the embedded coordination: a file with a lease record that its process locks and a thread renews.

Other processes detect the death of the process at once, by the lock (:mod:`bookkeeper.coordination.lease_file`).
Rule: R15.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.lease import renewal_counts
from bookkeeper.coordination.lease_file import LeaseFile
from bookkeeper.errors import LeaseLostError
from bookkeeper.runtime.threads import guarded_thread

LOG = logging.getLogger(__name__)


class EmbeddedSession:
    """The lease of this process (see :class:`bookkeeper.coordination.coordination_protocol.Session`)."""

    def __init__(self, session_id: str, path: Path, clock: Clock, boot_id: str, settings: CoordinationSettings) -> None:
        self._session_id = session_id
        self._clock = clock
        self._lease_ns = settings.session_lease_ms * 1_000_000
        self._renew_ms = settings.session_renew_ms
        self._stop = threading.Event()
        self._close_lock = threading.Lock()
        self._file = LeaseFile(path, boot_id, settings.session_lease_ms)
        before_ns = clock.boot_ns()
        self._file.write(before_ns)
        self._valid_until_ns = before_ns + self._lease_ns
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

    def close(self) -> None:
        """See the protocol. Frees the lock, so that other processes detect the end at once."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        with self._close_lock:
            self._file.close()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._renew_ms):
            if not self._renew():
                LOG.critical("session %s lost its lease", self._session_id)
                return

    def _renew(self) -> bool:
        """Write a renewal; False once the session is lost. The new lease starts before the write."""
        before_ns = self._clock.boot_ns()
        if not renewal_counts(self._valid_until_ns, before_ns):
            return False
        if not self._file.is_there():
            self._valid_until_ns = 0
            return False
        try:
            self._file.write(before_ns)
        except OSError:
            LOG.exception("session %s can't write its renewal; trying again until the lease ends", self._session_id)
            return True
        if not renewal_counts(self._valid_until_ns, self._clock.boot_ns()):
            return False
        self._valid_until_ns = before_ns + self._lease_ns
        return True
