"""Commands about how tables are stored: ``config compact du``, and as files:
``importdirectory exporttable importtable``.

Arrives: a table's name, keys and values as typed. Leaves: a call of :mod:`bookkeeper.client`, and what it answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from bookkeeper.config.table_properties import PROPERTIES
from shell import parameters
from shell.output import Output, Record, parse_bytes
from shell.session import Session, in_session

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, resolve_path=True), metavar="DIR")
_TABLE = click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE")


def _property_rows(given: Mapping[str, str], wanted: str) -> list[Record]:
    """All properties whose key holds ``wanted``: those there are, then the user's own."""
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
    return [row for row in rows if wanted in str(row["property"])]


@click.command()
@_TABLE
@click.option("-s", "--set", "changes", type=parameters.key_value, multiple=True, metavar="KEY=VALUE", help="Set one.")
@click.option("-d", "--delete", "removals", multiple=True, metavar="KEY", help="Take one away; its default holds.")
@click.option("-f", "--filter", "wanted", default="", metavar="TEXT", help="List those whose key holds TEXT.")
@in_session
def config(
    session: Session,
    output: Output,
    table: str,
    changes: tuple[tuple[str, str], ...],
    removals: tuple[str, ...],
    wanted: str,
) -> None:
    """List the properties of a table, or change some; changes are in force on return."""
    if changes or removals:
        info = session.client.tables.change_properties(table, dict(changes), removals)
        count = len(changes) + len(removals)
        output.done(f"table {table}: {count} properties changed", {"name": table, "properties": dict(info.properties)})
        return
    rows = _property_rows(session.client.tables.get(table).properties, wanted)
    output.records(rows, ("property", "value", "set", "default"), "no such property")


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
