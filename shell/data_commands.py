"""Commands about cells: ``insert delete scan``.

Arrives: keys and values as typed. Leaves: one durable mutation, or the cells asked for, a line each, as they come.
"""

from __future__ import annotations

import itertools

import click

from bookkeeper.client import Cell, Mutation
from shell import parameters
from shell.conditions import condition_of, conditional, rejected
from shell.output import Output, Record, parse_bytes, printable
from shell.parameters import ColumnChoice
from shell.shell_session import Session, in_session

_VISIBILITY = click.option(
    "--visibility", type=parse_bytes, default="", metavar="LABEL", help="Who may see it: A&(B|C)."
)
_TIMESTAMP = click.option(
    "--timestamp", type=parameters.LONG, metavar="MS", help="Its timestamp; the tablet server's time if not given."
)


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.argument("row", type=parse_bytes)
@click.argument("family", type=parse_bytes)
@click.argument("qualifier", type=parse_bytes)
@click.argument("value", type=parse_bytes)
@_VISIBILITY
@_TIMESTAMP
@conditional
@in_session
def insert(
    session: Session,
    output: Output,
    table: str,
    row: bytes,
    family: bytes,
    qualifier: bytes,
    value: bytes,
    visibility: bytes,
    timestamp: int | None,
    if_value: bytes | None,
    if_absent: bool,
) -> None:
    r"""Write one cell; durable when the command returns. \xHH stands for any byte."""
    mutation = Mutation(row).put(family, qualifier, value, visibility=visibility, timestamp=timestamp)
    condition = condition_of(family, qualifier, visibility, if_value, if_absent)
    if condition is None:
        _write(session, table, mutation)
    elif not session.client.write_if(table, mutation, [condition]):
        raise rejected(table, condition)
    output.done("written", {"table": table, "written": 1})


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.argument("row", type=parse_bytes)
@click.argument("family", type=parse_bytes)
@click.argument("qualifier", type=parse_bytes)
@_VISIBILITY
@_TIMESTAMP
@in_session
def delete(
    session: Session,
    output: Output,
    table: str,
    row: bytes,
    family: bytes,
    qualifier: bytes,
    visibility: bytes,
    timestamp: int | None,
) -> None:
    """Delete one cell: every version of it up to the timestamp."""
    _write(session, table, Mutation(row).delete(family, qualifier, visibility=visibility, timestamp=timestamp))
    output.done("deleted", {"table": table, "written": 1})


def _write(session: Session, table: str, mutation: Mutation) -> None:
    with session.client.writer(table) as writer:
        writer.add(mutation)


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.option("-b", "--begin", type=parse_bytes, metavar="ROW", help="First row.")
@click.option("-e", "--end", type=parse_bytes, metavar="ROW", help="Last row (included).")
@click.option("-c", "--columns", type=parameters.columns, multiple=True, metavar="FAM,FAM:QUAL", help="Only these.")
@click.option("--versions", type=parameters.INT_COUNT, metavar="N", help="At most N versions of a cell.")
@click.option("--from-ms", type=parameters.LONG, metavar="MS", help="Timestamps from here on.")
@click.option("--to-ms", type=parameters.LONG, metavar="MS", help="Timestamps before this.")
@click.option("--user", metavar="NAME", help="Who looks; root if not given.")
@click.option("--auths", type=parameters.names, metavar="A,B", help="With these authorizations only.")
@click.option("--limit", type=parameters.COUNT, metavar="N", help="At most N cells.")
@in_session
def scan(
    session: Session,
    output: Output,
    table: str,
    begin: bytes | None,
    end: bytes | None,
    columns: tuple[list[ColumnChoice], ...],
    versions: int | None,
    from_ms: int | None,
    to_ms: int | None,
    user: str | None,
    auths: list[str] | None,
    limit: int | None,
) -> None:
    """Print cells in order, one a line: row, column, visibility, timestamp, value.

    Of each cell, the versions that the table keeps (table.versions.max), newest first. Cells with a visibility label
    are shown as far as the user's authorizations go (setauths).
    """
    chosen = [choice for given in columns for choice in given]
    whole = {choice.family for choice in chosen if choice.qualifier is None}
    single = [(choice.family, choice.qualifier) for choice in chosen if choice.qualifier is not None]
    scanner = session.client.scan(
        table,
        start_row=begin,
        stop_row=None if end is None else end + b"\x00",
        families=sorted(whole | {family for family, _ in single}),
        columns=() if whole else single,
        versions=versions,
        from_ms=from_ms,
        to_ms=to_ms,
        user=user,
        authorizations=None if auths is None else tuple(auths),
    )
    cells = (cell for cell in scanner.cells() if not chosen or cell.family in whole or cell[1:3] in single)
    for cell in itertools.islice(cells, limit):
        record = _cell_record(cell)
        output.line(record, "{row} {family}:{qualifier} [{visibility}] {timestamp}    {value}".format(**record))


def _cell_record(cell: Cell) -> Record:
    return {
        "row": printable(cell.row),
        "family": printable(cell.family),
        "qualifier": printable(cell.qualifier),
        "visibility": printable(cell.visibility),
        "timestamp": cell.timestamp,
        "value": printable(cell.value),
    }


COMMANDS = (insert, delete, scan)
