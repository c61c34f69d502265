"""The course of the demo: machines and clusters start, load and outages, then the proof."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path

from bookkeeper.client import Client
from shell.demo.background import Background
from shell.demo.demo_report import lag_text
from shell.demo.lag import LagProbe
from shell.demo.screen import Screen
from tests.cluster_demo.airports import BATCH_ROWS, Airports
from tests.cluster_demo.outages import outages_of
from tests.support.clusters_on_machines import PEER, ClustersOnMachines, Standstills

EVERY_S = 5.0
"""Between two outages."""
PROBES = "probes"
PROBE_PAUSE_MS = 500.0
PAUSE_MS = 40.0
"""Between two batches."""
FIRST_ROW_LIMIT_S = 120.0
AFTERWARDS = 10
"""Batches that have to be written when all is back."""
SETTLED_S = 180.0
ASKED_S = 60.0
HELD = (
    "every cell and its time are right on both clusters; no acknowledged row is lost, none was applied twice, "
    "the books are empty, and no file was deleted early"
)


def run_demo(directory: Path, seed: int, screen: Screen) -> bool:
    """Run it in an empty directory; True when every law held. Raises BookkeeperError, AssertionError, OSError."""
    workload = Airports(seed)
    with ClustersOnMachines(directory, seed, workloads=[workload], say=screen.log, pause_ms=PAUSE_MS) as clusters:
        screen.log(f"west has three live hosts; table {workload.table} has a replica of each tablet on each of them")
        clusters.make_table(PROBES)
        with ExitStack() as stack:
            writer = stack.enter_context(clusters.west.client.writer(PROBES))
            probe = LagProbe(writer, clusters.east.client, PROBES, random.Random(seed), clusters.clock)
            with screen.waiting("the first row to ship starts Spark"):
                probe.send_one(FIRST_ROW_LIMIT_S)
            assert probe.samples_ms, "the first row did not reach east: see logs/replay.log of the hosts"
            screen.log("the first row is on east; Spark is warm")
            probe.samples_ms.clear()
            gaps, broken = _load(clusters, probe, screen)
        problems = broken + _proof(clusters, probe, screen)
        screen.log("stopping all machines")
    screen.line("the longest time without an acknowledgement after each outage, in which some tablet was not served:")
    for what, gap_s in gaps:
        screen.line(f"{gap_s:6.1f} s  {what}")
    screen.line(f"written: {clusters.written()} batches of {BATCH_ROWS} rows, each acknowledged")
    screen.line(f"lag of a row, which waits for a segment on two hosts: {lag_text(probe.samples_ms)}")
    for problem in problems:
        screen.line(problem)
    screen.line("verdict: A LAW IS BROKEN" if problems else f"verdict: {HELD}")
    return not problems


def _load(clusters: ClustersOnMachines, probe: LagProbe, screen: Screen) -> tuple[list[tuple[str, float]], list[str]]:
    """Write while one outage follows the other; the longest standstill after each of them, and the laws that the books
    broke meanwhile.
    """
    gaps = []
    lag = Background("lag", probe.send_one, PROBE_PAUSE_MS, clusters.clock)
    with clusters.watched() as watches, clusters.load(), Standstills(clusters.loaders[0]) as standstills, lag:
        clusters.wait_written(AFTERWARDS)
        standstills.take_longest_s()
        for outage in outages_of(clusters):
            what = outage.begin()
            screen.log(what)
            if outage.end is not None:
                _pass(clusters, outage.lasts_s)
                outage.end()
                screen.log("  it starts again")
            _pass(clusters, EVERY_S)
            gaps.append((what, standstills.take_longest_s()))
        clusters.wait_hosts()
        clusters.wait_written(AFTERWARDS)
        last_s = standstills.take_longest_s()
        gaps.append(("until all is back", last_s))
    screen.log(f"{clusters.written()} batches are acknowledged; books seen {[watch.looks for watch in watches]} times")
    return gaps, [line for watch in watches for line in watch.lines]


def _pass(clusters: ClustersOnMachines, seconds: float) -> None:
    """Let time pass: it is the length of an outage."""
    clusters.clock.wait(threading.Event(), seconds * 1000)


def _proof(clusters: ClustersOnMachines, probe: LagProbe, screen: Screen) -> list[str]:
    """Each broken law; raises AssertionError when the books do not become empty."""
    clusters.flush()
    clusters.wait_replicated()
    screen.log(f"replication wait: {PEER} has every record")
    problems = clusters.differences()
    sides = {name: _rows(cluster.client) for name, cluster in clusters.clusters.items()}
    problems += [
        f"{name}: {len(probe.operations)} probe rows were written, and {len(found)} are there"
        for name, found in sides.items()
        if len(found) != len(probe.operations)
    ]
    screen.log("compared: every cell of both clusters with what was written, and its time")
    clusters.wait_none(clusters.leftovers, "left behind", SETTLED_S)
    screen.log("the books of both clusters are empty, and so are the disks, but for what the tables need")
    clusters.wait_none(clusters.asked_of_people, "asked of an operator", ASKED_S)
    return problems


def _rows(client: Client) -> set[bytes]:
    return {cell.row for cell in client.scan(PROBES).cells()}
