"""Resources of all tablets of one tserver: bounds, decoded row groups, the thread that sorts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.tablet_settings import TabletSettings

Task = Callable[[], None]


class TabletResources(Struct, frozen=True):
    """Resources of tablets. ``cache`` None: each tablet makes one for itself. ``sort_later`` runs due sorting work
    soon, and may run equal work once; None: the thread that applies records sorts them.
    """

    settings: TabletSettings = field(default_factory=TabletSettings)
    cache: BlockCache | None = None
    sort_later: Callable[[Task], None] | None = None

    def sort(self, task: Task) -> None:
        """Run sorting work now or later."""
        if self.sort_later is None:
            task()
        else:
            self.sort_later(task)
