"""Commands about where tablets end: ``addsplits getsplits merge``.

Arrives: rows as typed. Leaves: a call of :mod:`bookkeeper.client`, and what it answered.
"""

from __future__ import annotations

import click

from shell import parameters
from shell.output import Output, printable
from shell.session import Session, in_session

_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


@click.command()
@_TABLE
@click.argument("rows", type=parameters.row, nargs=-1, required=True, metavar="ROW...")
@in_session
def addsplits(session: Session, output: Output, table: str, rows: tuple[bytes, ...]) -> None:
    """Let tablets of a table end at these rows, too; it stays in use and is replicated on."""
    session.client.tables.add_splits(table, rows)
    shown = [printable(row) for row in sorted(set(rows))]
    output.done(f"tablets of table {table} end at {', '.join(shown)}", {"name": table, "splits": shown})


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
def getsplits(session: Session, output: Output, table: str) -> None:
    """List the rows at which the tablets of a table end, but for the last one."""
    rows = [{"split": printable(row)} for row in session.client.tables.splits(table)]
    output.records(rows, ("split",), "no splits; the table is one tablet")


@click.command()
@_TABLE
@click.option("-b", "--begin", type=parameters.row, metavar="ROW", help="Tablets with rows behind this one.")
@click.option("-e", "--end", type=parameters.row, metavar="ROW", help="Tablets with rows up to this one, included.")
@in_session
def merge(session: Session, output: Output, table: str, begin: bytes | None, end: bytes | None) -> None:
    """Make one tablet of all those in a range of rows, or of the whole table."""
    session.client.tables.merge(table, begin, end)
    shown = {"begin": None if begin is None else printable(begin), "end": None if end is None else printable(end)}
    output.done(f"tablets of table {table} merged", {"name": table, **shown})


COMMANDS = (addsplits, getsplits, merge)
