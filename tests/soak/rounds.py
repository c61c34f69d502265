"""Rounds: faults under load, healing, and then a check of every law.

A round writes a trace, and raises InvariantError with the name of the broken law. The laws of the books are checked
throughout (see ``watch``). After each round both clusters hold, cell by cell, the acknowledged batches, and a process
that lost its lease has ended. After every few rounds and the last one, no needless row or file is left in the books, on
disk or at the receiver. That takes longer than a write may be in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from bookkeeper.errors import BookkeeperError
from tests.soak.faults import Faults, InvariantError
from tests.soak.plan import Step, plan_round
from tests.soak.trace import Trace
from tests.soak.watch import watching
from tests.support.workloads_pair import Pair

AFTERWARDS = 5
"""Batches that must be written when all faults are healed."""
SETTLED_EVERY = 10
"""Rounds between searches for needless rows and files."""


def run_rounds(pair: Pair, seed: int, rounds: range, trace: Trace) -> None:
    """Run them in order. Raises InvariantError, with its cause, when one goes wrong."""
    for number in rounds:
        trace.say(f"round {number}")
        try:
            run_round(pair, seed, number, trace)
            if number % SETTLED_EVERY == 0 or number == rounds[-1]:
                pair.wait_settled()
                trace.say("nothing is left behind")
        except (BookkeeperError, AssertionError, psutil.Error) as error:
            raise InvariantError(f"round {number}: {type(error).__name__}: {error}") from error


def run_round(pair: Pair, seed: int, number: int, trace: Trace) -> None:
    """One round."""
    run_steps(pair, plan_round(seed, number, hbase=pair.home is not None), trace)
    pair.wait_replicated()
    trace.say(f"{pair.written()}  everything is replicated")
    pair.check()
    trace.say(f"{pair.written()}  both clusters hold what was written")


def run_steps(pair: Pair, steps: Sequence[Step], trace: Trace) -> None:
    """Faults under load, and their healing; at the end everything that was sent is acknowledged. Raises InvariantError
    when the books said meanwhile what they must never say.
    """
    faults = Faults(pair, trace)
    settings = {name: cluster.settings for name, cluster in pair.clusters.items()}
    with watching(settings, pair.clock) as watches, pair.load():
        try:
            for step in steps:
                faults.do(step)
            faults.heal()
        finally:
            faults.release()
        pair.wait_written(AFTERWARDS)
        trace.say(f"{pair.written()}  all processes are back; books seen {[watch.looks for watch in watches]} times")
    lines = [line for watch in watches for line in watch.lines]
    if lines:
        raise InvariantError("\n".join(lines))
