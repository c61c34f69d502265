"""Run clusters under random faults: ``python -m tests.soak --rounds N --seed S [--first R] [--directory DIR]``.

Arrives: how long, and from which seed (a random one if none is given). Leaves: exit code 0 when every round held, 1
with the seed, the trace and the directory of the clusters (kept, with all logs) when one did not, 130 when it was ended
from outside.
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
from tests.soak.faults import InvariantError
from tests.soak.rounds import run_rounds
from tests.soak.trace import Trace
from tests.support.workloads_pair import Pair

ROUNDS = 10
ENDED_FROM_OUTSIDE = 130


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Clusters under random faults.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how many rounds (default {ROUNDS})")
    parser.add_argument("--seed", type=int, help="decides faults, moments and data (default: a random one)")
    parser.add_argument("--first", type=int, default=1, help="number of the first round, to repeat a later one")
    parser.add_argument("--directory", type=Path, help="where the clusters live (default: a temporary directory)")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    directory = options.directory or Path(tempfile.mkdtemp(prefix="soak-"))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside, it cleans up, too
    trace = Trace(SystemClock())
    trace.say(f"seed {seed}, {options.rounds} rounds from {options.first} on, clusters in {directory}")
    try:
        with Pair(directory, seed) as pair:
            if pair.no_disk:
                trace.say(f"WITHOUT full disks: {pair.no_disk}")
            run_rounds(pair, seed, range(options.first, options.first + options.rounds), trace)
    except (InvariantError, BookkeeperError) as error:
        print(f"\nFAILED: {error}\n\nseed {seed}; what happened, last lines:", *trace.lines, sep="\n")
        print(f"\nthe clusters and their logs are kept in {directory}")
        return 1
    except KeyboardInterrupt:
        trace.say(f"ended from outside; logs are in {directory}")
        return ENDED_FROM_OUTSIDE
    trace.say(f"{options.rounds} rounds held")
    if options.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
