"""A row that is written on one cluster is read on another one: the whole way, with real processes and Spark."""

from __future__ import annotations

import pytest

from bookkeeper.client import Mutation
from tests.support.cluster import Cluster
from tests.support.shared_cluster import lent

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LIMIT_MS = 120_000


def test_a_row_of_west_is_read_on_east(west: Cluster, east: Cluster) -> None:
    with lent(west), lent(east):
        for cluster in (west, east):
            cluster.client.tables.create("one-row-there")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("one-row-there", "east")
        with west.client.writer("one-row-there") as writer:
            writer.add(Mutation(b"bern").put(b"geo", b"lat", b"46.95"))
        assert not west.client.replication.wait("one-row-there", "east", timeout_ms=LIMIT_MS)
        assert [(cell.row, cell.value) for cell in east.client.scan("one-row-there").cells()] == [(b"bern", b"46.95")]
        west.client.replication.disable("one-row-there", "east")
