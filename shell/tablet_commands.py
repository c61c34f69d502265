"""Commands about tablets and their end rows: ``tablets addsplits getsplits merge``."""

from __future__ import annotations

import click

from bookkeeper.rpc.contract.messages import TabletLocation, TabletReplicas
from shell import parameters
from shell.host_commands import host_problems, replicas_text
from shell.output import Output, Record, printable
from shell.shell_session import Session, in_session
from shell.watching import watched

_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


def tablet_state(found: TabletLocation) -> str:
    """The state of a tablet in one word or two, for people."""
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


def with_replicas(row: Record, found: TabletReplicas | None) -> Record:
    """The record of a tablet, with its hosts and their problems; None while its rows change."""
    if found is None:
        return {**row, "replicas": None}
    problems = [*([row["problem"]] if row["problem"] else []), *host_problems(found)]
    return {**row, "replicas": replicas_text(found), "problem": "; ".join(map(str, problems)) or None}


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
@watched
def tablets(session: Session, output: Output, table: str) -> None:
    """List the tablets of a table: rows, tablet server, state and problem of each.

    A tablet has the rows after AFTER, up to and including THROUGH. Its state is "served"; "loading" while its tablet
    server reads its files; "unknown" before that server's first report; "unassigned" while it waits for the logs of a
    dead tablet server, and the problem says when these lie on a host that is away; or "needs help" when it can't be
    read or written. The problem then names the next step, and the cluster retries within a minute. A served tablet
    may have a problem, too; its tablet server retries the failed work every half minute. A table with several
    replicas also shows the hosts of each tablet, "*" for the one that leads, and their problems, such as a full disk.
    """
    info = session.client.tables.get(table)
    found = session.client.tables.locate(info.table_id)
    rows = [_tablet_record(tablet) for tablet in found]
    columns: tuple[str, ...] = ("after", "through", "tserver", "state", "problem")
    if int(info.properties.get("table.replicas", "1")) > 1:
        columns = ("after", "through", "tserver", "state", "replicas", "problem")
        of_hosts = {one.extent: one for one in session.client.hosts.replicas(info.table_id)}
        rows = [with_replicas(row, of_hosts.get(one.extent)) for row, one in zip(rows, found, strict=True)]
    output.records(rows, columns, "no tablets")


@click.command()
@_TABLE
@click.argument("rows", type=parameters.row, nargs=-1, required=True, metavar="ROW...")
@click.option(
    "--onto",
    metavar="HOST,...",
    default="",
    help="Move the tablets that end at these rows to these hosts, as many as the table has replicas.",
)
@in_session
def addsplits(session: Session, output: Output, table: str, rows: tuple[bytes, ...], onto: str) -> None:
    """Split tablets of a table at these rows; the table stays in use, and its replication continues.

    With --onto, each tablet that ends at one of these rows first writes its rows into files of its own; then the chosen
    hosts get these, and the other hosts let the tablet go. The command returns when the move has begun; `tablets` shows
    the hosts, `operations` the move, and `hosts --wait` waits for its end.
    """
    hosts = [host for host in onto.split(",") if host]
    session.client.tables.add_splits(table, rows, hosts)
    shown = [printable(row) for row in sorted(set(rows))]
    move = f"; those that end there move to {', '.join(hosts)}" if hosts else ""
    output.result(
        f"tablets of table {table} end at {', '.join(shown)}{move}", {"name": table, "splits": shown, "onto": hosts}
    )


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
def getsplits(session: Session, output: Output, table: str) -> None:
    """List the last row of each tablet of a table, except the last tablet."""
    rows = [{"split": printable(row)} for row in session.client.tables.splits(table)]
    output.records(rows, ("split",), "no splits; the table is one tablet")


@click.command()
@_TABLE
@click.option("-b", "--begin", type=parameters.row, metavar="ROW", help="Tablets with rows after this one.")
@click.option("-e", "--end", type=parameters.row, metavar="ROW", help="Tablets with rows up to this one, included.")
@in_session
def merge(session: Session, output: Output, table: str, begin: bytes | None, end: bytes | None) -> None:
    """Merge the tablets of a range of rows, or of the table, into one tablet."""
    session.client.tables.merge(table, begin, end)
    shown = {"begin": None if begin is None else printable(begin), "end": None if end is None else printable(end)}
    output.result(f"tablets of table {table} merged", {"name": table, **shown})
