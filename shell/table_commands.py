"""Commands about tables: ``createtable deletetable tables setgroups getgroups readonly flush``."""

from __future__ import annotations

import click

from bookkeeper.config.table_properties import REPLICAS_MAX
from bookkeeper.model import LocalityGroup
from bookkeeper.rpc.contract.messages import TableInfo
from shell import parameters
from shell.output import Output, Record, printable
from shell.shell_session import Session, in_session


def _group_records(groups: tuple[LocalityGroup, ...]) -> list[dict[str, object]]:
    return [{"name": group.name, "families": [printable(family) for family in group.families]} for group in groups]


def _table_record(table: TableInfo) -> Record:
    return {
        "name": table.name,
        "table_id": table.table_id,
        "state": table.state,
        "groups": _group_records(table.groups),
        "properties": dict(table.properties),
    }


@click.command()
@click.argument("name")
@click.option(
    "--splits", type=parameters.rows, multiple=True, metavar="ROW,ROW", help="Last rows of all tablets but the last."
)
@click.option(
    "--group", "groups", type=parameters.group, multiple=True, metavar="NAME=FAM,FAM", help="A locality group."
)
@click.option("--property", "properties", type=parameters.key_value, multiple=True, metavar="KEY=VALUE")
@click.option(
    "--replicas",
    type=click.IntRange(1, REPLICAS_MAX),
    help="Hosts that hold each tablet's segments: the property table.replicas.",
)
@in_session
def createtable(
    session: Session,
    output: Output,
    name: str,
    splits: tuple[list[bytes], ...],
    groups: tuple[LocalityGroup, ...],
    properties: tuple[tuple[str, str], ...],
    replicas: int | None,
) -> None:
    """Make a table; families without a group are in the group "default"."""
    rows = sorted({row for part in splits for row in part})
    wanted = {} if replicas is None else {"table.replicas": f"{replicas}"}
    table = session.client.tables.create(name, splits=rows, groups=groups, properties=dict(properties) | wanted)
    output.result(f"table {name} created (id {table.table_id}, {len(rows) + 1} tablets)", _table_record(table))


@click.command()
@click.argument("name", type=parameters.TABLE)
@in_session
def deletetable(session: Session, output: Output, name: str) -> None:
    """Delete a table and its data on this cluster; its records are not replicated any more."""
    session.client.tables.delete(name)
    output.result(f"table {name} deleted", {"name": name})


@click.command()
@in_session
def tables(session: Session, output: Output) -> None:
    """List the tables."""
    found = session.client.tables.list()
    rows = [_table_record(table) for table in found]
    if not output.as_json:
        names = [[group.name for group in table.groups] for table in found]
        rows = [{**row, "groups": groups} for row, groups in zip(rows, names, strict=True)]
    output.records(rows, ("name", "table_id", "state", "groups", "properties"), "no tables")


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.argument("groups", type=parameters.group, nargs=-1, metavar="[NAME=FAM,FAM]...")
@in_session
def setgroups(session: Session, output: Output, table: str, groups: tuple[LocalityGroup, ...]) -> None:
    """Replace the locality groups of a table; without groups every family is in "default"."""
    session.client.tables.set_groups(table, groups)
    output.result(f"table {table} has {len(groups)} named groups", {"name": table, "groups": _group_records(groups)})


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
def getgroups(session: Session, output: Output, table: str) -> None:
    """List the locality groups of a table."""
    groups = session.client.tables.get(table).groups
    rows = [{"name": group.name, "families": [printable(family) for family in group.families]} for group in groups]
    output.records(rows, ("name", "families"), 'no named groups; every family is in "default"')


@click.command()
@click.option("-t", "--table", type=parameters.TABLE, metavar="TABLE", help="This table.")
@click.option("--cluster", is_flag=True, help="Every table of the cluster.")
@click.argument("switch", type=click.Choice(["on", "off"]), required=False)
@in_session
def readonly(session: Session, output: Output, table: str | None, cluster: bool, switch: str | None) -> None:
    """Refuse users' writes (on), accept them again (off), or print the present state.

    On return every tablet server does so. While on, the cluster refuses writes, deletes and deletetable. Reads, new
    tables and replicated records are not affected.
    """
    if cluster == bool(table):
        raise click.UsageError("give either -t TABLE or --cluster", click.get_current_context())
    tables = session.client.tables
    if switch is not None:
        tables.set_read_only(switch == "on", table)
    is_on = tables.is_read_only(table)
    subject = "the cluster" if table is None else f"table {table}"
    output.result(f"{subject} {'is read-only' if is_on else 'takes writes'}", {"table": table, "read_only": is_on})


@click.command()
@click.argument("table", type=parameters.TABLE)
@in_session
def flush(session: Session, output: Output, table: str) -> None:
    """Write the memory of a table's tablets to segments."""
    session.client.tables.flush(table)
    output.result(f"table {table} flushed", {"name": table})
