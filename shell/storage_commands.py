"""Commands about the storage of tables: ``config compact du``, and ``importdirectory exporttable importtable``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from bookkeeper.client import Client
from bookkeeper.config.table_properties import PROPERTIES
from bookkeeper.rpc.contract.messages import ReplicationConfig
from shell import parameters, replication_properties
from shell.output import Output, Record, parse_bytes
from shell.progress_line import ProgressLine
from shell.replication_properties import GROUP_PREFIX, PeerChange, TargetChange
from shell.shell_session import Session, in_session

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR")
_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


def _property_rows(properties: Mapping[str, str]) -> list[Record]:
    """All properties of a table: the defined ones, then the user's own."""
    rows: list[Record] = [
        {
            "property": definition.key,
            "value": properties.get(definition.key, definition.default),
            "set": definition.key in properties,
            "default": definition.default,
            "meaning": definition.meaning,
        }
        for definition in PROPERTIES.values()
    ]
    rows += [
        {"property": key, "value": value, "set": True, "default": None, "meaning": "your own"}
        for key, value in sorted(properties.items())
        if key not in PROPERTIES
    ]
    return rows


def _replication_rows(values: Mapping[str, str], meaning: str) -> list[Record]:
    return [
        {"property": key, "value": value, "set": True, "default": None, "meaning": meaning}
        for key, value in values.items()
    ]


def table_targets(client: Client, table: str) -> list[ReplicationConfig]:
    """The targets of a table."""
    return [target for target in client.replication.config() if target.table == table]


def change_site(client: Client, output: Output, changes: Mapping[str, str], removals: Sequence[str]) -> None:
    """Define and remove peers. A change that can't be made is refused before the first change."""
    for peer in replication_properties.peer_changes(changes, removals, client.replication.clusters()):
        change_peer(client, peer)
    count = len(changes) + len(removals)
    output.result(f"site: {count} properties changed", {"name": None, "properties": site_properties(client)})


def change_table(
    client: Client, output: Output, table: str, changes: Mapping[str, str], removals: Sequence[str]
) -> None:
    """Change properties and targets. A change that can't be made is refused before the first change."""
    info, group_keys = client.tables.get(table), [key for key in (*changes, *removals) if key.startswith(GROUP_PREFIX)]
    target_changes: list[TargetChange] = []
    if group_keys:
        target_changes = replication_properties.target_changes(
            {key: value for key, value in changes.items() if key in group_keys},
            [key for key in removals if key in group_keys],
            [group.name for group in info.groups],
            table_targets(client, table),
            client.replication.clusters(),
        )
    property_changes = {key: value for key, value in changes.items() if key not in group_keys}
    property_removals = [key for key in removals if key not in group_keys]
    if property_changes or property_removals:
        info = client.tables.change_properties(table, property_changes, property_removals)
    for change in target_changes:
        change_target(client, output, table, change)
    count = len(changes) + len(removals)
    output.result(f"table {table}: {count} properties changed", {"name": table, "properties": dict(info.properties)})


def site_properties(client: Client) -> dict[str, str]:
    """The properties of the site."""
    return replication_properties.site_values(client.cluster_name(), client.replication.clusters())


def change_peer(client: Client, change: PeerChange) -> None:
    """Define or remove a peer."""
    if change.quorum is not None:
        client.replication.define_cluster(change.name, change.quorum)
        return
    for peer in client.replication.clusters():
        if peer.name == change.name:
            client.replication.delete_cluster(change.name, peer.quorum)


def change_target(client: Client, output: Output, table: str, change: TargetChange) -> None:
    """Enable or disable groups of a table for a peer, and print the warnings."""
    if change.is_enabled:
        changed = client.replication.enable(table, change.cluster, change.groups, change.remote_table)
    else:
        changed = client.replication.disable(table, change.cluster, change.groups)
    for warning in changed.warnings:
        output.warning(warning, {})


