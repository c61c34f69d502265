"""The command ``bookkeeper``, which makes, runs and administers a cluster.

Its exit code is one of :class:`shell.failures.ExitCode`.
"""

from __future__ import annotations

import sys

import click

from shell.failures import run
from shell.lazy_group import LazyCommand, LazyCommands, LazyGroup

COMMANDS = {
    "init": LazyCommand(
        "shell.cluster_commands",
        "init",
        "Make a cluster in DIR, or with --join another host of a cluster; no process starts.",
    ),
    "standalone": LazyCommand(
        "shell.cluster_commands",
        "standalone",
        "Run the cluster in DIR until Ctrl-C or SIGTERM: one master, its tablet servers, one replay process.",
    ),
    "shell": LazyCommand(
        "shell.shell_command", "shell", "Run one COMMAND on a cluster, or a loop that reads commands."
    ),
    "config": LazyCommand(
        "shell.config_commands", "config", "Check and print the settings of a cluster; it need not run."
    ),
    "monitor": LazyCommand(
        "shell.monitor_command",
        "monitor",
        "Print the address of the monitor of the cluster in DIR, with the token that a browser needs.",
    ),
    "secret": LazyCommand(
        "shell.secret_commands",
        "secret",
        "Manage secrets: those that a cluster accepts, and those that it shows to its peers.",
    ),
    "wal": LazyCommand(
        "shell.wal_commands", "wal", "Print write-ahead logs, without a cluster, and give up the damaged end of one."
    ),
}


@click.group(
    name="bookkeeper",
    cls=LazyGroup,
    commands=LazyCommands(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="tablet-bookkeeper", prog_name="bookkeeper")
def bookkeeper() -> None:
    """Tables on one cluster, replicated to others, with exact books.

    Exit codes: 0 success; 1 permanent error; 2 wrong command line; 3 transient error or no answer, try again later;
    4 time limit of a wait.
    """


def main() -> None:
    """Entry point of the console command."""
    sys.exit(run(bookkeeper, sys.argv[1:], as_json="--json" in sys.argv[1:]))


if __name__ == "__main__":
    main()
