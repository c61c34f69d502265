"""``python -m shell.demo``: two clusters, outages, and the proof that nothing was lost, doubled or changed.

Arrives: the airports of a published package. Leaves: exit code 0 when both tables hold exactly what the input implies,
1 when a cell differs; on standard output what was done, killed, shipped and compared, every number measured.
``METADATA`` in the environment: ``sqlite`` (the default), ``hbase`` (a real HBase is started for the books of both
clusters), or ``hbase://HOST:PORT`` (one that runs). All processes are gone at the end, however that comes.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from bookkeeper.clock import SystemClock
from shell.demo.acts import Plan, run_demo
from shell.demo.screen import Screen
from shell.failures import ExitCode, run
from shell.parameters import INT_COUNT, INT_MAX, LONG


@click.command(name="shell.demo")
@click.option("--rows", type=click.IntRange(100, INT_MAX), help="Airports to load; all of them if not given.")
@click.option("--batch-rows", type=INT_COUNT, default=25, show_default=True, help="Rows of one small batch.")
@click.option("--seed", type=LONG, default=378, show_default=True, help="Which rows are changed and deleted.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where to work, and to leave everything.")
@click.option(
    "--metadata",
    envvar="METADATA",
    default="sqlite",
    show_default=True,
    help="sqlite; hbase: one JVM, started here, that can't sync to the disk; or hbase://HOST:PORT.",
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
    """Entry point; a termination signal unwinds like an interrupt, so that everything is stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(demo, sys.argv[1:]))


if __name__ == "__main__":
    main()
