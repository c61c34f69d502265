"""The lease of this process in ZooKeeper: a thread writes a new version of the session's node with each renewal.

Then it writes the lease into a file of the host, so that the host's supervisor ends an overdue process without
ZooKeeper. The process counts on a lease only when both are written. Rule: R15.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bookkeeper.clock import Clock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.host_leases import OwnLease
from bookkeeper.coordination.lease import renewal_counts
from bookkeeper.coordination.renewed_session import RenewedSession
from bookkeeper.coordination.zookeeper.ensemble import Ensemble, NotAsExpectedError, Write
from bookkeeper.errors import UnavailableError

LOG = logging.getLogger(__name__)


class ZooKeeperSession(RenewedSession):
    """A lease in a node and in a file of the host."""

    def __init__(
        self,
        session_id: str,
        node: str,
        ensemble: Ensemble,
        clock: Clock,
        settings: CoordinationSettings,
        made_ns: int,
        end: Callable[[str], None],
        lease: OwnLease,
    ) -> None:
        """``node``: the path of the node that is renewed, at version 0. ``made_ns``: before it was made. ``end`` ends
        the session in the store; ``lease`` is its file.
        """
        super().__init__(session_id, clock, settings, made_ns)
        self._node = node
        self._ensemble = ensemble
        self._end = end
        self._lease = lease
        self._version = 0

    def close(self) -> None:
        """See the protocol."""
        was_set = self._stop.is_set()
        self._end_renewals()
        if was_set:
            return
        try:
            self._end(self._session_id)
        except UnavailableError as error:
            LOG.warning("the supervisor, or the end of its lease, ends session %s: %s", self._session_id, error)
            self._lease.file.close()
        else:
            self._lease.remove()

    def _renew(self) -> bool:
        """Write a renewal; False once the session is lost. The new lease starts before the write is sent."""
        before_ns = self._clock.boot_ns()
        if not renewal_counts(self._valid_until_ns, before_ns):
            return False
        if not self._lease.file.is_there():  # R15: the host's supervisor could not end this process any more
            self._valid_until_ns = 0
            return False
        try:
            (self._version,) = self._ensemble.commit(Write(self._node, b"", self._version))
        except NotAsExpectedError as error:
            self._valid_until_ns = 0 if error.is_missing else self._valid_until_ns
            return not error.is_missing and self._read_version()
        except UnavailableError as error:
            LOG.warning("session %s can't write its renewal, trying again until the lease ends: %s", self._node, error)
            return self._read_version()
        if not renewal_counts(self._valid_until_ns, self._clock.boot_ns()):
            return False
        try:
            self._lease.file.write(before_ns)
        except OSError:
            LOG.exception("session %s can't write its lease; trying again until the lease ends", self._session_id)
            return True
        self._valid_until_ns = before_ns + self._lease_ns
        return True

    def _read_version(self) -> bool:
        """Whether the node is there, as far as this is known: nobody else writes it, so a lost answer was a renewal."""
        try:
            (written,) = self._ensemble.written(self._node)
        except UnavailableError:
            return True  # the next renewal finds out, or the lease ends
        if written is None:
            self._valid_until_ns = 0
            return False
        self._version = written.version
        return True
