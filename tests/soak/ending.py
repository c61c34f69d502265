"""How a soak begins and ends as a command: its seed and directory, its exit code, and what is left of a failure.

Arrives: the options of :func:`add_options` and the work. Leaves: 0 when all of it held; 1 when something failed, with
the seed, the trace and the directory (kept, with all logs); 130 when the run was ended from outside.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.errors import BookkeeperError
from tests.soak.faults import InvariantError
from tests.soak.trace import Trace
from tests.support.hbase import HBaseUnavailableError

ENDED_FROM_OUTSIDE = 130

Work = Callable[[Path, int, Trace], str]
"""Is given the directory, the seed and the trace; returns what held. Raises InvariantError, AssertionError,
BookkeeperError, HBaseUnavailableError.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The seed and the directory."""
    parser.add_argument("--seed", type=int, help="decides faults, moments and data (default: a random one)")
    parser.add_argument("--directory", type=Path, help="for all data and logs (default: a temporary directory)")


def run_to_its_end(work: Work, options: argparse.Namespace) -> int:
    """Do the work; returns the exit code."""
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    directory = options.directory or Path(tempfile.mkdtemp(prefix="soak-"))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside, it cleans up, too
    trace = Trace(SystemClock())
    trace.say(f"seed {seed}, all data in {directory}")
    try:
        held = work(directory, seed, trace)
    except (InvariantError, AssertionError, BookkeeperError, HBaseUnavailableError) as error:
        print(f"\nFAILED: {error}\n\nseed {seed}; what happened, last lines:", *trace.lines, sep="\n")
        print(f"\nall data and logs are kept in {directory}")
        return 1
    except KeyboardInterrupt:
        trace.say(f"ended from outside; logs are in {directory}")
        return ENDED_FROM_OUTSIDE
    trace.say(f"{held} held")
    if options.directory is None:
        shutil.rmtree(directory)
    return 0
