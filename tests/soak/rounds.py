"""Rounds: faults under load, healing, and then everything that must hold.

Arrives: a pair of clusters, a seed, a number of rounds. Leaves: a trace, and InvariantError naming what does not hold.
Checked after each round: both clusters hold, cell by cell, what the acknowledged batches imply; nothing that nobody
needs is left in the books, on disk or at the receiver; a process that lost its lease has ended.
"""

from __future__ import annotations

from bookkeeper.errors import BookkeeperError
from tests.soak.faults import Faults, InvariantError
from tests.soak.plan import plan_round
from tests.soak.trace import Trace
from tests.support.workloads_pair import Pair

AFTERWARDS = 5
"""Batches that must be written when all faults are healed."""


def run_rounds(pair: Pair, seed: int, rounds: range, trace: Trace) -> None:
    """Run them in order. Raises InvariantError, with its cause, when one goes wrong."""
    for number in rounds:
        trace.say(f"round {number}")
        try:
            run_round(pair, seed, number, trace)
        except (BookkeeperError, AssertionError) as error:
            raise InvariantError(f"round {number}: {type(error).__name__}: {error}") from error


def run_round(pair: Pair, seed: int, number: int, trace: Trace) -> None:
    """One round."""
    faults = Faults(pair, trace)
    with pair.load():
        try:
            for step in plan_round(seed, number):
                faults.do(step)
            faults.heal()
        finally:
            faults.release()
        pair.wait_written(AFTERWARDS)
        trace.say(f"{pair.written()}  all processes are back")
    pair.check()
    trace.say(f"{pair.written()}  both clusters hold what was written")
    pair.wait_settled()
    trace.say("nothing is left behind")
