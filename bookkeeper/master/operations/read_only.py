"""Making the whole cluster read-only for users, and ending that.

Arrives: on or off. Leaves: the switch in the configuration, obeyed by every tserver: a user's write that is taken
after the operation's end is taken under the new word (rule R14). Cut after any step: the switch is written again.
One table is made read-only by its property ``table.read_only``. Law: L6.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_changes import set_read_only
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.errors import ReadOnlyError
from bookkeeper.master.fate.engine import Args, Call, Next, Outcome
from bookkeeper.master.operations.config_change import ConfigChange


def read_only_args(read_only: bool) -> Args:
    """Arguments of ``set_read_only``."""
    return {"read_only": read_only}


@dataclass(frozen=True, slots=True)
class SetReadOnly(ConfigChange):
    """See :class:`bookkeeper.master.fate.engine.Operation`. In force on every tserver when it is done."""

    def locks(self, _args: Args) -> Collection[str]:
        """On and off follow each other in the order in which they were asked for."""
        return ("read_only",)

    def write(self, call: Call) -> Outcome:
        """Write the switch."""
        set_read_only(self.context.stores.coordination, call.args["read_only"] is True)
        return Next("confirm", {})


def refuse_if_read_only(config: ClusterConfig, table: TableConfig, what: str) -> None:
    """Raise ReadOnlyError when users may not change the table's data: ``what`` would."""
    if config.read_only:
        raise ReadOnlyError(f"this cluster is read-only, {what} is refused; first: readonly --cluster off")
    if parse_properties(table.properties).read_only == "true":
        raise ReadOnlyError(f"table {table.name} is read-only, {what} is refused; first: readonly -t {table.name} off")
