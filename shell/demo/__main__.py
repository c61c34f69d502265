"""``python -m shell.demo``: two clusters, outages, and a check that no record was lost, doubled or changed.

It exits with 0 if both tables have exactly the cells that the input implies, with 1 if a cell differs, and without any
process that it started. ``METADATA`` in the environment: ``sqlite`` (the default), ``hbase`` (the demo starts a real
HBase for the books of both clusters), or ``hbase://HOST:PORT`` (a running one).
"""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from bookkeeper.clock import SystemClock
from shell.demo.demo_run import Plan, run_demo
from shell.demo.screen import Screen
from shell.failures import ExitCode, run
from shell.parameters import INT_COUNT, INT_MAX, LONG


@click.command(name="shell.demo")
@click.option("--rows", type=click.IntRange(100, INT_MAX), help="Airports to load; default: all.")
@click.option("--batch-rows", type=INT_COUNT, default=25, show_default=True, help="Rows of one batch.")
@click.option(
    "--seed", type=LONG, default=378, show_default=True, help="Seed of the choice of rows to change and delete."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory of both clusters, which stays; default: a temporary one.",
)
@click.option(
    "--metadata",
    envvar="METADATA",
    default="sqlite",
    show_default=True,
    help="sqlite; hbase: one JVM of the demo, which can't sync to the disk; or hbase://HOST:PORT.",
)
def demo(rows: int | None, batch_rows: int, seed: int, directory: Path | None, metadata: str) -> int:
    """Replicate a real data set from west to east while processes are killed, and compare every cell."""
    clock = SystemClock()
    with ExitStack() as cleanup:
        if directory is None:
            scratch = tempfile.TemporaryDirectory(prefix="bookkeeper-demo-", ignore_cleanup_errors=True)
            directory = Path(cleanup.enter_context(scratch))
        directory.mkdir(parents=True, exist_ok=True)
        equal = run_demo(directory, Plan(rows, batch_rows, seed, metadata), Screen(clock), clock)
    return ExitCode.OK if equal else ExitCode.FAILED


def main() -> None:
    """Entry point; SIGTERM unwinds like Ctrl-C, so that all processes stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(demo, sys.argv[1:]))


if __name__ == "__main__":
    main()
