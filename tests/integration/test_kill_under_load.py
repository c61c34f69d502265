"""Each kind of process is killed with -9 while data flows from west to east; both must then hold what was written.

Two real clusters of two tservers each, every tserver with tablets, logs that roll and memtables that are flushed all
the time. One pair lives through all the kills of this file, so later tests stand on what earlier ones left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.workloads_pair import Pair

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1_200)]

SEED = 20_260
BEFORE = range(5, 40)
"""Batches of each workload that are written before a kill."""
BETWEEN = range(1, 8)
AFTERWARDS = 10


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("kills"), SEED) as running:
        yield running


def moments(*what: str) -> random.Random:
    """When things happen in a test: the same in each run."""
    return random.Random(":".join([str(SEED), *what]))


def test_all_tservers_hold_tablets_of_all_tables(pair: Pair) -> None:
    for cluster in pair.clusters.values():
        for table in cluster.client.tables.list():
            holders = {found.address for found in cluster.client.tables.locate(table.table_id)}
            assert len(holders) == 2
            assert None not in holders


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("west", "tserver1"),
        ("east", "tserver1"),
        ("west", "master"),
        ("east", "master"),
        ("west", "replay"),
    ],
)
def test_a_killed_process_loses_nothing_and_repeats_nothing(pair: Pair, name: str, role: str) -> None:
    rng = moments(name, role)
    with pair.load():
        pair.wait_written(rng.choice(BEFORE))
        killed = pair.kill9(name, role)
        pair.wait_written(rng.choice(BETWEEN))
        pair.wait_back(killed)
        pair.wait_written(AFTERWARDS)
    pair.check()


def test_a_killed_jvm_takes_the_replay_process_along_and_loses_nothing(pair: Pair) -> None:
    rng = moments("jvm")
    replay = pair.west.pid("replay")
    with pair.load():
        pair.wait_written(rng.choice(BEFORE))
        pair.jvm().kill()
        pair.wait_written(rng.choice(BETWEEN))
        pair.wait_back(("west", "replay", replay))
        pair.wait_written(AFTERWARDS)
    pair.check()


def test_both_tservers_of_a_side_may_die_at_once(pair: Pair) -> None:
    rng = moments("both")
    with pair.load():
        for name in ("east", "west"):
            pair.wait_written(rng.choice(BEFORE))
            killed = [pair.kill9(name, role) for role in ("tserver1", "tserver2")]
            for one in killed:
                pair.wait_back(one)
        pair.wait_written(AFTERWARDS)
    pair.check()


def test_a_whole_side_may_die_at_once(pair: Pair) -> None:
    rng = moments("supervisor")
    with pair.load():
        pair.wait_written(rng.choice(BEFORE))
        pair.west.crash()
        pair.west.launch()
        pair.wait_written(AFTERWARDS)
    pair.west.wait_ready()
    pair.check()


def test_afterwards_nothing_is_left_behind(pair: Pair) -> None:
    pair.wait_settled()
    assert not pair.differences()
