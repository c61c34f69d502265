"""The two stores of a reign: the books and the configuration, with the right to write."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata.metadata_table import MetadataTable


class ReignStores(Struct, frozen=True):
    """The metadata table, the coordination store, and the reign whose ranks and checks fence each write."""

    table: MetadataTable
    reign: Reign
    coordination: Coordination

    def config(self) -> ClusterConfig:
        """The present configuration. Rule R6: each decision reads it again, and an unreadable one is never taken for an
        empty one. Raises TransientError, CorruptionError.
        """
        return read_config(self.coordination)
