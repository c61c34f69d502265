"""A ship loop with two peers in memory, over real WAL files.

Arrives: a directory, WAL files, ranges. Leaves: what the loop answers; the peers have what arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import Range, RangeResult
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.volumes import MACHINE
from tests.support.wal_files import EAST, NORTH, Spec

LONG_MS = 3_600_000


def rows(first: int, count: int) -> list[bytes]:
    """Row keys in order, one for each record number."""
    return [b"%06d" % n for n in range(first, first + count)]


def specs_of(sizes: Sequence[int]) -> list[Spec]:
    """Blocks of so many records each, rows in order."""
    first, specs = 1, []
    for size in sizes:
        specs.append(Spec(rows(first, size)))
        first += size
    return specs


@dataclass(slots=True)
class Bench:
    """A shipper with two peers in memory."""

    directory: Path
    message_bytes: int = 2 << 20
    peers: dict[str, MemoryPeer] = field(default_factory=lambda: {"east": MemoryPeer(EAST), "north": MemoryPeer(NORTH)})

    @property
    def east(self) -> MemoryPeer:
        """The peer that most tests ship to."""
        return self.peers["east"]

    @property
    def settings(self) -> Settings:
        """Those of the sending cluster."""
        base = new_settings(self.directory, "west")
        return replace(base, replay=replace(base.replay, message_bytes=self.message_bytes))

    def ship(self, ranges: Sequence[Range], budget_ms: int = LONG_MS) -> list[RangeResult]:
        """Ship ranges as one task of a run does."""
        system = MemorySystem(self.peers)
        sessions = Sessions(Registry({"memory": lambda: system}), self.settings)
        return list(Shipper(sessions, MACHINE, self.settings).ship(ranges, budget_ms))
