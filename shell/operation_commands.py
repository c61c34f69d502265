"""The command ``operations``: operations of several steps, under way or failed."""

from __future__ import annotations

import json

import click

from bookkeeper.rpc.contract.messages import OperationInfo
from shell.output import Output, Record, utc
from shell.progress_line import amount
from shell.shell_session import Session, in_session

_COLUMNS = ("operation", "kind", "step", "left", "begun", "note")


@click.command()
@in_session
def operations(session: Session, output: Output) -> None:
    """List operations that are under way, and those that failed lately.

    If the master dies, the next master continues an operation. A failed operation makes no further change; repeat its
    command when the reason is gone. LEFT is what is left of the step, where the operation knows it.
    """
    rows = [
        {
            "operation": found.txid,
            "kind": found.kind,
            "step": found.step,
            **left_of(found, output.as_json),
            "begun": utc(found.begun_ms),
            "note": found.note,
            **({"arguments": json.loads(found.arguments)} if output.as_json else {}),
        }
        for found in session.client.operations()
    ]
    output.records(rows, _COLUMNS, "no operation is under way, and no operation failed lately")


def left_of(found: OperationInfo, as_json: bool) -> Record:
    """What is left of the present step of an operation."""
    if as_json:
        return {"left": found.left, "unit": found.unit}
    return {"left": None if found.left is None else amount(found.left, found.unit or "")}
