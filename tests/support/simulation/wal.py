"""Logs that tell the ledger what happens to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from bookkeeper.storage.volume import Volume
from bookkeeper.storage.wal import Block, Seal, WalWriter
from tests.support.simulation.ledger import Ledger


class Watch:
    """Listeners. ``instance_of`` and ``machine_of`` give the owner of a log."""

    ledger: Ledger = Ledger()
    instance_of: Callable[[str], str] = lambda _uri: ""
    machine_of: Callable[[str], str] = lambda _uri: ""
    deleting: Callable[[str], None] = lambda _uri: None


class SimWalWriter(WalWriter):
    """The product's writer; what it wrote is told."""

    def append(self, blocks: Sequence[Block]) -> None:
        super().append(blocks)
        Watch.ledger.appended(self.uri, Watch.instance_of(self.uri), Watch.machine_of(self.uri), blocks)


def watched_recover(recover: Callable[..., Seal]) -> Callable[..., Seal]:
    """The product's recovery; what it cut off is told."""

    @wraps(recover)
    def watched(volume: Volume, uri: str, *arguments: Any, **options: Any) -> Seal:
        seal = recover(volume, uri, *arguments, **options)
        Watch.ledger.cut(uri, Watch.instance_of(uri), Watch.machine_of(uri), seal.offset)
        return seal

    return watched


def watched_delete(delete: Callable[..., None]) -> Callable[..., None]:
    """The product's deletion; it is judged first."""

    @wraps(delete)
    def watched(volume: Volume, uri: str) -> None:
        Watch.deleting(uri)
        delete(volume, uri)

    return watched
