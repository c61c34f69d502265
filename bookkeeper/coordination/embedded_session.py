"""A session of the embedded coordination: one file with a lease record, locked by its process, renewed by a thread.

Arrives: a file name and a lease. Leaves: :class:`EmbeddedSession`, valid as long as renewals reach the file in time.
Survives a crash: the file; its lock (programs that this process starts do not inherit it) is free as soon as the
process is gone, whatever killed it, which tells others at once. Renewals touch only this file, so that no other
process can hold them up; one that finds something else there than the last one wrote says so, and makes it whole.
Rule: R15.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.config import CoordinationSettings
from bookkeeper.coordination.lease import NO_RECORD, RECORD_BYTES, LeaseRecord, LeaseSight, is_intact, renewal_counts
from bookkeeper.errors import CorruptionError, LeaseLostError, unavailable
from bookkeeper.runtime.threads import guarded_thread

LOG = logging.getLogger(__name__)

_READS_MAX = 100


def look_at_lease(path: Path) -> LeaseSight:
    """What can be seen of the session whose file this is; raises FileNotFoundError, UnavailableError. Without its
    process it does not matter what is there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return _look(descriptor, path)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(f"{path} can't be read", error) from error


def _look(descriptor: int, path: Path) -> LeaseSight:
    if not _is_locked(descriptor):
        return LeaseSight(NO_RECORD, lock_held=False)
    record = _read_record(descriptor)
    if record is None:
        return LeaseSight(NO_RECORD, lock_held=True, damage=f"{path} is damaged: it holds no lease record")
    return LeaseSight(record, lock_held=True)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read_record(descriptor: int) -> LeaseRecord | None:
    """None when it never parses."""
    for _ in range(_READS_MAX):  # a read may meet a renewal half-way: the checksum tells
        try:
            return LeaseRecord.decode(os.pread(descriptor, RECORD_BYTES + 1, 0))
        except CorruptionError:
            continue
    return None


class EmbeddedSession:
    """This process's own lease (see :class:`bookkeeper.coordination.coordination_protocol.Session`)."""

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
        """What the file holds."""
        before_ns = clock.boot_ns()
        self._write(self._descriptor, before_ns)
        self._valid_until_ns = before_ns + self._lease_ns
        self._thread = guarded_thread(f"lease-{session_id}", self._run)

    def start(self) -> None:
        """Begin to renew."""
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
        """See the protocol. The free lock tells others at once."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        with self._close_lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def _write(self, descriptor: int, before_ns: int) -> None:
        record = LeaseRecord(self._boot_id, before_ns + self._lease_ns).encode()
        if not is_intact(os.pread(descriptor, RECORD_BYTES + 1, 0), self._record):
            LOG.error("%s is damaged: it does not hold what was written last; it is written anew", self._path)
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
        """Write a renewal; False once the session is lost. Validity counts from before the write."""
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
            LOG.exception("session %s could not write its renewal; tries again until the lease ends", self._session_id)
            return True
        if not renewal_counts(self._valid_until_ns, self._clock.boot_ns()):
            return False
        self._valid_until_ns = before_ns + self._lease_ns
        return True
