"""Fixtures of all tests."""

from hypothesis import HealthCheck, settings

from tests.support.fixtures import (
    _clients_are_trusted,
    _workers_share_no_port,
    books,
    east,
    hbase,
    hbase_to_kill,
    spark,
    west,
)

# No deadline: a slow machine is no failure. A failing example is printed so that it can be run again.
settings.register_profile("project", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

__all__ = ["_clients_are_trusted", "_workers_share_no_port", "books", "east", "hbase", "hbase_to_kill", "spark", "west"]