@click.command()
@click.option(
    "-t",
    "--table",
    type=parameters.TABLE,
    metavar="TABLE",
    help="Properties of this table; default: the current table, else the site.",
)
@click.option(
    "-s", "--set", "changes", type=parameters.key_value, multiple=True, metavar="KEY=VALUE", help="Set a property."
)
@click.option(
    "-d", "--delete", "removals", multiple=True, metavar="KEY", help="Delete a property; its default is in force."
)
@click.option("-f", "--filter", "key_part", default="", metavar="TEXT", help="List only keys with TEXT in them.")
@in_session
def config(
    session: Session,
    output: Output,
    table: str | None,
    changes: tuple[tuple[str, str], ...],
    removals: tuple[str, ...],
    key_part: str,
) -> None:
    """List the properties of a table or the site, or change some; changes are in force on return.

    Accumulo's names for replication have the effect of the commands: table.replication.GROUP=CLUSTER,CLUSTER of a
    table, instance.cluster.NAME.zookeepers=QUORUM of the site. Only the settings file changes
    instance.replication.name.
    """
    client, names = session.client, [*(key for key, _ in changes), *removals]
    if replication_properties.are_site_properties(names):
        if table is not None:
            raise click.UsageError(f"{names[0]} is of the site; omit -t", click.get_current_context())
        change_site(client, output, dict(changes), removals)
        return
    table = table or session.table
    if names:
        if table is None:
            raise click.UsageError("no table for these properties; give -t TABLE", click.get_current_context())
        change_table(client, output, table, dict(changes), removals)
        return
    if table is None:
        rows = _replication_rows(site_properties(client), replication_properties.CLUSTER_MEANING)
    else:
        info = client.tables.get(table)
        groups = [group.name for group in info.groups]
        targets = replication_properties.table_values(groups, table_targets(client, table))
        rows = _property_rows(info.properties)
        rows += _replication_rows(targets, replication_properties.GROUP_MEANING)
    found = [row for row in rows if key_part in str(row["property"])]
    output.records(found, ("property", "value", "set", "default"), "no such property")


@click.command()
@_TABLE
@click.option("-b", "--begin", type=parse_bytes, metavar="ROW", help="Only tablets with rows from this one on.")
@click.option("-e", "--end", type=parse_bytes, metavar="ROW", help="Only tablets with rows up to this one, included.")
@click.option("-w", "--wait", is_flag=True, help="Return when the compaction is complete.")
@in_session
def compact(session: Session, output: Output, table: str, begin: bytes | None, end: bytes | None, wait: bool) -> None:
    """Merge the segments of a table's tablets, and drop deletes, older versions and aged-off cells."""
    with ProgressLine() as line:
        session.client.tables.compact(table, begin, end, wait=wait, progress=line.show)
    output.result(f"table {table} {'compacted' if wait else 'is being compacted'}", {"name": table, "done": wait})


@click.command()
@click.option("-t", "--table", "tables", type=parameters.TABLE, multiple=True, metavar="TABLE", help="Only this table.")
@in_session
def du(session: Session, output: Output, tables: tuple[str, ...]) -> None:
    """Print the size of tables on disk: tablets, segments, and their records and bytes.

    The sizes include older versions and deletes until a compaction drops them. They don't include records in memory.
    """
    rows = [
        {
            "table": usage.table,
            "tablets": usage.tablets,
            "segments": usage.segments,
            "records": usage.records,
            "bytes": usage.bytes,
        }
        for usage in session.client.tables.disk_usage(*tables)
    ]
    output.records(rows, ("table", "tablets", "segments", "records", "bytes"), "no tables")


@click.command()
@click.argument("table", type=parameters.TABLE)
@_DIRECTORY
@click.option(
    "--time", "time_ms", type=parameters.LONG, metavar="MS", help="Timestamp of records without one; default: now."
)
@in_session
def importdirectory(session: Session, output: Output, table: str, directory: Path, time_ms: int | None) -> None:
    """Add the records of a directory's Parquet and CSV files to a table as segments, without logs and memory.

    Columns: row, family, qualifier, value; optional: visibility, timestamp (ms). DIR is on the master's machine,
    because the master reads the files. If one record is wrong, the command imports no record.
    """
    with ProgressLine() as line:
        count = session.client.tables.import_directory(table, directory, time_ms, line.show)
    output.result(f"{count} records imported into table {table}", {"name": table, "records": count})


@click.command()
@click.argument("table", type=parameters.TABLE)
@_DIRECTORY
@in_session
def exporttable(session: Session, output: Output, table: str, directory: Path) -> None:
    """Copy a table into a directory: its segments, its settings, and a manifest with checksums.

    DIR is on the master's machine, and empty or new. The command flushes the table first; the table stays in use.
    """
    with ProgressLine() as line:
        count = session.client.tables.export(table, directory, line.show)
    output.result(f"table {table} exported: segments of {count} records", {"name": table, "records": count})


@click.command()
@click.argument("name")
@_DIRECTORY
@in_session
def importtable(session: Session, output: Output, name: str, directory: Path) -> None:
    """Make a table from an export: same tablets, locality groups, properties, timestamps and deletes.

    The new table takes writes, even if the exported table was read-only.
    """
    with ProgressLine() as line:
        count = session.client.tables.import_exported(name, directory, line.show)
    output.result(f"table {name} imported: segments of {count} records", {"name": name, "records": count})
