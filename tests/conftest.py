"""Fixtures of all tests, and what is done with each list of tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fixtures import (
    _clients_are_trusted,
    _shared_clusters_are_left_clean,
    _workers_share_no_port,
    books,
    east,
    hbase,
    hbase_cluster,
    hbase_cluster_is_left_whole,
    hbase_to_kill,
    spark,
    west,
    zookeeper,
)

# No deadline: a slow machine is no failure. A failing example is printed so that it can be run again.
settings.register_profile("project", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

__all__ = [
    "_clients_are_trusted",
    "_shared_clusters_are_left_clean",
    "_workers_share_no_port",
    "books",
    "east",
    "hbase",
    "hbase_cluster",
    "hbase_cluster_is_left_whole",
    "hbase_to_kill",
    "spark",
    "west",
    "zookeeper",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a parallel run those first that can't be divided."""
    if hasattr(config, "workerinput"):
        from tests.support.sharing import in_order

        items[:] = in_order(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """``--dist=loadfile`` keeps together what shares a costly start."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    from tests.support.sharing import shares

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = shares
    return scheduler
