"""Runs the machine of replicas: an input in JSON, or random schedules.

``python -m tests.simulation.segments FILE`` (``-`` for the standard input) prints the output in JSON. Exit code 2 and
a line on the standard error: the input is wrong; nothing else is printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tests.support.segment_simulation.codec import InputError
from tests.support.segment_simulation.runner import run

WRONG_INPUT = 2


def output_of(text: str) -> str:
    """The output in JSON for an input in JSON. Raises InputError."""
    try:
        given = json.loads(text)
    except ValueError as wrong:
        raise InputError(f"this is no JSON: {wrong}") from wrong
    return json.dumps(run(given), indent=2)


@click.command()
@click.argument("source", required=False)
def main(source: str | None) -> None:
    """Run the steps of SOURCE, a file of JSON or - for the standard input."""
    if source is None:
        raise click.UsageError("name a file of steps, or - for the standard input")
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
        click.echo(output_of(text))
    except (InputError, OSError, UnicodeDecodeError) as wrong:
        click.echo(f"{source}: {wrong}", err=True)
        sys.exit(WRONG_INPUT)


if __name__ == "__main__":
    main()
