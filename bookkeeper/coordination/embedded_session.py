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
from bookkeeper.coordination.renewed_session import RenewedSession

LOG = logging.getLogger(__name__)


class EmbeddedSession(RenewedSession):
    """A lease in a locked file."""

    def __init__(self, session_id: str, path: Path, clock: Clock, boot_id: str, settings: CoordinationSettings) -> None:
        self._close_lock = threading.Lock()
        self._file = LeaseFile(path, boot_id, settings.session_lease_ms)
        before_ns = clock.boot_ns()
        self._file.write(before_ns)
        super().__init__(session_id, clock, settings, before_ns)

    def close(self) -> None:
        """See the protocol. Frees the lock, so that other processes detect the end at once."""
        self._end_renewals()
        with self._close_lock:
            self._file.close()

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
