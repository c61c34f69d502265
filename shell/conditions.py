"""``insert --if-value`` and ``--if-absent``: conditions on the present value of the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bookkeeper.client import absent, equals
from bookkeeper.errors import PermanentError
from bookkeeper.rpc.contract.messages import Condition
from shell.output import parse_bytes


class RejectedError(PermanentError):
    """Nothing was written, because a condition was false."""

    code = "rejected"


def conditional(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, as ``if_value`` and ``if_absent``."""
    command = click.option("--if-absent", is_flag=True, help="Write only if there is no such cell.")(command)
    return click.option(
        "--if-value", type=parse_bytes, metavar="VALUE", help="Write only if the cell has this value now."
    )(command)


def condition_of(
    family: bytes, qualifier: bytes, visibility: bytes, if_value: bytes | None, if_absent: bool
) -> Condition | None:
    """The condition of the options; None without an option. Raises UsageError if both are set."""
    if if_value is not None and if_absent:
        raise click.UsageError("give --if-value or --if-absent, not both", click.get_current_context())
    if if_absent:
        return absent(family, qualifier, visibility)
    return None if if_value is None else equals(family, qualifier, if_value, visibility)


def rejected_error(table: str, condition: Condition) -> RejectedError:
    """The error for a condition that was false."""
    reason = "the cell exists" if condition.value is None else "the cell does not have the value of --if-value"
    return RejectedError(f"nothing was written to table {table}: {reason}; scan shows the cell")
