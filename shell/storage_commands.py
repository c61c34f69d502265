"""Commands about how tables are stored: ``config compact du``, and as files:
``importdirectory exporttable importtable``.

Arrives: a table's name, keys and values as typed. Leaves: a call of :mod:`bookkeeper.client`, and what it answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from bookkeeper.client import Client
from bookkeeper.config.table_properties import PROPERTIES
from bookkeeper.rpc.contract.messages import ReplicationConfig
from shell import parameters, replication_properties
from shell.output import Output, Record, parse_bytes
from shell.replication_properties import PeerChange, TargetChange, is_of_target
from shell.shell_session import Session, in_session

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR")
_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


def _property_rows(given: Mapping[str, str]) -> list[Record]:
    """All properties: those there are, then the user's own."""
    rows: list[Record] = [
        {
            "property": known.key,
            "value": given.get(known.key, known.default),
            "set": known.key in given,
            "default": known.default,
            "meaning": known.meaning,
        }
        for known in PROPERTIES.values()
    ]
    rows += [
        {"property": key, "value": value, "set": True, "default": None, "meaning": "your own"}
        for key, value in sorted(given.items())
        if key not in PROPERTIES
    ]
    return rows


def _replication_rows(values: Mapping[str, str], meaning: str) -> list[Record]:
    return [
        {"property": key, "value": value, "set": True, "default": None, "meaning": meaning}
        for key, value in values.items()
    ]


def table_targets(client: Client, table: str) -> list[ReplicationConfig]:
    """Where a table replicates to."""
    return [target for target in client.replication.config() if target.table == table]


def change_site(client: Client, output: Output, changes: Mapping[str, str], removals: Sequence[str]) -> None:
    """Define and forget peers. What can't be is refused before anything is changed."""
    for peer in replication_properties.peer_changes(changes, removals, client.replication.clusters()):
        change_peer(client, peer)
    count = len(changes) + len(removals)
    output.done(f"site: {count} properties changed", {"name": None, "properties": site_of(client)})


def change_table(
    client: Client, output: Output, table: str, changes: Mapping[str, str], removals: Sequence[str]
) -> None:
    """Change properties and targets. What can't be is refused before anything is changed."""
    info, targets = client.tables.get(table), [key for key in (*changes, *removals) if is_of_target(key)]
    wanted: list[TargetChange] = []
    if targets:
        wanted = replication_properties.target_changes(
            {key: value for key, value in changes.items() if key in targets},
            [key for key in removals if key in targets],
            [group.name for group in info.groups],
            table_targets(client, table),
            client.replication.clusters(),
        )
    plain = {key: value for key, value in changes.items() if key not in targets}
    gone = [key for key in removals if key not in targets]
    if plain or gone:
        info = client.tables.change_properties(table, plain, gone)
    for target in wanted:
        change_target(client, output, table, target)
    count = len(changes) + len(removals)
    output.done(f"table {table}: {count} properties changed", {"name": table, "properties": dict(info.properties)})


def site_of(client: Client) -> dict[str, str]:
    """The site's names and values."""
    return replication_properties.site_values(client.cluster_name(), client.replication.clusters())


def change_peer(client: Client, change: PeerChange) -> None:
    """Define a peer or forget it."""
    if change.quorum is not None:
        client.replication.define_cluster(change.name, change.quorum)
        return
    for known in client.replication.clusters():
        if known.name == change.name:
            client.replication.delete_cluster(change.name, known.quorum)


def change_target(client: Client, output: Output, table: str, change: TargetChange) -> None:
    """Enable or disable groups at a peer; its warnings are shown."""
    if change.is_enabled:
        changed = client.replication.enable(table, change.cluster, change.groups, change.remote_table)
    else:
        changed = client.replication.disable(table, change.cluster, change.groups)
    for warning in changed.warnings:
        output.warning(warning, {})


