"""Run clusters on machines under random faults: ``python -m tests.soak.machines --rounds N --seed S [--first R]``.

Without ``--seed`` the seed is random. Exit codes: 0 when every round passed; 1 when one failed, with the seed, the
trace and the directory of the machines (kept, with all logs), or when it can't run here, with the reason; 130 when the
run was ended from outside. No process outlives it, however it ends.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.errors import BookkeeperError
from tests.soak.__main__ import ENDED_FROM_OUTSIDE
from tests.soak.faults import InvariantError
from tests.soak.machines.machine_rounds import run_machine_rounds
from tests.soak.trace import Trace
from tests.support.clusters_on_machines import ClustersOnMachines, why_not
from tests.support.hbase import HBaseUnavailableError
from tests.support.workloads import LinkedList, Mix, Workload

ROUNDS = 10
PAUSE_MS = 50.0


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.machines", description="Machines under random faults.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"(default {ROUNDS})")
    parser.add_argument("--seed", type=int, help="decides faults, moments and data (default: a random one)")
    parser.add_argument("--first", type=int, default=1, help="number of the first round, to repeat a later one")
    parser.add_argument("--directory", type=Path, help="the directory of the machines (default: a temporary directory)")
    options = parser.parse_args(arguments)
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 1
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    directory = options.directory or Path(tempfile.mkdtemp(prefix="soak-machines-"))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside, it cleans up, too
    trace = Trace(SystemClock())
    rounds = range(options.first, options.first + options.rounds)
    trace.say(f"seed {seed}, rounds {rounds[0]} to {rounds[-1]}, machines in {directory}")
    workloads: list[Workload] = [LinkedList(seed, splits=(b"8",)), Mix(seed, splits=(b"row-0075",))]
    try:
        with ClustersOnMachines(directory, seed, workloads=workloads, say=trace.say, pause_ms=PAUSE_MS) as clusters:
            run_machine_rounds(clusters, seed, rounds, trace)
    except (InvariantError, BookkeeperError, HBaseUnavailableError, AssertionError) as error:
        print(f"\nFAILED: {error}\n\nseed {seed}; what happened, last lines:", *trace.lines, sep="\n")
        print(f"\nthe machines' directories and their logs are kept in {directory}")
        return 1
    except KeyboardInterrupt:
        trace.say(f"ended from outside; logs are in {directory}")
        return ENDED_FROM_OUTSIDE
    trace.say(f"{len(rounds)} rounds held")
    if options.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
