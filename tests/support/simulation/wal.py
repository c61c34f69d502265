"""Logs that tell the ledger what happens to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.simulation.ledger import Ledger


class Watch:
    """Listeners. ``instance_of`` and ``machine_of`` give the owner of a log."""

    ledger: Ledger = Ledger()
    instance_of: Callable[[Volume], str] = lambda _volume: ""
    machine_of: Callable[[Volume, str], str] = lambda _volume, _log: ""
    deleting: Callable[[Volume, str], None] = lambda _volume, _file: None


class SimWalWriter(WalWriter):
    """The product's writer; what it wrote is told."""

    def append(self, blocks: Sequence[Block]) -> None:
        super().append(blocks)
        volume = self._volume
        Watch.ledger.appended(self.name, Watch.instance_of(volume), Watch.machine_of(volume, self.name), blocks)


def watched_recover(recover: Callable[..., Seal]) -> Callable[..., Seal]:
    """The product's recovery; what it cut off is told."""

    @wraps(recover)
    def watched(volume: Volume, log: str, *arguments: Any, **options: Any) -> Seal:
        seal = recover(volume, log, *arguments, **options)
        Watch.ledger.cut(log, Watch.instance_of(volume), Watch.machine_of(volume, log), seal.offset)
        return seal

    return watched


def watched_delete(delete: Callable[..., None]) -> Callable[..., None]:
    """The product's deletion; it is judged first."""

    @wraps(delete)
    def watched(volume: Volume, file: str) -> None:
        Watch.deleting(volume, file)
        delete(volume, file)

    return watched
