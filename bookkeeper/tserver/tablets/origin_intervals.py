"""The records of each root that one tablet has, staged and applied.

They find records again that come on another path (R22).

``origin_dedup`` decides how taking some blocks changes the intervals; the change is staged, then applied or taken back.
Block headers and ``FlushState.origin_intervals`` survive a crash, and loading rebuilds the intervals from them. Only
the commit thread changes them. The intervals of a root end when no path can bring its records any more: the master
decides that (``master.origins.origin_termination``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bookkeeper.origins import Root, RootIntervals, RootLog

RUNS_MAX = 50_000
"""Runs of offsets that a tablet has at most, some 400 KB in its state. Runs in order join, so that there are few; they
stay apart when a path that brings some of a table's records is far ahead of a path that brings the others.
"""


class OriginIntervals:
    """The intervals of one tablet."""

    def __init__(self, applied: Mapping[Root, RootIntervals]) -> None:
        self._applied = dict(applied)
        self._staged: dict[Root, RootIntervals] = {}
        self._size = sum(intervals.size for intervals in applied.values())
        self._span_starts: dict[Root, tuple[object, int]] = {}

    def of(self, root: Root) -> RootIntervals:
        """The intervals of a root, with those in flight in this group."""
        found = self._staged.get(root) or self._applied.get(root)
        return NO_INTERVALS if found is None else found

    def span_start(self, root: Root, span: object) -> int:
        """An offset of the root: all its records from there on, taken already or later, are in blocks of one span of
        one log, which have the same targets and groups. So a cluster that receives those blocks receives all of them.
        """
        start = self._span_starts.get(root)
        if start is None or start[0] != span:
            start = span, 1 + max((part.runs.last for part in self.of(root).parts), default=0)
            self._span_starts[root] = start
        return start[1]

    def has_room(self, changed: Mapping[Root, RootIntervals]) -> bool:
        """Whether the changed intervals fit. A change that makes them smaller always does."""
        growth = sum(intervals.size - self.of(root).size for root, intervals in changed.items())
        return growth <= 0 or self._size + growth <= RUNS_MAX

    def stage(self, changed: Mapping[Root, RootIntervals]) -> Mapping[Root, RootIntervals | None]:
        """Blocks in flight change the intervals of these roots; returns what :meth:`take_back` needs."""
        before = {root: self._staged.get(root) for root in changed}
        self._staged.update(changed)
        return before

    def take_back(self, before: Mapping[Root, RootIntervals | None]) -> None:
        """The group failed; the change in flight before it may be applied by now."""
        for root, intervals in before.items():
            if intervals is None or self._applied.get(root) is intervals:
                self._staged.pop(root, None)
            else:
                self._staged[root] = intervals

    def apply(self, changed: Mapping[Root, RootIntervals]) -> None:
        """The blocks are durable."""
        for root, intervals in changed.items():
            self._size += intervals.size - self._applied.get(root, NO_INTERVALS).size
            self._applied[root] = intervals
            if self._staged.get(root) is intervals:
                del self._staged[root]

    def applied(self) -> dict[Root, RootIntervals]:
        """The applied intervals, for a flush to write down."""
        return dict(self._applied)

    def forget(self, logs: Collection[RootLog]) -> bool:
        """No path brings records of these logs any more; returns whether there were intervals to forget."""
        ended = [root for root in self._applied if root.log in logs]
        for root in ended:
            self._size -= self._applied.pop(root).size
            self._span_starts.pop(root, None)
        return bool(ended)


NO_INTERVALS = RootIntervals()
