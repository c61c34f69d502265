"""Memory limits for frames and answers of other processes: for a connection, for a secret, and for the process.

A caller counts bytes before it allocates them; OverloadedError names the setting whose limit is reached. The budget
counts the received part of a large frame until its call is answered, the memory that the call takes besides it, and a
large answer until it is sent. It does not count the small buffer of a connection, because the number of connections is
limited. Pure but for a lock.
"""

from __future__ import annotations

import threading

from msgspec import Struct

from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import OverloadedError
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES

FREE_BYTES = 64 * 1024
"""The budget does not count a frame or an answer of at most this size."""


class MemoryLimits(Struct, frozen=True):
    """Most bytes that a budget counts for one connection, for one secret and for the process."""

    connection_bytes: int
    secret_bytes: int
    process_bytes: int


def limits_of(settings: RpcSettings) -> MemoryLimits:
    """The limits of the settings; a setting of 0 means a multiple of the largest frame. A connection needs one frame
    with its tag and its decompressed content, or one answer.
    """
    return MemoryLimits(
        2 * settings.frame_bytes_max + TAG_BYTES,
        settings.secret_memory_bytes or 4 * settings.frame_bytes_max,
        settings.memory_bytes or 8 * settings.frame_bytes_max,
    )


class Budget:
    """Counts the bytes of a process, and those of the connections of each secret. Thread-safe."""

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._counted_bytes = 0
        self._bytes_by_secret: dict[str, int] = {}

    def account(self, secret_id: str | None) -> Account:
        """The account of one connection. ``secret_id`` None: the server asks for no secret, so only the limits of the
        connection and of the process hold.
        """
        return Account(self, secret_id)

    @property
    def counted_bytes(self) -> int:
        """The bytes of all connections."""
        return self._counted_bytes

    def take(self, account: Account, size: int) -> None:
        """Count ``size`` more bytes. Raises OverloadedError, and then counts nothing."""
        with self._lock:
            of_secret = self._bytes_by_secret.get(account.secret_id, 0) if account.secret_id is not None else 0
            for counted, limit, callers, setting in (
                (account.counted_bytes, self._limits.connection_bytes, "this connection", "rpc.frame_bytes_max"),
                (of_secret, self._limits.secret_bytes, "the callers with this secret", "rpc.secret_memory_bytes"),
                (self._counted_bytes, self._limits.process_bytes, "all callers", "rpc.memory_bytes"),
            ):
                if counted + size > limit:
                    raise OverloadedError(
                        f"messages of {callers} take {counted} bytes, and {size} more pass the limit of {limit} "
                        f"({setting}): back off, or send less at once"
                    )
            self._add(account, size)

    def give_back(self, account: Account, size: int | None) -> None:
        """Stop counting ``size`` bytes; None = all bytes of the account."""
        with self._lock:
            self._add(account, -(account.counted_bytes if size is None else min(size, account.counted_bytes)))

    def _add(self, account: Account, size: int) -> None:
        account.add(size)
        self._counted_bytes += size
        if account.secret_id is not None:
            remaining = self._bytes_by_secret.get(account.secret_id, 0) + size
            self._bytes_by_secret[account.secret_id] = remaining
            if not remaining:
                del self._bytes_by_secret[account.secret_id]


class Account:
    """The bytes that a budget counts for one connection."""

    def __init__(self, budget: Budget, secret_id: str | None) -> None:
        self._budget = budget
        self._counted_bytes = 0
        self.secret_id = secret_id

    @property
    def counted_bytes(self) -> int:
        """The bytes of this connection."""
        return self._counted_bytes

    def add(self, size: int) -> None:
        """Change the count; only the budget calls this, under its lock."""
        self._counted_bytes += size

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises OverloadedError, and then counts nothing."""
        if size:
            self._budget.take(self, size)

    def give_back(self, size: int) -> None:
        """Stop counting ``size`` bytes."""
        if size:
            self._budget.give_back(self, size)

    def close(self) -> None:
        """Stop counting all bytes of the connection; idempotent."""
        self._budget.give_back(self, None)
