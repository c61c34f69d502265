"""The lease record, and the decision whether its process counts as alive; without IO.

The record has the boot id, because times of two boots can't be compared. With a store of several machines it also has
the token of the process, which the supervisor that finds the process gone needs to end its session. Rule: R15.
"""

from __future__ import annotations

import hashlib
import re
import zlib

from msgspec import Struct

from bookkeeper.errors import CorruptionError

RECORD_BYTES = 68
TOKEN_BYTES = 16
RECORD_BYTES_MAX = RECORD_BYTES + 2 * TOKEN_BYTES
"""With a token."""

TOKEN_VARIABLE = "BOOKKEEPER_SESSION_TOKEN"
"""The variable in which a process that the supervisor starts gets its token. The process removes it."""

_TOKEN = f"[0-9a-f]{{{2 * TOKEN_BYTES}}}"
_RECORD = re.compile(rf"([ -~]{{36}}) ([0-9]{{20}}) ((?:{_TOKEN})?)([0-9a-f]{{8}}) \n".encode())


def is_token(text: str) -> bool:
    """Whether it is a token: the digits of :data:`TOKEN_BYTES` random bytes."""
    return re.fullmatch(_TOKEN, text) is not None


def digest_of(token: str) -> str:
    """The SHA-256 of a token, which a reader of the store may know: the token can't be computed from it."""
    return hashlib.sha256(token.encode()).hexdigest()


class LeaseRecord(Struct, frozen=True):
    """Valid on the boot ``boot_id`` until ``expires_ns`` (boot clock, nanoseconds). ``token``: "" = none."""

    boot_id: str
    expires_ns: int
    token: str = ""

    def encode(self) -> bytes:
        """Text with a checksum, which detects a torn read: :data:`RECORD_BYTES` bytes, and those of the token."""
        body = f"{self.boot_id:<36} {self.expires_ns:020d} {self.token}".encode()
        return body + f"{zlib.crc32(body):08x} \n".encode()

    @classmethod
    def decode(cls, raw: bytes) -> LeaseRecord:
        """Parse :meth:`encode`; raises CorruptionError on anything else."""
        found = _RECORD.fullmatch(raw)
        if found is None or int(found[4], 16) != zlib.crc32(raw[: found.start(4)]):
            raise CorruptionError("a session's lease record does not parse")
        return cls(found[1].decode().rstrip(), int(found[2]), found[3].decode())


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