@click.command()
@click.option("-t", "--table", type=parameters.TABLE, metavar="TABLE", help="This table; else the site.")
@click.option("-s", "--set", "changes", type=parameters.key_value, multiple=True, metavar="KEY=VALUE", help="Set one.")
@click.option("-d", "--delete", "removals", multiple=True, metavar="KEY", help="Take one away; its default holds.")
@click.option("-f", "--filter", "wanted", default="", metavar="TEXT", help="List those whose key holds TEXT.")
@in_session
def config(
    session: Session,
    output: Output,
    table: str | None,
    changes: tuple[tuple[str, str], ...],
    removals: tuple[str, ...],
    wanted: str,
) -> None:
    """List the properties of a table, or change some; changes are in force on return.

    Accumulo's names for replication do what its commands do: table.replication.GROUP=CLUSTER,CLUSTER of a table, and
    instance.cluster.NAME.zookeepers=QUORUM of the site, whose instance.replication.name is shown only.
    """
    client, names = session.client, [*(key for key, _ in changes), *removals]
    if replication_properties.is_of_site(names):
        if table is not None:
            raise click.UsageError(f"{names[0]} is of the site: leave -t away", click.get_current_context())
        change_site(client, output, dict(changes), removals)
        return
    table = table or session.table
    if names:
        if table is None:
            raise click.UsageError("the properties of a table need -t TABLE", click.get_current_context())
        change_table(client, output, table, dict(changes), removals)
        return
    if table is None:
        rows = _replication_rows(site_of(client), replication_properties.CLUSTER_MEANING)
    else:
        info = client.tables.get(table)
        groups = [group.name for group in info.groups]
        targets = replication_properties.table_values(groups, table_targets(client, table))
        rows = _property_rows(info.properties)
        rows += _replication_rows(targets, replication_properties.GROUP_MEANING)
    found = [row for row in rows if wanted in str(row["property"])]
    output.records(found, ("property", "value", "set", "default"), "no such property")


@click.command()
@_TABLE
@click.option("-b", "--begin", type=parse_bytes, metavar="ROW", help="Tablets with a row from here on.")
@click.option("-e", "--end", type=parse_bytes, metavar="ROW", help="Tablets with a row up to here (included).")
@click.option("-w", "--wait", is_flag=True, help="Return when it is done.")
@in_session
def compact(session: Session, output: Output, table: str, begin: bytes | None, end: bytes | None, wait: bool) -> None:
    """Merge the segments of a table's tablets; deletes, older versions and aged-off cells go."""
    session.client.tables.compact(table, begin, end, wait=wait)
    output.done(f"table {table} {'compacted' if wait else 'is being compacted'}", {"name": table, "done": wait})


@click.command()
@click.option("-t", "--table", "tables", type=parameters.TABLE, multiple=True, metavar="TABLE", help="Only this one.")
@in_session
def du(session: Session, output: Output, tables: tuple[str, ...]) -> None:
    """Print what tables have on disk: segment files, and the records and bytes in them.

    What is in memory is not counted; older versions and deletes that a compaction has not met yet are.
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
    "--time", "time_ms", type=parameters.LONG, metavar="MS", help="Of records without a timestamp; by default now."
)
@in_session
def importdirectory(session: Session, output: Output, table: str, directory: Path, time_ms: int | None) -> None:
    """Add the records of a directory's Parquet and CSV files to a table, as segments, past logs and memory.

    Columns: row, family, qualifier, value and, if you like, visibility and timestamp (ms). The master reads them, so
    DIR is on its machine. If anything in them is wrong, nothing is imported.
    """
    count = session.client.tables.import_directory(table, directory, time_ms)
    output.done(f"{count} records imported into table {table}", {"name": table, "records": count})


@click.command()
@click.argument("table", type=parameters.TABLE)
@_DIRECTORY
@in_session
def exporttable(session: Session, output: Output, table: str, directory: Path) -> None:
    """Copy a table into a directory: its segments, its settings, and a manifest with checksums.

    DIR is on the master's machine, and empty or not there. The table is flushed first, and stays in use.
    """
    count = session.client.tables.export(table, directory)
    output.done(f"table {table} exported: segments of {count} records", {"name": table, "records": count})


@click.command()
@click.argument("name")
@_DIRECTORY
@in_session
def importtable(session: Session, output: Output, name: str, directory: Path) -> None:
    """Make a table of an exported one: same tablets, locality groups, properties, timestamps and deletes.

    It takes writes, whether or not the exported one was read-only.
    """
    count = session.client.tables.import_exported(name, directory)
    output.done(f"table {name} imported: segments of {count} records", {"name": name, "records": count})


COMMANDS = (config, compact, du, importdirectory, exporttable, importtable)
