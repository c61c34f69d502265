"""Each kind of fault strikes while data flows from west to east; both must then hold all written rows.

Two real clusters of two tservers each, every tserver with tablets, logs that roll and memtables that are flushed all
the time. The network traffic passes straits, and west lives on a small disk. One pair lives through all the
faults of this file, so later tests stand on what earlier ones left. `make soak` does the same at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.older_peers import lost_since
from bookkeeper.master.cycle.check_ins import OLDER
from tests.soak.plan import Fault, Step
from tests.soak.rounds import run_steps
from tests.soak.trace import Trace
from tests.support.time_limit import TimeLimit
from tests.support.without_masters import TRIES, Reader, lag_ms, logs_of, masters_away, reading, said
from tests.support.workloads_clusters import READY_S
from tests.support.workloads_pair import Pair

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1_200)]

SEED = 20_260
BEFORE = range(5, 40)
"""Batches of each workload that are written before a fault."""
BETWEEN = range(1, 8)
AFTERWARDS = 10
ARRIVAL_S = 60.0
"""Limit of one row's way; the tablets of a killed tserver wait for its lease."""
EXACT_S = 6.0
"""The books say later that a row has arrived, and a status is not of this moment. It is far below the time without a
master, which a wrong lag would show.
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("kills"), SEED) as running:
        yield running


def moments(*what: str) -> random.Random:
    """When things happen in a test: the same in each run."""
    return random.Random(":".join([str(SEED), *what]))


def strike(pair: Pair, *faults: tuple[Fault, str, str]) -> None:
    """One after the other, none waiting for the one before to be healed; then everything is there."""
    rng = moments(*(fault.value for fault, _, _ in faults))
    steps = [Step(rng.choice(BETWEEN), fault, side, role, rng.randint(20, 200)) for fault, side, role in faults]
    run_steps(pair, steps, Trace(SystemClock()))
    pair.check()


def test_all_tservers_hold_tablets_of_all_tables(pair: Pair) -> None:
    for cluster in pair.clusters.values():
        for table in cluster.client.tables.list():
            holders = {found.address for found in cluster.client.tables.locate(table.table_id)}
            assert len(holders) == 2
            assert None not in holders


def test_a_killed_process_loses_nothing_and_repeats_nothing(pair: Pair) -> None:
    """Tservers leave the first part of a block behind their log."""
    strike(
        pair,
        (Fault.TEAR, "west", "tserver1"),
        (Fault.TEAR, "east", "tserver2"),
        (Fault.KILL, "west", "master"),
        (Fault.KILL, "east", "master"),
    )


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_whole_side_may_die_at_once(pair: Pair) -> None:
    """On a full disk, too: a process that starts there waits for room."""
    full = [(Fault.FILL, "west", "")] if pair.disk is not None else []
    strike(pair, *full, (Fault.CRASH, "west", ""))


@pytest.mark.long
def test_a_network_that_breaks_delays_and_cuts_loses_nothing_and_repeats_nothing(pair: Pair) -> None:
    passed = pair.to_east.bytes_passed
    strike(
        pair,
        (Fault.DELAY, "east", ""),
        (Fault.RESET, "east", ""),
        (Fault.RESET, "west", ""),
        (Fault.RESET, "east", ""),
        (Fault.CUT, "east", ""),
        (Fault.CUT, "west", ""),
    )
    assert pair.to_east.bytes_passed > passed


def test_a_full_disk_refuses_writes_loses_nothing_and_mends_by_itself(pair: Pair) -> None:
    if pair.disk is None:
        pytest.skip(pair.no_disk)
    strike(pair, (Fault.FILL, "west", ""), (Fault.KILL, "west", "tserver1"), (Fault.KILL, "west", "master"))


@pytest.mark.long
def test_who_goes_on_after_others_took_over_changes_nothing(pair: Pair) -> None:
    strike(pair, (Fault.DEPOSE, "west", "tserver1"), (Fault.DEPOSE, "east", "master"), (Fault.DEPOSE, "west", "master"))


def must_be_true(pair: Pair, reader: Reader) -> None:
    """The first known lag that a new master shows is not above the true one, and no cause of a wait needs a person."""
    replication, table = pair.west.client.replication, pair.loaders[0].workload.table
    arrived_ms, since_ns = lag_ms(pair.loaders[0], reader, pair.clock, ARRIVAL_S), pair.clock.boot_ns()
    shown: list[float | None] = [None]

    def is_known() -> bool:
        shown[:] = [found.lag_seconds for found in replication.report(table).targets]
        return None not in shown

    pair.west.wait_until(is_known, "known lag")
    true_s = arrived_ms / 1e3 + (pair.clock.boot_ns() - since_ns) / 1e9
    assert max(filter(None, shown), default=0.0) <= true_s + EXACT_S, "a new master shows the age of something else"
    assert [cause.text for cause in replication.why().causes if cause.needs_person] == []


def without_masters(pair: Pair, seconds: float, *, kill_replay: bool = False) -> None:
    """The masters of west stay away, then those of east, then both; logs roll, and a tserver of east restarts; with
    ``kill_replay``, west's replay process as well while no master lives at all. Rows that are written meanwhile arrive
    meanwhile, and the reader asks no master.
    """
    with pair.load(), reading(pair.east, pair.loaders[0].workload.table) as reader:
        pair.wait_written(moments("masters").choice(BEFORE))
        for away in (["west"], ["east"], ["west", "east"]):
            tries = (without(pair, reader, away, seconds / 3, kill_replay=kill_replay) for _ in range(TRIES))
            assert any(tries), f"a master of {' or '.join(away)} led each time"
    pair.check()


def without(pair: Pair, reader: Reader, away: Sequence[str], seconds: float, *, kill_replay: bool) -> bool:
    """The masters of these sides stay away. Returns whether they did: then all has been judged."""
    clusters, lags = [pair.clusters[side] for side in away], []
    with masters_away(clusters, pair.clock) as absence:
        killed = [pair.kill9("east", "tserver1")] if "east" not in away else []
        killed += [pair.kill9("west", "replay")] if kill_replay and len(away) == 2 else []
        logs, limit = logs_of(pair.west), TimeLimit(seconds, pair.clock)
        while not limit.is_over() or not logs_of(pair.west) - logs:
            lags.append(lag_ms(pair.loaders[0], reader, pair.clock, ARRIVAL_S))
        for side, role, pid in killed:
            pair.clusters[side].wait_restarted(role, pid, READY_S)
    print(f"without masters of {' and '.join(away)}: {said(lags)}")
    for cluster in clusters:
        cluster.wait_ready(READY_S)
    must_be_true(pair, reader)
    return not absence.failed


def test_while_no_master_lives_for_a_minute_rows_arrive_once_and_in_order(pair: Pair) -> None:
    without_masters(pair, 60.0)


@pytest.mark.long
def test_the_replay_process_may_die_while_no_master_lives(pair: Pair) -> None:
    without_masters(pair, 12.0, kill_replay=True)


def test_afterwards_nothing_is_left_behind(pair: Pair) -> None:
    pair.wait_settled()
    assert not pair.differences()
    for cluster in pair.clusters.values():
        with closing(open_coordination(cluster.settings)) as store:
            peers = read_config(store).clusters.values()
            older = [peer.alias for peer in peers if store.number(OLDER + peer.instance_id)]
            assert not older + [peer.alias for peer in peers if lost_since(store, peer.instance_id)], (
                "a peer whose processes were killed counts as one that came back from a backup"
            )
