"""Transfers of segments between simulated hosts."""

from __future__ import annotations

from msgspec import field

from bookkeeper.tserver.replicas.replica_receiver import _Transfer
from tests.support.simulation.primitives import SimLock


class SimTransfer(_Transfer):
    """Its lock is one of tasks: it is held while content is written."""

    lock: SimLock = field(default_factory=SimLock)  # type: ignore[assignment]
