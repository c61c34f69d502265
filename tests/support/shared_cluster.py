"""A running cluster that several tests share: each makes tables of its own, and leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cluster import Cluster


@contextmanager
def lent(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster for one test. All its processes serve afterwards, and it has the tables that it had before."""
    before = {table.name for table in cluster.client.tables.list()}
    yield cluster
    cluster.wait_ready()
    for table in cluster.client.tables.list():
        if table.name not in before:
            cluster.client.tables.delete(table.name)
