"""Settings of a cluster whose hosts share no directory, for tests that need neither its books nor its ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping

NO_VOLUME: Mapping[str, object] = {"storage.volume": "none", "storage.logs": "host"}

ON_MACHINES: Mapping[str, object] = {
    **NO_VOLUME,
    "coordination.url": "zk://z1:2181/west",
    "metadata.url": "hbase://h1:9090/west",
}
"""Nobody listens at these addresses."""
