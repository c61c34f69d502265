"""What the commit thread writes under: the log, the configuration in force, the clock.

Arrives: configurations, through the commit thread's own queue (R14). Leaves: the :class:`Moment` that a block is staged
under. Survives a crash: what block headers say of it. Used by the commit thread; others may read ``view``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.tserver.tablets.block_targets import ConfigView, TableView
from bookkeeper.tserver.tablets.tablet import Moment
from bookkeeper.tserver.write.config_barrier import ConfigBarrier
from bookkeeper.tserver.write.request_dedup import RequestDedup


@dataclass(frozen=True, slots=True)
class _Stretch:
    """From ``since`` on, blocks of a table in a log say this of their targets and groups."""

    wal_uri: str
    view: TableView
    since: int


def says_the_same(one: TableView, other: TableView) -> bool:
    """Whether blocks under both are for the same targets, and part their families in the same groups (R13)."""
    return one is other or (one.block_targets == other.block_targets and one.groups.groups == other.groups.groups)


class WriteContext:
    """See above."""

    def __init__(self, clock: Clock, view: ConfigView) -> None:
        self.clock = clock
        self.view = view
        """Changed by ``ConfigBarrier`` in the commit thread; others may read it."""
        self.attempts = RequestDedup()
        self.config_barrier = ConfigBarrier()
        """For what is done under the configuration without a block in the log."""
        self.wal_uri: Callable[[], str] = lambda: ""
        """Set once, when the committer exists; nothing is submitted before."""
        self._stretches: dict[str, _Stretch] = {}

    def moment(self, table_id: str, next_offset: int) -> Moment:
        """What a block of this table is staged under now; raises NotFoundError. ``next_offset``: of the log."""
        view = self.view.table(table_id)
        wal_uri = self.wal_uri()
        return Moment(wal_uri, view, self.clock.wall_ms(), self._since(wal_uri, view, next_offset))

    def _since(self, wal_uri: str, view: TableView, next_offset: int) -> int:
        """From where on all blocks of the table in this log say the same: from its start when it has none yet."""
        known = self._stretches.get(view.table_id)
        since = 1 if known is None or known.wal_uri != wal_uri else known.since
        if known is not None and known.wal_uri == wal_uri and not says_the_same(known.view, view):
            since = next_offset
        if known is None or known.wal_uri != wal_uri or known.view is not view:
            self._stretches[view.table_id] = _Stretch(wal_uri, view, since)
        return since
