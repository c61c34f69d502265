"""Commands about cells: ``insert delete scan``."""

from __future__ import annotations

import itertools

import click

from bookkeeper.client import Cell, Mutation
from shell import parameters
from shell.conditions import condition_of, conditional, rejected_error
from shell.output import Output, Record, parse_bytes, printable, utc
from shell.parameters import ColumnChoice
from shell.shell_session import Session, in_session
from shell.words import CellCommand

_VISIBILITY = click.option(
    "--visibility", type=parse_bytes, default="", metavar="LABEL", help="Visibility label, such as A&(B|C)."
)
_TIMESTAMP = click.option(
    "--timestamp", type=parameters.LONG, metavar="MS", help="Timestamp; default: the tablet server's time."
)


@click.command(cls=CellCommand)
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
    r"""Write one cell; it is durable when the command returns. \xHH stands for any byte."""
    mutation = Mutation(row).put(family, qualifier, value, visibility=visibility, timestamp=timestamp)
    condition = condition_of(family, qualifier, visibility, if_value, if_absent)
    if condition is None:
        _write(session, table, mutation)
    elif not session.client.write_if(table, mutation, [condition]):
        raise rejected_error(table, condition)
    output.result("written", {"table": table, "written": 1})


@click.command(cls=CellCommand)
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
    """Delete one cell: all its versions up to the timestamp."""
    _write(session, table, Mutation(row).delete(family, qualifier, visibility=visibility, timestamp=timestamp))
    output.result("deleted", {"table": table, "written": 1})


def _write(session: Session, table: str, mutation: Mutation) -> None:
    with session.client.writer(table) as writer:
        writer.add(mutation)


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.option("-b", "--begin", type=parse_bytes, metavar="ROW", help="First row.")
@click.option("-e", "--end", type=parse_bytes, metavar="ROW", help="Last row (included).")
@click.option(
    "-c", "--columns", type=parameters.columns, multiple=True, metavar="FAM,FAM:QUAL", help="Only these columns."
)
@click.option("--versions", type=parameters.INT_COUNT, metavar="N", help="At most N versions of a cell.")
@click.option("--from-ms", type=parameters.LONG, metavar="MS", help="Only timestamps from this one on.")
@click.option("--to-ms", type=parameters.LONG, metavar="MS", help="Only timestamps before this one.")
@click.option("--user", metavar="NAME", help="User who reads; default: root.")
@click.option("--auths", type=parameters.names, metavar="A,B", help="Use only these authorizations of the user.")
@click.option("--limit", type=parameters.COUNT, metavar="N", help="At most N cells.")
@click.option("--stale", type=parameters.COUNT, metavar="MS", help="Cells may lack the writes of the last MS ms.")
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
    stale: int | None,
) -> None:
    """Print cells in order, one a line: row, column, visibility, timestamp, value.

    The newest version of a cell is first; table.versions.max limits the versions. A cell with a visibility label is
    shown if the user's authorizations satisfy the label (setauths).

    With --stale, hosts that follow a tablet answer when their copy is young enough, also while its leader is away;
    else the leader answers. The last line then says as of when the cells are: they have every write acknowledged until
    that time, by the clock of the tablet's leader. A copy ages while its leader has newer records in memory alone:
    choose MS above the time between two flushes.
    """
    chosen = [choice for choices in columns for choice in choices]
    families = {choice.family for choice in chosen if choice.qualifier is None}
    single = [(choice.family, choice.qualifier) for choice in chosen if choice.qualifier is not None]
    scanner = session.client.scan(
        table,
        start_row=begin,
        stop_row=None if end is None else end + b"\x00",
        families=sorted(families | {family for family, _ in single}),
        columns=() if families else single,
        versions=versions,
        from_ms=from_ms,
        to_ms=to_ms,
        user=user,
        authorizations=None if auths is None else tuple(auths),
        stale_ms=stale,
    )
    cells = (cell for cell in scanner.cells() if not chosen or cell.family in families or cell[1:3] in single)
    for cell in itertools.islice(cells, limit):
        record = _cell_record(cell)
        output.line(record, "{row} {family}:{qualifier} [{visibility}] {timestamp}    {value}".format(**record))
    if stale is not None:
        output.line({"as_of_ms": scanner.as_of_ms}, _age_text(scanner.as_of_ms))


def _age_text(as_of_ms: int | None) -> str:
    if as_of_ms is None:
        return "as of now: leaders answered"
    return f"as of {utc(as_of_ms) or 'a time before the first record'}"


def _cell_record(cell: Cell) -> Record:
    return {
        "row": printable(cell.row),
        "family": printable(cell.family),
        "qualifier": printable(cell.qualifier),
        "visibility": printable(cell.visibility),
        "timestamp": cell.timestamp,
        "value": printable(cell.value),
    }
