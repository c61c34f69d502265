"""A session of the embedded coordination: a file with a lease record that its process locks and a thread renews.

The lock is free as soon as the process is gone, because programs that it starts do not inherit the lock. So other
processes detect the death at once. A renewal writes only this file, so no other process can delay it. A renewal that
finds other content than the previous one wrote logs the damage and repairs the file. Rule: R15.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.lease import NO_RECORD, RECORD_BYTES, LeaseRecord, LeaseState, renewal_counts
from bookkeeper.errors import CorruptionError, LeaseLostError, unavailable
from bookkeeper.runtime.threads import guarded_thread

LOG = logging.getLogger(__name__)

_READS_MAX = 100


def read_lease(path: Path) -> LeaseState:
    """The state of the session with this file; reads the record only when a process has the lock. Raises
    FileNotFoundError, UnavailableError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return _read_state(descriptor, path)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(f"{path} can't be read", error) from error


def _read_state(descriptor: int, path: Path) -> LeaseState:
    if not _is_locked(descriptor):
        return LeaseState(NO_RECORD, is_locked=False)
    record = _read_record(descriptor)
    if record is None:
        return LeaseState(NO_RECORD, is_locked=True, damage=f"{path} is damaged: it has no lease record")
    return LeaseState(record, is_locked=True)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read_record(descriptor: int) -> LeaseRecord | None:
    """The lease record, or None when no read parses. A checksum fails when a renewal writes during the read."""
    for _ in range(_READS_MAX):
        try:
            return LeaseRecord.decode(os.pread(descriptor, RECORD_BYTES + 1, 0))
        except CorruptionError:
            continue
    return None


class EmbeddedSession:
    """The lease of this process (see :class:`bookkeeper.coordination.coordination_protocol.Session`)."""

    def __init__(self, session_id: str, path: Path, clock: Clock, boot_id: str, settings: CoordinationSettings) -> None:
        self._session_id = session_id
        self._path = path
        self._clock = clock
        self._boot_id = boot_id
        self._lease_ns = settings.session_lease_ms * 1_000_000
        self._renew_ms = settings.session_renew_ms
        self._stop = threading.Event()
        self._close_lock = threading.Lock()
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._record = b""
        """The content that this session wrote last."""
        before_ns = clock.boot_ns()
        self._write(self._descriptor, before_ns)
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
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def _write(self, descriptor: int, before_ns: int) -> None:
        record = LeaseRecord(self._boot_id, before_ns + self._lease_ns).encode()
        # R15: other processes read it, and could not tell when the lease of this live process ends.
        if os.pread(descriptor, RECORD_BYTES + 1, 0) != self._record:
            LOG.error("%s is damaged: its content is not that of the last renewal; this renewal repairs it", self._path)
            os.ftruncate(descriptor, RECORD_BYTES)
        if os.pwrite(descriptor, record, 0) != len(record):
            raise OSError(f"short write to the lease file of {self._session_id}")
        self._record = record

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._renew_ms):
            if not self._renew():
                LOG.critical("session %s lost its lease", self._session_id)
                return

    def _renew(self) -> bool:
        """Write a renewal; False once the session is lost. The new lease starts before the write."""
        descriptor = self._descriptor
        before_ns = self._clock.boot_ns()
        if descriptor is None or not renewal_counts(self._valid_until_ns, before_ns):
            return False
        if os.fstat(descriptor).st_nlink == 0:
            self._valid_until_ns = 0
            return False
        try:
            self._write(descriptor, before_ns)
        except OSError:
            LOG.exception("session %s can't write its renewal; trying again until the lease ends", self._session_id)
            return True
        if not renewal_counts(self._valid_until_ns, self._clock.boot_ns()):
            return False
        self._valid_until_ns = before_ns + self._lease_ns
        return True
