"""``replication quarantine list hold retry skip``: ranges of records that fail for good.

Arrives: short names of ranges, as ``list`` shows them. Leaves: a call of :mod:`bookkeeper.client`, what it answered,
and what it means for the order of records.
"""

from __future__ import annotations

import datetime

import click

from bookkeeper.rpc.contract.messages import QuarantinedRange
from shell import parameters
from shell.output import Output, Record
from shell.shell_session import Session, in_session

_COLUMNS = ("range_id", "table", "cluster", "file", "first", "last", "state", "since", "tries", "error")

HELD = (
    "what follows it in its queue goes on without it, and its file is kept. Later: replication quarantine retry {id} "
    "(it is shipped behind what followed it), or skip {id}"
)
RETRIED = (
    "its records came to the peer behind what had followed them: of each cell the newest timestamp still wins, but a "
    "put may show again whose delete the peer has compacted away, and among equal timestamps the late one wins"
)
SKIPPED = "its records are not on the peer, and nothing will bring them there; the log of the master tells which"


@click.group()
def quarantine() -> None:
    """Ranges of records that fail for good: what blocks a queue, and what was set aside.

    A range is the smallest run of blocks of a log that can't be read, or that a peer refuses for what is in it. By
    default it blocks its queue until somebody decides; with replication.quarantine = "auto" it is set aside.
    """


@quarantine.command(name="list")
@click.argument("table", type=parameters.TABLE, required=False)
@in_session
def list_ranges(session: Session, output: Output, table: str | None) -> None:
    """One row for each range: blocking, held, retrying or skipping."""
    rows = [_record(found) for found in session.client.replication.quarantine(table or "")]
    if not output.as_json:
        rows = [{**row, "file": "/".join(str(row["file"]).rsplit("/", 2)[-2:])} for row in rows]
    output.records(rows, _COLUMNS, "no range fails for good")


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def hold(session: Session, output: Output, range_id: str) -> None:
    """Let the queue go on without a range that blocks it. The range and its file are kept, to be retried or skipped.

    Order: what follows the range reaches the peer before it.
    """
    found = session.client.replication.hold_range(range_id)
    text = f"records {found.blocks.first} to {found.blocks.last} are held: {HELD.format(id=range_id)}"
    output.done(text, _record(found))


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def retry(session: Session, output: Output, range_id: str) -> None:
    """Ship a held range after all; a blocking one is only tried again at once, in its turn.

    Order: a held range reaches the peer behind what followed it, in a run of its own, so that the peer does not take it
    for a repeat. Of each cell the newest timestamp wins there, whenever it comes; where the tablet servers chose the
    timestamps that is the right one. But a put whose delete came meanwhile, and was compacted away on the peer, shows
    again; and where users gave two records of a cell the same timestamp, the late one wins. A block of which the peer
    had taken a part is applied whole.
    """
    blocking = session.client.replication.retry_range(range_id)
    if blocking:
        output.done(f"range {range_id} is tried again now, in its turn", {"range_id": range_id, "state": "blocking"})
    else:
        output.done(f"range {range_id} is shipped: {RETRIED}", {"range_id": range_id, "state": "shipped"})


@quarantine.command()
@click.argument("range_id", metavar="RANGE")
@in_session
def skip(session: Session, output: Output, range_id: str) -> None:
    """Give a range up, blocking or held: the peer never gets it, and its file may go."""
    session.client.replication.skip_range(range_id)
    output.done(f"range {range_id} is given up: {SKIPPED}", {"range_id": range_id, "state": "skipped"})


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
