"""Seals the log of a dead session wherever it lies: the host that has the log counts its blocks, and no block travels.

Rule R15: the host's process fences the log first. So an owner that was stopped, and goes on, finds the fence after its
next sync, also when it writes to its own disk.
"""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.wal_recovery import BooksClaim, recover
from bookkeeper.storage.wal.writing.seal import Seal, read_seal


def recover_log(volume: Volume, name: str, books_claim: Callable[[], BooksClaim] = BooksClaim) -> Seal:
    """See :func:`bookkeeper.storage.wal.recover`. Raises also UnavailableError while a host is away that has the log
    (see :func:`bookkeeper.errors.is_away`).
    """
    host = volume.host_of(name) if isinstance(volume, LogVolume) else None
    if host is None:
        return recover(volume, name, books_claim=books_claim)
    sealed = read_seal(volume, name)
    if sealed is not None:
        return sealed
    claim = books_claim()
    return host.seal(name, claim.is_used, claim.durable_offset)
