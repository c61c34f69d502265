"""The command ``operations``: operations of several steps, under way or failed."""

from __future__ import annotations

import json

import click

from shell.output import Output, utc
from shell.shell_session import Session, in_session

_COLUMNS = ("operation", "kind", "step", "begun", "note")


@click.command()
@in_session
def operations(session: Session, output: Output) -> None:
    """List operations that are under way, and those that failed lately.

    If the master dies, the next master continues an operation. A failed operation makes no further change; repeat its
    command when the reason is gone.
    """
    rows = [
        {
            "operation": found.txid,
            "kind": found.kind,
            "step": found.step,
            "begun": utc(found.begun_ms),
            "note": found.note,
            **({"arguments": json.loads(found.arguments)} if output.as_json else {}),
        }
        for found in session.client.operations()
    ]
    output.records(rows, _COLUMNS, "no operation is under way, and no operation failed lately")
