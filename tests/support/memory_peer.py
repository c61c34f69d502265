"""A replica system in memory that keeps every promise of the protocol: the twin to test senders against.

A peer has tablets (cut at ``splits``); each remembers, per stream, how far it has everything, and applies or declines
as the protocol says. ``trouble`` may raise before anything, or say which tablets fail after others have applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bookkeeper.errors import GapError, RefusedError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.protocol import Acked, Message, Peer, RetryLimits
from bookkeeper.storage.wal.blocks.block import decode_batch

Trouble = Callable[[Message], frozenset[int]]
"""Called with each message: raise, or name the tablets that fail this time."""


def no_trouble(_message: Message) -> frozenset[int]:
    """All is well."""
    return frozenset()


@dataclass(slots=True)
class MemoryPeer:
    """One peer: what its tablets hold, in the order applied, and every message that came."""

    instance_id: str
    splits: Sequence[bytes] = ()
    trouble: Trouble = no_trouble
    rows: list[bytes] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    high_water: dict[tuple[int, StreamKey], int] = field(default_factory=dict)
    opened: int = 0

    def apply(self, stream: StreamKey, message: Message) -> Acked:
        """Take one message, per tablet, in order."""
        self.messages.append(message)
        if self.instance_id in message.provenance:
            raise RefusedError(f"{self.instance_id} declines its own data")
        failing = self.trouble(message)
        shares: dict[int, list[tuple[int, bytes]]] = {}
        for part in message.blocks:
            for row in decode_batch(part.records).column("row").to_pylist():
                shares.setdefault(bisect_left(self.splits, row), []).append((part.last_offset, row))
        applied = dropped = 0
        for tablet, share in sorted(shares.items()):
            if tablet in failing:
                continue
            key = (tablet, stream)
            known = max(self.high_water.get(key, 0), message.acked_offset)
            if message.after_offset > known:
                raise GapError(f"tablet {tablet} has {known}", {"high_water": str(known)})
            fresh = [row for offset, row in share if offset > known]
            self.rows += fresh
            self.high_water[key] = max(known, message.to_offset)
            applied, dropped = applied + len(fresh), dropped + len(share) - len(fresh)
        if failing & shares.keys():
            raise UnavailableError(f"tablets {sorted(failing)} are away")
        return Acked(message.to_offset, applied, dropped)


@dataclass(slots=True)
class _Session:
    peer: MemoryPeer
    stream: StreamKey
    sends: int = 0

    def ship(self, message: Message) -> Acked:
        self.sends += 1
        return self.peer.apply(self.stream, message)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class MemorySystem:
    """Replica system ``memory``: quorum ``memory://NAME``."""

    peers: dict[str, MemoryPeer]
    name: str = "memory"

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> _Session:  # noqa: ARG002 - the protocol's
        """See the protocol."""
        found = self.peers[peer.quorum]
        if found.instance_id != peer.instance_id:
            raise RefusedError(f"{peer.quorum} is {found.instance_id}, not {peer.instance_id}")
        found.opened += 1
        return _Session(found, stream)
