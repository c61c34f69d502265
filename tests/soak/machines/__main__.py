"""Run clusters on machines under random faults: ``python -m tests.soak.machines --rounds N --seed S [--first R]``.

Exit codes: see :mod:`tests.soak.ending`; 1 also when it can't run here, with the reason. No process outlives it,
however it ends.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.soak.ending import add_options, run_to_its_end
from tests.soak.machines.machine_rounds import run_machine_rounds
from tests.soak.trace import Trace
from tests.support.clusters_on_machines import ClustersOnMachines, why_not
from tests.support.workloads import LinkedList, Mix, Workload

ROUNDS = 10
PAUSE_MS = 50.0


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.machines", description="Machines under random faults.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"(default {ROUNDS})")
    parser.add_argument("--first", type=int, default=1, help="number of the first round, to repeat a later one")
    add_options(parser)
    options = parser.parse_args(arguments)
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 1
    rounds = range(options.first, options.first + options.rounds)

    def work(directory: Path, seed: int, trace: Trace) -> str:
        trace.say(f"rounds {rounds[0]} to {rounds[-1]}")
        workloads: list[Workload] = [LinkedList(seed, splits=(b"8",)), Mix(seed, splits=(b"row-0075",))]
        with ClustersOnMachines(directory, seed, workloads=workloads, say=trace.say, pause_ms=PAUSE_MS) as clusters:
            run_machine_rounds(clusters, seed, rounds, trace)
        return f"{len(rounds)} rounds"

    return run_to_its_end(work, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
