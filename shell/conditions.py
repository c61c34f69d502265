"""``insert --if-value`` and ``--if-absent``: a cell is written if it is as the user thinks it is.

Arrives: the two switches. Leaves: a condition on the cell that is written, and the error for one that did not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bookkeeper.client import absent, equals
from bookkeeper.errors import PermanentError
from bookkeeper.rpc.contract.messages import Condition
from shell.output import parse_bytes


class RejectedError(PermanentError):
    """A condition did not hold, and nothing was written."""

    code = "rejected"


def conditional(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the two switches, as ``if_value`` and ``if_absent``."""
    command = click.option("--if-absent", is_flag=True, help="Only if there is no such cell.")(command)
    return click.option("--if-value", type=parse_bytes, metavar="VALUE", help="Only if it holds this now.")(command)


def condition_of(
    family: bytes, qualifier: bytes, visibility: bytes, if_value: bytes | None, if_absent: bool
) -> Condition | None:
    """The condition on a cell that the switches ask for, None without one; raises UsageError for both."""
    if if_value is not None and if_absent:
        raise click.UsageError("give --if-value or --if-absent, not both", click.get_current_context())
    if if_absent:
        return absent(family, qualifier, visibility)
    return None if if_value is None else equals(family, qualifier, if_value, visibility)


def rejected(table: str, condition: Condition) -> RejectedError:
    """What the user is told when the condition did not hold."""
    reason = "there is such a cell" if condition.value is None else "the cell does not hold what --if-value says"
    return RejectedError(f"nothing was written to table {table}: {reason}; scan shows it")
