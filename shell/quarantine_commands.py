"""``replication quarantine list hold retry skip``: commands about ranges of records with permanent errors.

Each command prints its effect on the order of records.
"""

from __future__ import annotations

import datetime

import click

from bookkeeper.rpc.contract.messages import QuarantinedRange
from shell import parameters
from shell.output import Output, Record
from shell.shell_session import Session, in_session

_COLUMNS = ("range_id", "table", "cluster", "file", "first", "last", "state", "since", "tries", "error")

_HELD = (
    "the queue continues without them, and their file is kept. Later: replication quarantine retry {id} (ships them "
    "after the records that follow), or skip {id}"
)
_RETRIED = (
    "its records reached the peer after later ones. Of each cell the newest timestamp still wins; among equal "
    "timestamps the retried record wins; a put is visible again if a compaction on the peer has dropped its delete"
)
_SKIPPED = "its records never reach the peer; the log of the master names them"


@click.group()
def quarantine() -> None:
    """Ranges of records with permanent errors: list, hold, retry or skip them.

    A range is the smallest run of blocks of a log that can't be read, or that a peer refuses because of its records. By
    default it blocks its queue until an operator decides; with replication.quarantine = "auto" the master holds it.
    """


@quarantine.command(name="list")
@click.argument("table", type=parameters.TABLE, required=False)
@in_session
def list_ranges(session: Session, output: Output, table: str | None) -> None:
    """List the ranges; the state of each is blocking, held, retrying or skipping."""
    rows = [_record(found) for found in session.client.replication.quarantine(table or "")]
    if not output.as_json:
        rows = [{**row, "file": "/".join(str(row["file"]).rsplit("/", 2)[-2:])} for row in rows]
    output.records(rows, _COLUMNS, "no range has a permanent error")


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def hold(session: Session, output: Output, range_id: str) -> None:
    """Let a queue continue without the range that blocks it; the range and its file stay until retry or skip.

    Order: later records reach the peer before the range.
    """
    found = session.client.replication.hold_range(range_id)
    text = f"records {found.blocks.first} to {found.blocks.last} are held: {_HELD.format(id=range_id)}"
    output.result(text, _record(found))


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def retry(session: Session, output: Output, range_id: str) -> None:
    """Ship a held range; retry a blocking range at once, in its order.

    Order: a held range reaches the peer after later records, as a stream of its own, so that the peer does not treat it
    as a repetition. Of each cell the newest timestamp wins; if tablet servers chose the timestamps, this is the right
    value. A put is visible again if a compaction on the peer has dropped its delete meanwhile. If users gave two
    records of a cell the same timestamp, the retried one wins. The peer applies all of a block, also a part that it has
    already.
    """
    blocking = session.client.replication.retry_range(range_id)
    if blocking:
        output.result(f"range {range_id} is retried now, in its order", {"range_id": range_id, "state": "blocking"})
    else:
        output.result(f"range {range_id} is shipped: {_RETRIED}", {"range_id": range_id, "state": "shipped"})


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def skip(session: Session, output: Output, range_id: str) -> None:
    """Give up a blocking or held range: the peer never gets it, and its file may be deleted."""
    session.client.replication.skip_range(range_id)
    output.result(f"range {range_id} is given up: {_SKIPPED}", {"range_id": range_id, "state": "skipped"})


def _record(found: QuarantinedRange) -> Record:
    since = datetime.datetime.fromtimestamp(found.since_ms / 1000, datetime.UTC) if found.since_ms else None
    return {
        "range_id": found.range_id,
        "table": found.table,
        "cluster": found.target.cluster,
        "file": found.file,
        "first": found.blocks.first,
        "last": found.blocks.last,
        "state": found.state,
        "since": None if since is None else since.isoformat(timespec="seconds"),
        "tries": found.tries,
        "error": f"{found.error_code}: {found.error}",
        "incarnation": found.target.incarnation,
        "remote_table_id": found.target.remote_table_id,
    }
