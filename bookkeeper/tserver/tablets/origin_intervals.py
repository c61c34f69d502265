"""What one tablet holds of each root, staged and applied: the memory that tells a record again on another path (R22).

Arrives: what taking some blocks makes of it (see ``origin_dedup``), first staged, then applied or taken back. Leaves:
what is known of a root, and what a flush writes down. Survives a crash: block headers and
``FlushState.origin_intervals``, of which loading makes it again. Changed by the commit thread only.

It ends when no path can bring anything of a root any more: whoever knows that says so (``master.root_waves``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bookkeeper.origins import Root, RootIntervals, RootLog

RUNS_MAX = 50_000
"""Stretches of offsets that a tablet remembers, some 400 KB in its state. In order they join, so that there are few;
they stay apart when a path that brings some of a table's records is far ahead of one that brings the others.
"""


class OriginIntervals:
    """See above."""

    def __init__(self, applied: Mapping[Root, RootIntervals]) -> None:
        self._applied = dict(applied)
        self._in_flight: dict[Root, RootIntervals] = {}
        self._size = sum(held.size for held in applied.values())
        self._begun: dict[Root, tuple[object, int]] = {}

    def known(self, root: Root) -> RootIntervals:
        """What is here of a root, what is in flight in this group included."""
        found = self._in_flight.get(root) or self._applied.get(root)
        return NOTHING if found is None else found

    def begins(self, root: Root, stretch: object) -> int:
        """An offset: all that was and is taken of the root from there on is in blocks of one stretch of a log, in which
        they say the same of targets and groups. So whoever gets those blocks gets all of it.
        """
        begun = self._begun.get(root)
        if begun is None or begun[0] != stretch:
            begun = stretch, 1 + max((part.runs.last for part in self.known(root).parts), default=0)
            self._begun[root] = begun
        return begun[1]

    def has_room(self, news: Mapping[Root, RootIntervals]) -> bool:
        """Whether all that would be remembered can be. What makes it less is always welcome."""
        grows = sum(held.size - self.known(root).size for root, held in news.items())
        return grows <= 0 or self._size + grows <= RUNS_MAX

    def stage(self, news: Mapping[Root, RootIntervals]) -> Mapping[Root, RootIntervals | None]:
        """Blocks are on their way that make this of it; returns what :meth:`take_back` needs."""
        before = {root: self._in_flight.get(root) for root in news}
        self._in_flight.update(news)
        return before

    def take_back(self, before: Mapping[Root, RootIntervals | None]) -> None:
        """The group was given up; what was in flight before it may be applied by now."""
        for root, held in before.items():
            if held is None or self._applied.get(root) is held:
                self._in_flight.pop(root, None)
            else:
                self._in_flight[root] = held

    def apply(self, news: Mapping[Root, RootIntervals]) -> None:
        """The blocks are durable."""
        for root, held in news.items():
            self._size += held.size - self._applied.get(root, NOTHING).size
            self._applied[root] = held
            if self._in_flight.get(root) is held:
                del self._in_flight[root]

    def remembered(self) -> dict[Root, RootIntervals]:
        """What is applied, for a flush to write down."""
        return dict(self._applied)

    def forget(self, logs: Collection[RootLog]) -> bool:
        """No path brings anything of these logs any more; whether there was something to forget."""
        over = [root for root in self._applied if root.log in logs]
        for root in over:
            self._size -= self._applied.pop(root).size
            self._begun.pop(root, None)
        return bool(over)


NOTHING = RootIntervals()
