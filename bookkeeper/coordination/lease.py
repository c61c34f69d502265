"""The lease record, and the decision whether its process counts as alive; without IO.

The record has the boot id, because times of two boots can't be compared. Rule: R15.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from bookkeeper.errors import CorruptionError

RECORD_BYTES = 68


class LeaseRecord(Struct, frozen=True):
    """Valid on the boot ``boot_id`` until ``expires_ns`` (boot clock, nanoseconds)."""

    boot_id: str
    expires_ns: int

    def encode(self) -> bytes:
        """Text of :data:`RECORD_BYTES` bytes with a checksum, which detects a torn read."""
        body = f"{self.boot_id:<36} {self.expires_ns:020d} ".encode()
        return body + f"{zlib.crc32(body):08x} \n".encode()

    @classmethod
    def decode(cls, raw: bytes) -> LeaseRecord:
        """Parse :meth:`encode`; raises CorruptionError on anything else."""
        body, tail = raw[:58], raw[58:]
        if len(raw) != RECORD_BYTES or tail != f"{zlib.crc32(body):08x} \n".encode():
            raise CorruptionError("a session's lease record does not parse")
        boot_id, expires = body.decode().split()
        return cls(boot_id, int(expires))


NO_RECORD = LeaseRecord("", 0)
"""Stands for the record of a session without a process, or with an unreadable record; it never counts."""


class LeaseState(Struct, frozen=True):
    """The lease of a session as an observer reads it: the record, whether the process still has the lock, and the
    damage of a locked file ("" = none).
    """

    record: LeaseRecord
    is_locked: bool
    damage: str = ""


def renewal_counts(previous_until_ns: int, written_ns: int) -> bool:
    """Whether a renewal counts that was written before ``written_ns`` (boot clock, nanoseconds).

    A process that stops in the middle of a renewal may write it after others saw the lease end. So a renewal counts
    only when it was written before the end of the previous one.
    """
    return written_ns < previous_until_ns


def silent_ms(state: LeaseState, now_ns: int, lease_ms: int) -> int:
    """For how long a process has not renewed its lease, ms, once that is half of the lease or more; else 0. It stands
    still, or the machine is busy. It may still renew, so nothing but words follows.
    """
    renewed_ns = state.record.expires_ns - lease_ms * 1_000_000
    silent = (now_ns - renewed_ns) // 1_000_000
    return silent if state.is_locked and not state.damage and 2 * silent >= lease_ms else 0


def is_dead(state: LeaseState, boot_id: str, now_ns: int, margin_ns: int) -> bool:
    """Whether a session is permanently dead: another boot, a free lock (no process), or lease and margin are over.

    A session with a process and an unreadable record counts as alive, because its lease may still run. The next renewal
    repairs the record, or else the supervisor of the machine kills the process.
    """
    if not state.is_locked:
        return True
    if state.damage:
        return False
    return state.record.boot_id != boot_id or now_ns > state.record.expires_ns + margin_ns
