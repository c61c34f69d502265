"""Hosts of a cluster are killed, wiped, moved away, stopped, filled, damaged and drained under load, and no table with
several replicas minds.

Two clusters of three hosts each live through all the faults of this file, so later tests stand on what earlier ones
left. `make soak` does the same at random. ``test_replica_host_logs.py`` has the faults that differ where logs lie on
hosts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bookkeeper.clock import SystemClock
from tests.soak.hosts.host_plan import HostFault, HostStep
from tests.soak.hosts.host_rounds import HostRounds
from tests.soak.trace import Trace
from tests.support.hosted_cluster import FIRST, MOVABLE, SMALL
from tests.support.workloads_hosts import Trios

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

SEED = 20_261
BEFORE = 6
"""Batches of each workload that are written before a fault."""
MEANWHILE = 8
LINKS = 1
"""With this pick an operation takes the table of three replicas."""
FEWER, HOSTED, SHARED = 1, 5, 6
"""With these picks REPLICAS gives that table two replicas, moves the table with one replica to hosts, and back."""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostRounds]:
    with Trios(tmp_path_factory.mktemp("hosts"), SEED) as running:
        yield HostRounds(running, Trace(SystemClock()))


def inner(fault: HostFault, side: str, host: str = "", pick: int = 0) -> HostStep:
    return HostStep(fault, side, host, before=2, pick=pick)


def step(fault: HostFault, side: str, host: str = "", *inner: HostStep) -> HostStep:
    return HostStep(fault, side, host, BEFORE, MEANWHILE, inner)


def test_killed_leaders_lose_nothing(rounds: HostRounds) -> None:
    leader = rounds.trios.hosted["west"].leader()
    rounds.play([step(HostFault.KILL, "west", leader), step(HostFault.KILL, "west", FIRST)])


def test_all_hosts_may_die_at_once(rounds: HostRounds) -> None:
    rounds.play([step(HostFault.KILL_ALL, "west"), step(HostFault.KILL_ALL, "east")])


def test_a_host_is_back_with_its_disk_after_many_changes(rounds: HostRounds) -> None:
    rounds.play([step(HostFault.AWAY, "west", MOVABLE, inner(HostFault.SPLIT, "west", pick=1))])


def test_wiped_hosts_get_their_replicas_again(rounds: HostRounds) -> None:
    wiped = step(HostFault.WIPE, "west", rounds.trios.hosted["west"].leader())
    rounds.play([wiped, step(HostFault.DESTROY, "west", MOVABLE)])


def test_a_leader_that_goes_on_after_its_lease_changes_nothing(rounds: HostRounds) -> None:
    leader = rounds.trios.hosted["west"].leader()
    rounds.play([step(HostFault.STOP, "west", leader, inner(HostFault.FLUSH, "west"))])


def test_a_full_disk_of_one_host_loses_nothing(rounds: HostRounds) -> None:
    if rounds.trios.no_disk:
        pytest.skip(rounds.trios.no_disk)
    rounds.play([step(HostFault.FILL, "west", SMALL)])


def test_damaged_files_of_one_host_are_mended(rounds: HostRounds) -> None:
    leader = rounds.trios.hosted["west"].leader()
    rounds.play([step(HostFault.FLIP, "west", leader, inner(HostFault.KILL, "west", MOVABLE))])


def test_a_drained_host_leads_nothing_while_tablets_split(rounds: HostRounds) -> None:
    leader = rounds.trios.hosted["west"].leader()
    rounds.play([step(HostFault.DRAIN, "west", leader, inner(HostFault.SPLIT, "west", pick=2))])


def test_operations_go_on_while_hosts_are_killed(rounds: HostRounds) -> None:
    leader = rounds.trios.hosted["west"].leader()
    orders = [inner(HostFault.IMPORT, "west"), inner(HostFault.MERGE, "west", pick=LINKS)]
    rounds.play([*orders, step(HostFault.KILL, "west", leader), inner(HostFault.MOVE, "west", pick=1)])


def test_a_table_gets_other_numbers_of_replicas_while_a_host_is_killed(rounds: HostRounds) -> None:
    orders = [inner(HostFault.REPLICAS, "west", pick=pick) for pick in (FEWER, HOSTED)]
    rounds.play([*orders, step(HostFault.KILL, "west", MOVABLE)])
    rounds.play([inner(HostFault.REPLICAS, "west", pick=SHARED), step(HostFault.KILL, "west", FIRST)])


def test_afterwards_nothing_is_left_behind(rounds: HostRounds) -> None:
    rounds.trios.wait_tidy()
