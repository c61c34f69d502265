"""As ``test_kill_under_load``, with the books of both clusters in one HBase, which fails as well.

One round of each kind; `make soak` does the same at random, in turns with SQLite.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from shell.failures import ExitCode
from tests.integration.test_borders import split_and_merge_under_load
from tests.soak.plan import Fault, Step
from tests.soak.rounds import run_steps
from tests.soak.trace import Trace
from tests.support.asked_why import ask, cause_of, execute, until_drained
from tests.support.hbase import HBaseUnavailableError
from tests.support.monitor_scene import Scene, read
from tests.support.tservers import wait_until
from tests.support.workloads_pair import Pair

pytestmark = [pytest.mark.integration, pytest.mark.hbase, pytest.mark.spark, pytest.mark.timeout(1_200)]

SEED = 20_261
BETWEEN = range(1, 8)
LONGER_THAN_A_REQUEST_MS = 16_000
"""After this time a caller of HBase gives up its request and makes another one."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    try:
        made = Pair(tmp_path_factory.mktemp("kills-hbase"), SEED, store="hbase").__enter__()
    except HBaseUnavailableError as unavailable:
        pytest.skip(str(unavailable))
    try:
        yield made
    finally:
        made.__exit__(None, None, None)


def strike(pair: Pair, *faults: tuple[Fault, str, str, int]) -> None:
    """One after the other under load, none waiting for the one before to be healed; then everything is there."""
    rng = random.Random(":".join([str(SEED), *(fault.value for fault, *_ in faults)]))
    run_steps(pair, [Step(rng.choice(BETWEEN), *fault) for fault in faults], Trace(SystemClock()))
    pair.check()


@pytest.mark.long
def test_hbase_may_be_killed_while_the_processes_of_both_clusters_are(pair: Pair) -> None:
    strike(
        pair,
        (Fault.TEAR, "west", "tserver1", 0),
        (Fault.KILL_HBASE, "books", "", 0),
        (Fault.TEAR, "east", "tserver2", 0),
        (Fault.KILL, "west", "master", 0),
        (Fault.KILL, "east", "master", 0),
    )


@pytest.mark.long
def test_its_thrift_server_may_be_killed_and_stopped(pair: Pair) -> None:
    strike(
        pair,
        (Fault.KILL_THRIFT, "books", "", 0),
        (Fault.STOP_THRIFT, "books", "", LONGER_THAN_A_REQUEST_MS),
        (Fault.KILL, "east", "tserver1", 0),
    )


@pytest.mark.long
def test_hbase_may_be_stopped_and_started_again(pair: Pair) -> None:
    strike(
        pair,
        (Fault.STOP_HBASE, "books", "", LONGER_THAN_A_REQUEST_MS),
        (Fault.CRASH, "west", "", 0),
        (Fault.RESTART_HBASE, "books", "", 0),
    )


@pytest.mark.long
def test_hbase_that_stands_still_is_named_and_checked_and_all_continues(pair: Pair) -> None:
    assert pair.home is not None
    west = pair.west.directory
    here: dict[str | None, Path] = {None: west}
    pair.home.stop_hbase()
    try:
        cause = cause_of(west, "", "no_books")
        code, report = ask(west, pair.loaders[0].workload.table)
        assert {found["kind"] for found in report["causes"]} == {"no_books"}, "the master answers without its books"
        assert code == ExitCode.OK, "nobody has to do anything in the first minute"
        scene = Scene(pair.west, pair.loaders[0].workload.table, "east")
        wait_until(
            lambda: 'cause="no_books"' in read(f"{scene.url}/metrics", scene.token)[1], "the metric of its alert"
        )
    finally:
        pair.home.resume()
    for loader in pair.loaders:
        until_drained(west, loader.workload.table)
    (check,) = execute(cause["steps"], here)
    assert check.code == ExitCode.OK, check
    pair.check()


@pytest.mark.long
def test_a_deposed_master_and_tserver_change_nothing(pair: Pair) -> None:
    strike(pair, (Fault.DEPOSE, "west", "tserver1", 0), (Fault.DEPOSE, "west", "master", 0))


@pytest.mark.long
def test_tablets_are_split_and_merged_while_processes_die(pair: Pair) -> None:
    split_and_merge_under_load(pair.west, pair.east)


@pytest.mark.long
def test_afterwards_nothing_is_left_behind(pair: Pair) -> None:
    pair.wait_settled()
    assert not pair.differences()
