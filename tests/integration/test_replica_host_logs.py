"""Hosts that have the only logs of their tablets are away, stopped, destroyed and wiped under load: tables with
``table.failover`` go on, the tail of a lost log returns once, and no acknowledged record is missing on either cluster.

Two clusters of three hosts each, whose hosts elect their leaders through coordination, live through all of it, so later
tests stand on what earlier ones left. `make soak` does the same at random.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bookkeeper.clock import SystemClock
from tests.soak.hosts.host_plan import HostFault, HostStep
from tests.soak.hosts.host_rounds import HostRounds
from tests.soak.trace import Trace
from tests.support.host_turns import Turn
from tests.support.hosted_cluster import MOVABLE
from tests.support.workloads_hosts import Trios

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

SEED = 20_262
BEFORE = 6
MEANWHILE = 8


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostRounds]:
    turn = Turn(logs="host", election="coordination", failover=frozenset({"links", "mix"}))
    with Trios(tmp_path_factory.mktemp("hosts"), SEED, turn=turn) as running:
        yield HostRounds(running, Trace(SystemClock()))


def step(fault: HostFault, host: str) -> HostStep:
    return HostStep(fault, "west", host, BEFORE, MEANWHILE)


def test_tables_go_on_without_a_host_and_get_the_tail_of_its_log(rounds: HostRounds) -> None:
    rounds.play([step(HostFault.AWAY, MOVABLE), step(HostFault.STOP, rounds.trios.hosted["west"].leader())])


def test_a_disk_whose_logs_nobody_needs_may_be_lost(rounds: HostRounds) -> None:
    rounds.play([step(HostFault.DESTROY, MOVABLE), step(HostFault.WIPE, rounds.trios.hosted["west"].leader())])


def test_a_killed_leader_comes_back_with_its_logs(rounds: HostRounds) -> None:
    rounds.play([step(HostFault.KILL, rounds.trios.hosted["west"].leader())])
