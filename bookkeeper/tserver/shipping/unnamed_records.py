"""Rule R15 for an own log on a host's disk: the tablets whose records no named state has yet. Not thread-safe.

Arrives: blocks that are about to be appended, and offsets that named states have. Leaves: the offset up to which peers
may have the log. A record on one disk alone is less durable than a table with replicas asks for. The master reads the
same from the books (``bookkeeper.master.index.held_back``), and later.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field

from bookkeeper.replicas.naming import UNLIMITED

TabletKey = tuple[str, bytes | None]
"""A tablet's name in logs: see :func:`bookkeeper.tserver.tablets.load_plan.tablet_key`."""


class Unnamed(NamedTuple):
    """The records of a tablet behind ``before``, up to ``last``: no named state has all of them."""

    before: int
    last: int


class UnnamedRecords(Struct):
    """The tablets that hold one log back."""

    tablets: dict[TabletKey, Unnamed] = field(default_factory=dict)
    until: int = UNLIMITED
    """Peers may have the log up to here."""

    def append(self, tablet: TabletKey, first: int, last: int) -> None:
        """Records of the tablet are about to be appended."""
        known = self.tablets.get(tablet)
        before = first - 1 if known is None else known.before
        self.tablets[tablet] = Unnamed(before, last)
        self.until = min(self.until, before)

    def name(self, tablet: TabletKey, offset: int) -> None:
        """The named state of the tablet has its records up to ``offset``."""
        known = self.tablets.get(tablet)
        if known is None:
            return
        if known.last <= offset:
            del self.tablets[tablet]
        else:
            self.tablets[tablet] = Unnamed(max(known.before, offset), known.last)
        self._count()

    def forget(self, tablet: TabletKey) -> None:
        """The tablet is deleted."""
        if self.tablets.pop(tablet, None) is not None:
            self._count()

    def _count(self) -> None:
        self.until = min((one.before for one in self.tablets.values()), default=UNLIMITED)
