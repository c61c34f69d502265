"""The configuration in force here: read when it changes, then applied by the commit thread.

A thread checks the generation of the coordination store; ``confirm`` does so for a command. Every later block is
written under the new :class:`ConfigView` (R14), and each served tablet gets its groups and properties. A configuration
that can't be read changes nothing: it never means "nothing configured" (R6). The tserver reads it at the start, after
its session is open: so a master that lists the sessions after a change finds this session, or this session has read the
change.
"""

from __future__ import annotations

import logging
import threading

from bookkeeper.clock import Clock
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import BookkeeperError, ConflictError, LeaseLostError, NotFoundError
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.tserver.tablets.block_targets import TableView, view_of
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.control_submissions import ConfigUpdate

LOG = logging.getLogger(__name__)

CHECK_INTERVAL_MS = 500


class Configuration:
    """Keeps the commit path's view up to date."""

    def __init__(
        self, coordination: Coordination, path: CommitPath, registry: Registry, clock: Clock, die: Die
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._registry = registry
        self._lock = threading.Lock()
        self._thread = BackgroundThread("configuration", clock, die)

    def confirm(self, generation: int) -> int:
        """Returns the generation in force, at least ``generation``, once every later block is written under it, and
        no segment is received under an earlier one any more.

        Raises ConflictError when the store itself is older, TransientError when it can't be read.
        """
        if self._path.context.view.generation < generation:
            self.refresh()
        in_force = self._path.context.view.generation
        if in_force < generation:
            raise ConflictError(f"the configuration is of generation {in_force}, not yet of {generation}: ask again")
        self._path.settle()
        return in_force

    def table(self, table_id: str) -> TableView:
        """A table that accepts writes; reads the configuration again when the table is not in it. Raises
        NotFoundError.
        """
        try:
            return self._path.context.view.table(table_id)
        except NotFoundError:
            self.refresh()
            return self._path.context.view.table(table_id)

    def name_of(self, table_id: str) -> str | None:
        """The name of a table that accepts writes; None when there is none."""
        try:
            return self.table(table_id).name
        except NotFoundError:
            return None

    def refresh(self) -> None:
        """Read the configuration and put it in force. Raises TransientError, CorruptionError."""
        with self._lock:
            view = view_of(read_config(self._coordination))
            self._path.commit(ConfigUpdate(self._path.context, view))
            for tablet in self._registry.all():
                table = view.tables.get(tablet.extent.table_id)
                if table is not None:
                    tablet.data.configure(table.groups, table.properties)

    def start(self) -> None:
        """Begin to check for changes that no command announced."""
        self._thread.start(self._check, CHECK_INTERVAL_MS)

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    def _check(self) -> None:
        try:
            if self._coordination.generation() != self._path.context.view.generation:
                self.refresh()
        except LeaseLostError:
            raise
        except BookkeeperError as error:
            LOG.error("the configuration can't be read, the last one stays in force: %s", error)
