"""Runs the machine of replicas: an input in JSON, or random schedules.

``python -m tests.simulation.segments FILE`` (``-`` for the standard input) prints the output in JSON. Exit code 2 and
a line on the standard error: the input is wrong; nothing else is printed. ``--seeds 10000`` plays random schedules of
the corrected rules for one tablet, and ``--families 10000`` for tables whose tablets split, merge and share logs; both
print the steps of each that breaks a law. ``--literal 2000`` counts how many schedules of the literal rules get stuck.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tests.support.segment_simulation.checker import BrokenError
from tests.support.segment_simulation.codec import InputError
from tests.support.segment_simulation.family_schedules import FamilySchedule
from tests.support.segment_simulation.literal import share_stuck
from tests.support.segment_simulation.runner import run
from tests.support.segment_simulation.schedules import Schedule

BROKEN = 1
WRONG_INPUT = 2


def output_of(text: str) -> str:
    """The output in JSON for an input in JSON. Raises InputError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"this is no JSON: {wrong}") from wrong
    return json.dumps(run(given), indent=2)


def play_file(source: str) -> None:
    """Print the output of a file, or one line about what is wrong in it."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
        click.echo(output_of(text))
    except (InputError, OSError, UnicodeDecodeError) as wrong:
        click.echo(f"{source}: {wrong}", err=True)
        sys.exit(WRONG_INPUT)


def play_seeds(kind: type[Schedule | FamilySchedule], first: int, count: int) -> None:
    """Play random schedules; print those that break a law."""
    broken = 0
    for seed in range(first, first + count):
        schedule = kind(seed)
        try:
            schedule.run()
        except BrokenError as law:
            broken += 1
            click.echo(json.dumps({"seed": seed, "law": str(law), "input": schedule.as_input()}))
    click.echo(f"{count} schedules, {broken} break a law", err=True)
    sys.exit(BROKEN if broken else 0)


@click.command()
@click.argument("source", required=False)
@click.option("--seeds", type=click.IntRange(1), help="Play this number of random schedules of the corrected rules.")
@click.option("--families", type=click.IntRange(1), help="The same for tablets that split, merge and share logs.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--literal", type=click.IntRange(1), help="Count how many of so many literal schedules get stuck.")
def main(source: str | None, seeds: int | None, families: int | None, first: int, literal: int | None) -> None:
    """Run the steps of SOURCE, a file of JSON or - for the standard input."""
    if sum(given is not None for given in (source, seeds, families, literal)) != 1:
        raise click.UsageError("name a file of steps (- for the standard input), or --seeds, --families or --literal")
    if source is not None:
        play_file(source)
    elif seeds is not None:
        play_seeds(Schedule, first, seeds)
    elif families is not None:
        play_seeds(FamilySchedule, first, families)
    elif literal is not None:
        share = share_stuck(range(first, first + literal))
        click.echo(f"{literal} schedules of the literal rules, {share:.1%} stuck")


if __name__ == "__main__":
    main()
