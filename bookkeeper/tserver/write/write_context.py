"""The state under which the commit threads write: the configuration in force, the clock, the attempts of clients.

A configuration arrives through the queue of the committer (R14). The context makes the :class:`Moment` that a block is
staged under. Used by the commit threads; other threads may read ``view``.
"""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.tserver.commit.submission import AppendPoint
from bookkeeper.tserver.tablets.block_targets import ConfigView, TableView
from bookkeeper.tserver.tablets.tablet import Moment
from bookkeeper.tserver.write.config_barrier import ConfigBarrier
from bookkeeper.tserver.write.request_dedup import RequestDedup
from bookkeeper.tserver.write.server_times import ServerTimes


class _TargetSpan(Struct, frozen=True):
    """Blocks of a table have the same targets and groups in a log from ``since`` on."""

    wal_name: str
    view: TableView
    since: int


BUSY_MS = 500
"""ms for which a host counts as busy after a write."""


class WriteContext:
    """The state of one tserver's writes."""

    def __init__(self, clock: Clock, view: ConfigView, times: ServerTimes) -> None:
        self.clock = clock
        self._times = times
        self._staged_ns: int | None = None
        self.request_dedup = RequestDedup()
        self.config_barrier = ConfigBarrier()
        """For operations under the configuration that write no block."""
        self._view = view
        self._spans: dict[str, _TargetSpan] = {}

    @property
    def view(self) -> ConfigView:
        """The configuration in force. Any thread."""
        return self._view

    def is_busy(self) -> bool:
        """Whether records came a short time ago. Any thread."""
        staged_ns = self._staged_ns
        return staged_ns is not None and self.clock.boot_ns() - staged_ns < BUSY_MS * 1_000_000

    def put_in_force(self, view: ConfigView) -> None:
        """Every later moment is of this configuration, unless a later one is in force already. Commit thread."""
        if view.generation > self._view.generation:
            self._view = view

    def moment(self, table_id: str, point: AppendPoint) -> Moment:
        """The moment that a block of this table is staged under now; raises NotFoundError."""
        view = self._view.table(table_id)
        self._staged_ns = self.clock.boot_ns()
        return Moment(point.wal_name, view, self._times.now_ms(), self._since(view, point))

    def _since(self, view: TableView, point: AppendPoint) -> int:
        """The offset in this log from which on all blocks of the table have the same targets; 1: it has none yet."""
        span = self._spans.get(view.table_id)
        if span is None or span.wal_name != point.wal_name:
            since = 1
        elif span.view is view:
            return span.since
        else:
            # R13: the same targets, and families in the same groups.
            is_same = span.view.block_targets == view.block_targets and span.view.groups.groups == view.groups.groups
            since = span.since if is_same else point.next_offset
        self._spans[view.table_id] = _TargetSpan(point.wal_name, view, since)
        return since
