"""The operation that changes the properties of a table. A crash makes the next master write the same changes again,
which is harmless. Rule: R14.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from msgspec import structs

from bookkeeper.config.table_properties import changed, check_keys, parse_values
from bookkeeper.coordination.config_changes import change_table
from bookkeeper.coordination.config_tree import TableConfig
from bookkeeper.errors import InvalidInputError
from bookkeeper.master.fate.engine import Args, Call, Next, Outcome
from bookkeeper.master.operations.config_change import ConfigChange
from bookkeeper.master.operations.context import online_table, text, texts
from bookkeeper.master.operations.replica_hosts import check_store
from bookkeeper.metadata.values import Json


def change_properties_args(name: str, changes: Mapping[str, str], removals: Collection[str]) -> Args:
    """Arguments of ``change_properties``. Raises InvalidInputError before an impossible operation begins."""
    both = sorted(set(changes) & set(removals))
    if both:
        raise InvalidInputError(f"property {both[0]} is both set and removed; do one of them")
    check_keys([*changes, *removals])
    parse_values(changes)  # by themselves: whether they go with the table's others is seen when they are written
    return {"name": name, "changes": dict(changes), "removals": cast("list[Json]", sorted(removals))}


class ChangeProperties(ConfigChange, frozen=True):
    """Sets and removes properties of one table."""

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table name at a time."""
        return (f"table {text(args, 'name')}",)

    def write(self, call: Call) -> Outcome:
        """Write the properties. Raises NotFoundError, InvalidInputError, RefusedError."""
        table_id = online_table(self.context.config(), text(call.args, "name")).table_id
        changes = cast("dict[str, str]", call.args["changes"])
        removals = texts(call.args, "removals")

        def change(table: TableConfig) -> TableConfig:
            after, parsed = changed(table.properties, changes, removals)
            check_store(self.context, table, parsed)
            return structs.replace(table, properties=after)

        change_table(self.context.stores.coordination, table_id, change)
        return Next("confirm", {"table_id": table_id})
