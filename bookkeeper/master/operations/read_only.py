"""The operation that makes the whole cluster read-only for users, or writable again.

Tservers check every user's write that they accept after the operation's end against the new switch (rule R14). The
property ``table.read_only`` does the same for one table. Law: L6.
"""

from __future__ import annotations

from collections.abc import Collection

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_changes import set_read_only
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.errors import ReadOnlyError
from bookkeeper.master.fate.engine import Args, Call, Next, Outcome
from bookkeeper.master.operations.config_change import ConfigChange


def read_only_args(read_only: bool) -> Args:
    """Arguments of ``set_read_only``."""
    return {"read_only": read_only}


class SetReadOnly(ConfigChange, frozen=True):
    """Switches the cluster's read-only mode on or off."""

    def locks(self, _args: Args) -> Collection[str]:
        """Requests for on and off run in the order in which they arrive."""
        return ("read_only",)

    def write(self, call: Call) -> Outcome:
        """Write the switch."""
        set_read_only(self.context.stores.coordination, call.args["read_only"] is True)
        return Next("confirm", {})


def refuse_if_read_only(config: ClusterConfig, table: TableConfig, command: str) -> None:
    """Raise ReadOnlyError if the table or the cluster is read-only; ``command`` would change the table's data."""
    if config.read_only:
        raise ReadOnlyError(f"this cluster is read-only and refuses {command}; first: readonly --cluster off")
    if parse_properties(table.properties).read_only == "true":
        raise ReadOnlyError(
            f"table {table.name} is read-only and refuses {command}; first: readonly -t {table.name} off"
        )
