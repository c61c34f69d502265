"""Hosts of a cluster are killed, wiped, moved away and stopped under load, and no table with several replicas minds.

One cluster of three hosts with a peer lives through all the faults of this file, so later tests stand on what earlier
ones left.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.workloads_hosts import HOSTS, Trio

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

SEED = 20_261
BEFORE = 8
"""Batches of each workload that are written before a fault."""
MEANWHILE = 10


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("hosts"), SEED) as running:
        yield running


def check(trio: Trio) -> None:
    """Every host has its copies, and both clusters have each cell."""
    trio.wait_whole()
    trio.check()


def test_killed_leaders_lose_nothing(trio: Trio) -> None:
    with trio.load():
        for _ in range(3):
            trio.wait_written(BEFORE)
            trio.kill(trio.leader())
            trio.wait_written(MEANWHILE)
    check(trio)


def test_all_hosts_may_die_at_once(trio: Trio) -> None:
    with trio.load():
        trio.wait_written(BEFORE)
        for host in HOSTS:
            trio.kill(host)
        trio.wait_written(MEANWHILE)
    check(trio)


def test_a_leader_stays_away_and_is_back_with_its_disk(trio: Trio) -> None:
    with trio.load():
        trio.wait_written(BEFORE)
        with trio.away(trio.leader()):
            trio.wait_written(MEANWHILE)
        trio.wait_written(MEANWHILE)
    check(trio)


def test_a_wiped_leader_is_back_with_an_empty_disk_and_gets_its_replicas_again(trio: Trio) -> None:
    with trio.load():
        for _ in range(2):
            trio.wait_written(BEFORE)
            with trio.wiped(trio.leader()):
                trio.wait_written(MEANWHILE)
            trio.wait_voting()
    check(trio)


def test_a_leader_that_goes_on_after_its_lease_changes_nothing(trio: Trio) -> None:
    with trio.load():
        trio.wait_written(BEFORE)
        with trio.stopped(trio.leader()):
            trio.wait_written(MEANWHILE)
        trio.wait_written(MEANWHILE)
    check(trio)


def test_afterwards_nothing_is_left_behind(trio: Trio) -> None:
    trio.wait_settled()
    check(trio)
