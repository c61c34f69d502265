"""Run clusters under random faults: ``python -m tests.soak --rounds N --seed S [--first R] [--directory DIR]``.

First random schedules of three simulated clusters (``--schedules N``). Then rounds with two real clusters of three
hosts each (``--rounds N``), in turns of :data:`~tests.support.host_turns.HOST_TURN` rounds, which differ in where logs
lie and who elects leaders. Then rounds with two real clusters of one host each
(``--pair-rounds N``): their books are in SQLite and in HBase in turns of :data:`TURN` rounds. At the end of a turn a
client and a peer with valid secrets send any bytes (``fuzz_round``), and on hosts a process of the cluster, too; at
the end of a pair's turn a peer answers with lies (``lies_round``). Each turn has clusters of its own.

Exit codes: see :mod:`tests.soak.ending`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tests.soak.ending import add_options, run_to_its_end
from tests.soak.fuzz_round import run_fuzz_round
from tests.soak.hosts.host_fuzz import run_host_fuzz
from tests.soak.hosts.host_rounds import HostRounds
from tests.soak.lies_round import run_lies_round
from tests.soak.rounds import run_rounds
from tests.soak.schedules import run_schedules
from tests.soak.trace import Trace
from tests.support.host_turns import HOST_TURN, turn_of
from tests.support.workloads_hosts import Trios
from tests.support.workloads_pair import Pair, Store

ROUNDS = 20
PAIR_ROUNDS = 10
TURN = 5
"""Rounds with the books in one kind of store before it is the other one's turn."""
STORES: tuple[Store, ...] = ("sqlite", "hbase")
SCHEDULES = 200
PAUSE_MS = 25.0
"""Between two batches of a workload: more load than in the tests, which share the machine."""


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Clusters under random faults.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of three hosts (default {ROUNDS})")
    parser.add_argument("--first", type=int, default=1, help="number of the first of them, to repeat a later one")
    parser.add_argument("--pair-rounds", type=int, default=PAIR_ROUNDS, help=f"of one host (default {PAIR_ROUNDS})")
    parser.add_argument("--first-pair-round", type=int, default=1, help="number of the first of them")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"simulated ones (default {SCHEDULES})")
    parser.add_argument("--first-schedule", type=int, help="seed of the first one (default: a thousand times --seed)")
    add_options(parser)
    options = parser.parse_args(arguments)
    counts = f"{options.rounds} rounds of three hosts, {options.pair_rounds} of one host"

    def work(directory: Path, seed: int, trace: Trace) -> str:
        trace.say(counts)
        first_schedule = 1_000 * seed if options.first_schedule is None else options.first_schedule
        run_schedules(directory, range(first_schedule, first_schedule + options.schedules), trace)
        for rounds in turns(options.first, options.rounds, HOST_TURN):
            run_host_turn(directory / f"hosts-{rounds[0]}", seed, rounds, trace)
        for rounds in turns(options.first_pair_round, options.pair_rounds, TURN):
            run_pair_turn(directory / f"rounds-{rounds[0]}", seed, rounds, trace)
        return f"{options.schedules} schedules, {counts}"

    return run_to_its_end(work, options)


def run_host_turn(directory: Path, seed: int, rounds: range, trace: Trace) -> None:
    """Rounds with two clusters of three hosts each. Raises InvariantError, BookkeeperError."""
    turn = turn_of(rounds[0])
    trace.say(f"rounds {rounds[0]} to {rounds[-1]} of three hosts: {turn}")
    with Trios(directory, seed, turn=turn, pause_ms=PAUSE_MS) as trios:
        if trios.no_disk:
            trace.say(f"WITHOUT full disks: {trios.no_disk}")
        host_rounds = HostRounds(trios, trace)
        host_rounds.run(seed, rounds)
        run_host_fuzz(host_rounds, seed + rounds[-1])


def run_pair_turn(directory: Path, seed: int, rounds: range, trace: Trace) -> None:
    """Rounds with two clusters of one host each. Raises InvariantError, BookkeeperError, HBaseUnavailableError."""
    store = store_of(rounds[0])
    trace.say(f"rounds {rounds[0]} to {rounds[-1]} of one host: the books are in {store}")
    with Pair(directory, seed, store=store, pause_ms=PAUSE_MS) as pair:
        if pair.no_disk:
            trace.say(f"WITHOUT full disks: {pair.no_disk}")
        run_rounds(pair, seed, rounds, trace)
        run_fuzz_round(pair, seed + rounds[-1], trace)
        run_lies_round(pair, seed + rounds[-1], trace)


def store_of(number: int) -> Store:
    """The store of the books in a round. It does not depend on the number of rounds, so any round can be repeated."""
    return STORES[(number - 1) // TURN % len(STORES)]


def turns(first: int, count: int, length: int) -> list[range]:
    """Consecutive rounds with the same clusters, at most ``length`` of them."""
    borders = [first, *(n for n in range(first + 1, first + count) if (n - 1) % length == 0), first + count]
    return [range(start, stop) for start, stop in itertools.pairwise(borders) if start < stop]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
