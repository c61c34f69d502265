"""``python -m tests.support.adoption_simulation FIRST STOP [SWITCH]``: run seeds, print what happened in them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack

from tests.support.adoption_simulation.schedules import edges, run_schedule
from tests.support.faults import fault

PROGRESS = 250
"""Schedules between two lines about the progress."""


def main(first: int, stop: int, *switches: str) -> None:
    """Run the seeds; the first broken law ends it."""
    counts, began = Counter[str](), time.process_time()
    with ExitStack() as stack:
        stack.enter_context(edges())
        for switch in switches:
            stack.enter_context(fault(switch))
        for seed in range(first, stop):
            counts.update(run_schedule(seed))
            if (seed + 1) % PROGRESS == 0 or seed + 1 == stop:
                took_s = time.process_time() - began
                print(f"{seed + 1 - first} schedules, {took_s:.0f} s of CPU, no law broken: {dict(counts)}", flush=True)


main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
