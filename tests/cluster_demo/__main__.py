"""``python -m tests.cluster_demo``: a cluster on three machines, outages of processes and machines, and the proof.

It exits with 0 when every law held, with 1 when one was broken or when it can't run here, with the reason in words, and
with 130 after Ctrl-C. No process that it started is left then, and none after its kill -9, either: machines and all on
them end with it, and only the directory stays, which the first line names.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from bookkeeper.clock import SystemClock
from shell.demo.screen import Screen
from shell.failures import ExitCode, run
from shell.parameters import LONG
from tests.cluster_demo.run import run_demo
from tests.support.clusters_on_machines import why_not


@click.command(name="tests.cluster_demo")
@click.option(
    "--seed", type=LONG, default=378, show_default=True, help="Seed of the choice of rows to change and delete."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Empty directory of all machines, which stays; default: a temporary one.",
)
def demo(seed: int, directory: Path | None) -> int:
    """Run a cluster on three machines and its peer on another one, kill processes and machines, and compare all."""
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return ExitCode.FAILED
    screen = Screen(SystemClock())
    with ExitStack() as cleanup:
        if directory is None:
            scratch = tempfile.TemporaryDirectory(prefix="bookkeeper-cluster-demo-", ignore_cleanup_errors=True)
            directory = Path(cleanup.enter_context(scratch))
        directory.mkdir(parents=True, exist_ok=True)
        screen.log(f"six machines in {directory}: after a kill -9 of this demo, remove it; no process stays")
        held = run_demo(directory, seed, screen)
    return ExitCode.OK if held else ExitCode.FAILED


def main() -> None:
    """Entry point; SIGTERM unwinds like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(level=logging.ERROR)  # outages are no news here: the demo makes them
    sys.exit(run(demo, sys.argv[1:]))


if __name__ == "__main__":
    main()
