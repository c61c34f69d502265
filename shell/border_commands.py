"""Commands about tablets: ``tablets``, and where they end: ``addsplits getsplits merge``.

Arrives: rows as typed. Leaves: a call of :mod:`bookkeeper.client`, and what it answered.
"""

from __future__ import annotations

import click

from bookkeeper.rpc.contract.messages import TabletLocation
from shell import parameters
from shell.output import Output, Record, printable
from shell.shell_session import Session, in_session

_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


def tablet_state(found: TabletLocation) -> str:
    """One word for a person."""
    if found.problem is not None:
        return "needs help"
    if found.address is None:
        return "unassigned"
    return {True: "served", False: "loading", None: "unknown"}[found.loaded]


def _tablet_record(found: TabletLocation) -> Record:
    extent = found.extent
    return {
        "after": None if extent.prev_row is None else printable(extent.prev_row),
        "through": None if extent.end_row is None else printable(extent.end_row),
        "tserver": found.address,
        "state": tablet_state(found),
        "problem": found.problem or found.warning,
    }


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
def tablets(session: Session, output: Output, table: str) -> None:
    """List the tablets of a table: their rows, the tablet server that has each, and what is wrong with it.

    A tablet has the rows behind one and through another, included. It is "served"; "loading", while its tablet server
    reads what it needs; "unassigned", while the tablets of a tablet server that ended wait for its logs; or it "needs
    help": then nobody can read or write it, and the problem says what to do. It is tried again by itself, after a
    minute at most. A tablet that is served may have a problem, too: what fails then is tried again every half minute.
    """
    tables = session.client.tables
    rows = [_tablet_record(found) for found in tables.locate(tables.get(table).table_id)]
    output.records(rows, ("after", "through", "tserver", "state", "problem"), "no tablets")


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


COMMANDS = (tablets, addsplits, getsplits, merge)
