"""The two stores as one reign uses them: the books, the configuration, and the right to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata.metadata_table import MetadataTable


@dataclass(frozen=True, slots=True)
class ReignStores:
    """The metadata table, the reign whose ranks and checks fence each write, and a way to read the configuration."""

    table: MetadataTable
    reign: Reign
    read_config: Callable[[], ClusterConfig]
