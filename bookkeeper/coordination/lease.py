"""When a process counts as alive: the lease record and the decisions about it, without IO.

Arrives: a lease record, whether its lock is held, and the time on the boot clock. Leaves: a verdict. The record holds
the boot id, because the boot clock of one boot says nothing about another. Rule: R15.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from bookkeeper.errors import CorruptionError

RECORD_BYTES = 68


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Valid on the boot ``boot_id`` until ``expires_ns`` (boot clock, nanoseconds)."""

    boot_id: str
    expires_ns: int

    def encode(self) -> bytes:
        """Text of :data:`RECORD_BYTES` bytes with a checksum, so that a torn read is noticed."""
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
"""What the record of a session says whose process is gone: nothing that counts."""


@dataclass(frozen=True, slots=True)
class LeaseSight:
    """What an observer sees of a session: its record, whether its process still holds the lock, and, when it does, why
    its record can't be read ("" = it can).
    """

    record: LeaseRecord
    lock_held: bool
    damage: str = ""


def renewal_counts(previous_until_ns: int, written_ns: int) -> bool:
    """Tell whether a renewal counts that was surely written by ``written_ns`` (boot clock, nanoseconds).

    A process stopped in the middle of a renewal may write it when others have seen the lease run out already; only a
    renewal written before the previous one ended prolongs anything.
    """
    return written_ns < previous_until_ns


def is_intact(found: bytes, written: bytes) -> bool:
    """Tell whether a session's file holds what its owner wrote last, and nothing besides."""
    return found == written


def is_dead(sight: LeaseSight, boot_id: str, now_ns: int, margin_ns: int) -> bool:
    """Tell whether a session is dead for good: other boot, free lock (process gone), or lease and margin over.

    A process that is there, with a record that can't be read, counts as alive: it mends the record with its next
    renewal, or has none and is ended by its machine's supervisor; whoever took it for dead might be wrong.
    """
    if not sight.lock_held:
        return True
    if sight.damage:
        return False
    return sight.record.boot_id != boot_id or now_ns > sight.record.expires_ns + margin_ns
