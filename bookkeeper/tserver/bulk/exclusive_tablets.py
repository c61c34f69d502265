"""Exclusive use of one tablet of this server, for a change that no write may overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.model import Extent
from bookkeeper.tserver.commit.submission import Submission
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.control_submissions import CloseTablet


class OpenTablet(CloseTablet):
    """The tablet takes writes again."""

    def take_effect(self) -> None:
        """See :class:`CloseTablet`, for the opposite."""
        self._tablet.accept_again()


class ExclusiveTablets:
    """Thread-safe."""

    def __init__(self, registry: Registry, loader: Loader, flusher: Flusher, path: CommitPath) -> None:
        self._registry = registry
        self._loader = loader
        self._flusher = flusher
        self._path = path

    def serving(self, extent: Extent) -> ServedTablet:
        """The tablet of this extent. Raises NotServingError."""
        return self._registry.serving(extent)

    def has_replicas(self, extent: Extent) -> bool:
        """Whether a tablet that is here has replicas on hosts."""
        tablet = self._registry.find(extent)
        return tablet is not None and tablet.has_replicas

    @contextmanager
    def configured(self, table_id: str) -> Iterator[TableView]:
        """The table under the configuration in force; a new configuration waits for the end of the block (R14)."""
        with self._path.context.config_barrier.passing():
            yield self._path.context.view.table(table_id)

    @contextmanager
    def loaded(self, extent: Extent) -> Iterator[ServedTablet]:
        """The tablet, which is not loaded, unloaded or changed in another block like this. Raises NotServingError."""
        with self._loader.only_one(extent):
            yield self._registry.serving(extent)

    def flush(self, tablet: ServedTablet) -> None:
        """Flush before :meth:`closed`, so that the tablet is closed for a short time only."""
        self._flusher.flush(tablet)

    @contextmanager
    def closed(self, tablet: ServedTablet) -> Iterator[None]:
        """The tablet takes no writes, and its segments have everything written before. Raises TransientError."""
        self._path.commit(CloseTablet(tablet))
        try:
            self._flusher.empty(tablet)
            with tablet.flushes.lock:
                yield
        finally:
            self._path.commit(OpenTablet(tablet))

    def commit(self, submission: Submission) -> None:
        """See :meth:`CommitPath.commit`."""
        self._path.commit(submission)
