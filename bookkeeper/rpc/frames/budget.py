"""The memory that frames and answers of other processes may take: for a connection, for a secret, and in all.

Arrives: bytes that are about to be held. Leaves: they are counted, or OverloadedError names the setting that is used
up. What is counted: the part of a large frame that has come, until its call is answered, and what the call takes beside
it; and a large answer, until it has left. What fits into the small buffer of a connection is not counted: connections
are bounded. Pure but for a lock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.config import RpcSettings
from bookkeeper.errors import OverloadedError
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES

FREE_BYTES = 64 * 1024
"""A frame or an answer of at most this size is not counted."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Most bytes that may be held."""

    connection_bytes: int
    secret_bytes: int
    process_bytes: int


def limits_of(settings: RpcSettings) -> MemoryLimits:
    """The limits that the settings give; where they say 0, it follows from the largest frame. A connection holds one
    frame with its tag and what that one takes decompressed, or an answer.
    """
    return MemoryLimits(
        2 * settings.frame_bytes_max + TAG_BYTES,
        settings.secret_memory_bytes or 4 * settings.frame_bytes_max,
        settings.memory_bytes or 8 * settings.frame_bytes_max,
    )


def exceeds(held_bytes: int, more_bytes: int, limit_bytes: int) -> bool:
    """Whether more bytes than the limit would be held."""
    return held_bytes + more_bytes > limit_bytes


class Budget:
    """What is held in a process, and by the connections of each secret. Thread-safe."""

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._held = 0
        self._by_secret: dict[str, int] = {}

    def account(self, secret_id: str | None) -> Account:
        """For one connection. ``secret_id`` None: it needed no secret, so only the other two limits hold."""
        return Account(self, secret_id)

    @property
    def held_bytes(self) -> int:
        """By all connections."""
        return self._held

    def take(self, account: Account, size: int) -> None:
        """Count ``size`` bytes more. Raises OverloadedError, and counts nothing then."""
        with self._lock:
            of_secret = self._by_secret.get(account.secret_id, 0) if account.secret_id is not None else 0
            for held, limit, who, setting in (
                (account.held_bytes, self._limits.connection_bytes, "this connection", "rpc.frame_bytes_max"),
                (of_secret, self._limits.secret_bytes, "those who use this secret", "rpc.secret_memory_bytes"),
                (self._held, self._limits.process_bytes, "all callers", "rpc.memory_bytes"),
            ):
                if exceeds(held, size, limit):
                    raise OverloadedError(
                        f"{size} bytes more for messages of {who}, beside {held}, are above {limit} ({setting}): back "
                        "off, or send less at once"
                    )
            self._add(account, size)

    def give_back(self, account: Account, size: int | None) -> None:
        """``size`` bytes are held no more; None = all of the account."""
        with self._lock:
            self._add(account, -(account.held_bytes if size is None else min(size, account.held_bytes)))

    def _add(self, account: Account, size: int) -> None:
        account.held_bytes += size
        self._held += size
        if account.secret_id is not None:
            left = self._by_secret.get(account.secret_id, 0) + size
            self._by_secret[account.secret_id] = left
            if not left:
                del self._by_secret[account.secret_id]


class Account:
    """What one connection holds."""

    def __init__(self, budget: Budget, secret_id: str | None) -> None:
        self._budget = budget
        self.secret_id = secret_id
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes more. Raises OverloadedError, and counts nothing then."""
        if size:
            self._budget.take(self, size)

    def give_back(self, size: int) -> None:
        """``size`` bytes are held no more."""
        if size:
            self._budget.give_back(self, size)

    def close(self) -> None:
        """Nothing is held any more; idempotent."""
        self._budget.give_back(self, None)
