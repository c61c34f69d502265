"""Rounds on machines: faults under load, healing, and then a check of every law.

After each round both clusters hold, cell by cell, the acknowledged batches, each once; the books of both are empty,
and so are the disks but for what the tables need; meanwhile no file was deleted early, and nobody asks for an operator.
Between the faults and these laws no command is given.
"""

from __future__ import annotations

import subprocess

from bookkeeper.errors import BookkeeperError
from tests.soak.faults import InvariantError
from tests.soak.machines.machine_faults import MachineFaults
from tests.soak.machines.machine_plan import plan_machine_round
from tests.soak.trace import Trace
from tests.support.clusters_on_machines import ClustersOnMachines

AFTERWARDS = 5
"""Batches that must be written when all faults are healed."""
ASKED_S = 120.0


def run_machine_rounds(clusters: ClustersOnMachines, seed: int, rounds: range, trace: Trace) -> None:
    """Run them in order. Raises InvariantError, with its cause, when one goes wrong."""
    for number in rounds:
        trace.say(f"round {number}")
        try:
            _run_round(clusters, seed, number, trace)
        except (BookkeeperError, AssertionError, OSError, subprocess.SubprocessError) as error:
            raise InvariantError(f"round {number}: {type(error).__name__}: {error}") from error


def _run_round(clusters: ClustersOnMachines, seed: int, number: int, trace: Trace) -> None:
    faults = MachineFaults(clusters, trace)
    with clusters.watched() as watches, clusters.load():
        for step in plan_machine_round(seed, number):
            faults.do(step)
        clusters.wait_hosts()
        clusters.wait_written(AFTERWARDS)
    lines = [line for watch in watches for line in watch.lines]
    if lines:
        raise InvariantError("\n".join(lines))
    trace.say(f"{clusters.written()}  healed; books seen {[watch.looks for watch in watches]} times")
    clusters.flush()
    clusters.wait_replicated()
    trace.say("everything is replicated")
    clusters.check()
    trace.say("both clusters hold what was written")
    clusters.wait_settled()
    clusters.wait_none(clusters.asked_of_people, "asked of an operator", ASKED_S)
    trace.say("nothing is left behind, and nobody is asked for")
