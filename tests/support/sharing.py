"""Which tests of a parallel run share a worker: those of one file, and those that share a costly start. Seeds of random
schedules share nothing.

The real HBase, the Spark session and the clusters ``west`` and ``east`` live in the worker that runs the tests that ask
for them. So one worker runs all tests of each of these: no other one starts an HBase, a JVM, a cluster. These workers
begin first. ``tests/conftest.py`` hands this to pytest-xdist.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

HBASE, HBASE_CLUSTER = "hbase", "hbase_cluster"
"""A test that asks for the real HBase in one JVM has the first word in its name, its parameter or its file; a file of
tests that ask for a cluster has the second one.
"""

SHARED = {
    "tests/contract/test_docs_commands.py": "clusters",
    "tests/contract/test_docs_python.py": "clusters",
    "tests/contract/test_entrance.py": "clusters",
    "tests/contract/test_exit_codes.py": "clusters",
    "tests/contract/test_monitor.py": "clusters",
    "tests/contract/test_monitor_pages.py": "clusters",
    "tests/contract/test_shell.py": "clusters",
    "tests/contract/test_shell_conditional.py": "clusters",
    "tests/contract/test_shell_readonly.py": "clusters",
    "tests/contract/test_shell_tablets.py": "clusters",
    "tests/contract/test_terminal.py": "clusters",
    "tests/integration/test_automatic_splits.py": "clusters",
    "tests/integration/test_borders.py": "clusters",
    "tests/integration/test_bulk_import.py": "clusters",
    "tests/integration/test_client.py": "clusters",
    "tests/integration/test_followed_streams.py": "clusters",
    "tests/integration/test_foreign_peers.py": "clusters",
    "tests/integration/test_hung_workers.py": "clusters",
    "tests/integration/test_lag_processes.py": "clusters",
    "tests/integration/test_lying_peer.py": "clusters",
    "tests/integration/test_one_row.py": "clusters",
    "tests/integration/test_silent_processes.py": "clusters",
    "tests/integration/test_table_copies.py": "clusters",
    "tests/integration/test_wal_source.py": "clusters",
    "tests/integration/test_why.py": "clusters",
}
"""Files whose tests share more than a file."""

ALONE = "tests/simulation/test_random_schedules.py"
"""A file of tests of which each takes as long as a file of others, and that share nothing."""

FIXTURES = {"west": "clusters", "east": "clusters", "spark": "clusters", "hbase": HBASE, "hbase_cluster": HBASE_CLUSTER}
"""Costly fixtures of a run, and what the tests that ask for them share. Spark and the clusters share one worker because
a test asks for both."""

FIRST = (HBASE_CLUSTER, HBASE, "clusters")


def shares(nodeid: str) -> str:
    """What a test shares with others: tests for which this is equal run in one worker."""
    file = nodeid.split("::", 1)[0]
    if file == ALONE:
        return nodeid
    if HBASE_CLUSTER in file:
        return HBASE_CLUSTER
    return HBASE if HBASE in nodeid else SHARED.get(file, file)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those first that take longest because they can't be divided. Raises UsageError for a test in the wrong place."""
    for item in items:
        _check(item)
    rank = {name: number for number, name in enumerate(FIRST)}
    return sorted(items, key=lambda item: rank.get(shares(item.nodeid), len(rank)))


def _check(item: pytest.Item) -> None:
    found = getattr(item, "_fixtureinfo", None)
    definitions = {} if found is None else found.name2fixturedefs
    for name, what in FIXTURES.items():
        is_costly = name in definitions and definitions[name][-1].scope == "session"
        if is_costly and shares(item.nodeid) != what:
            raise pytest.UsageError(
                f"{item.nodeid} asks for '{name}' and would start another one in its worker: "
                "see tests/support/sharing.py"
            )
