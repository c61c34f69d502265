"""A running cluster that several tests share: each makes tables of its own, and leaves none behind."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tests.support.cluster import Cluster


@contextmanager
def lent(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster for one test. All its processes serve afterwards, and it has the tables that it had before."""
    before = tables_of(cluster)
    try:
        yield cluster
    finally:
        clean(cluster, before)


def tables_of(cluster: Cluster) -> Collection[str]:
    """The names of its tables."""
    return {table.name for table in cluster.client.tables.list()}


def clean(cluster: Cluster, before: Collection[str]) -> None:
    """Wait until all processes serve, and delete the tables that were not there before."""
    cluster.wait_ready()
    for name in tables_of(cluster):
        if name not in before:
            cluster.client.tables.delete(name)
