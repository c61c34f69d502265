"""The operations that create and delete tables and set their locality groups.

A table's record has a state of its own while an operation creates or deletes the table. A table with several replicas
gets live hosts before its name is claimed, so that a cluster with too few hosts refuses it and nothing is left over.
Rules: R9, R14 and R17.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from msgspec import Struct, structs

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_changes import (
    change_table,
    check_groups,
    create_table_record,
    new_table_id,
    refuse_system_table,
    remove_table_record,
    set_table_groups,
    set_table_state,
)
from bookkeeper.coordination.config_tree import TableConfig
from bookkeeper.errors import InvalidInputError, RefusedError
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, State, Step, Wait
from bookkeeper.master.index.snapshot import TabletView, chained, tablet_view
from bookkeeper.master.operations.config_change import ConfigChange
from bookkeeper.master.operations.context import (
    Context,
    decode_bytes,
    decode_groups,
    encode_bytes,
    encode_groups,
    online_table,
    text,
    texts,
)
from bookkeeper.master.operations.read_only import refuse_if_read_only
from bookkeeper.master.operations.replica_hosts import decode_hosts, encode_hosts, first_replicas, hosts_for
from bookkeeper.master.operations.volume_need import MORE_REPLICAS, refuse_without_volume
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Row, RowPut
from bookkeeper.metadata.values import Json
from bookkeeper.model import DEFAULT_GROUP, LocalityGroup

SPLITS_MAX = 10_000
"""Most splits of one new table; one step writes all its rows."""

SPLIT_BYTES_MAX = 16 * 1024
"""Longest end row of a tablet; it is part of a row key in the metadata table."""

PLACE_AGAIN_MS = 20


def create_table_args(
    name: str, splits: Collection[bytes], groups: Sequence[LocalityGroup], properties: Mapping[str, str]
) -> Args:
    """Arguments of ``create_table``. Raises InvalidInputError, and RefusedError for a system table's name, before an
    impossible operation begins.
    """
    # Users make paths and URLs of names; with ".." or a slash in them, these would lead elsewhere.
    if not name or len(name) > 255 or not name.isprintable() or ".." in name or "/" in name:
        raise InvalidInputError(
            f"{name!r} can't be a table's name; use up to 255 printable characters without '..' and '/'"
        )
    refuse_system_table(name)
    check_splits(splits)
    check_groups(groups)
    parse_properties(properties)
    ordered: list[Json] = encode_bytes(sorted(set(splits)))
    return {"name": name, "splits": ordered, "groups": encode_groups(groups), "properties": dict(properties)}


def check_splits(rows: Collection[bytes]) -> None:
    """Raises InvalidInputError if a row can't be the end of a tablet. A later check would leave an incomplete table."""
    if b"" in rows or len(rows) > SPLITS_MAX:
        raise InvalidInputError(f"the splits are not valid; name at most {SPLITS_MAX} rows, none of them empty")
    longest = max(map(len, rows), default=0)
    if longest > SPLIT_BYTES_MAX:
        raise InvalidInputError(f"a split of {longest} bytes is too long; use rows of up to {SPLIT_BYTES_MAX}")


class CreateTable(Struct, frozen=True):
    """Creates a table (:class:`bookkeeper.master.fate.engine.Operation`). The result is the table's id."""

    context: Context
    first: str = "number"

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table name at a time."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """number, claim, tablets, online, place."""
        return {
            "number": self.number,
            "claim": self.claim,
            "tablets": self.tablets,
            "online": self.online,
            "place": self.place,
        }

    def number(self, call: Call) -> Outcome:
        """Take an id, and hosts for a table with several replicas. A crash leaves a gap in the numbers. Raises
        RefusedError with too few hosts.
        """
        replicas = parse_properties(cast("dict[str, str]", call.args["properties"])).replicas
        if replicas == 1:
            refuse_without_volume(self.context, f"table {text(call.args, 'name')} with one replica", MORE_REPLICAS)
        hosts = [] if replicas == 1 else hosts_for(self.context, replicas)
        state: State = {"table_id": new_table_id(self.context.stores.coordination)}
        return Next("claim", {**state, "hosts": encode_hosts(hosts)} if hosts else state)

    def claim(self, call: Call) -> Outcome:
        """Claim the name and write the record. Raises ExistsError."""
        properties = cast("dict[str, str]", call.args["properties"])
        create_table_record(
            self.context.stores.coordination,
            text(call.state, "table_id"),
            text(call.args, "name"),
            decode_groups(call.args),
            properties,
        )
        return Next("tablets", call.state)

    def tablets(self, call: Call) -> Outcome:
        """Write the row of each tablet, its replicas first: a tablet never seems to have one replica meanwhile."""
        table_id, splits = text(call.state, "table_id"), decode_bytes(texts(call.args, "splits"))
        rows = new_tablet_rows(table_id, splits)
        self.context.stores.reign.check()
        if "hosts" in call.state:
            count = parse_properties(cast("dict[str, str]", call.args["properties"])).replicas
            cells = first_replicas([row.key for row in rows], decode_hosts(call.state), count, call.txid)
            self.context.stores.table.put(cells, self.context.stores.reign.next_rank())
        self.context.stores.table.put(rows, keys.ONCE_RANK)
        return Next("online", call.state)

    def online(self, call: Call) -> Outcome:
        """Set the table online."""
        set_table_state(self.context.stores.coordination, text(call.state, "table_id"), "online")
        self.context.hooks.tablets_changed(*keys.table_section(text(call.state, "table_id")))
        return Next("place", call.state)

    def place(self, call: Call) -> Outcome:
        """Wait until every tablet has a tserver, if there is any tserver."""
        table_id = text(call.state, "table_id")
        return wait_for_tservers(self.context, [keys.table_section(table_id)]) or Done(table_id)


def new_tablet_rows(table_id: str, splits: Sequence[bytes]) -> list[RowPut]:
    """The tablet rows of a new table, split at these rows (sorted). Each has the end row of the tablet before it
    (rule R16).
    """
    ends: list[bytes | None] = [*splits, None]
    starts: list[bytes | None] = [None, *splits]
    return [
        RowPut(
            keys.tablet_row(table_id, end),
            {keys.PREV_ROW: values.encode_prev_row(start), keys.DIR: values.encode_dir(f"t-{number:05d}")},
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def tablet_rows(context: Context, table_id: str, families: Collection[str] = ("tablet", "location")) -> list[Row]:
    """The rows of a table's tablets and remnants."""
    return list(context.stores.table.scan(*keys.table_section(table_id), families))


def chained_tablets(context: Context, table_id: str) -> list[TabletView]:
    """The tablets of a table in order, at least one. Raises BrokenChainError, a TransientError."""
    rows = chained(tablet_rows(context, table_id), (table_id,))
    return [tablet_view(row) for row in rows if keys.is_tablet(row)]


def wait_for_tservers(context: Context, parts: Collection[tuple[bytes, bytes]]) -> Wait | None:
    """A Wait until every tablet of these parts has a tserver; None if all have one, or no tserver is live. A part
    reaches from one tablet row's key (included) to another (excluded).
    """
    live = context.tservers.live()
    if not live:
        return None
    unserved = {part: _count_unserved(context, part, live) for part in parts}
    for part in (part for part, count in unserved.items() if count):
        context.hooks.tablets_changed(*part)
    count = sum(unserved.values())
    return Wait(f"{count} tablets have no tserver yet", PLACE_AGAIN_MS) if count else None


def _count_unserved(context: Context, part: tuple[bytes, bytes], live: Collection[str]) -> int:
    rows = context.stores.table.scan(*part, ("tablet", "location"))
    return sum(tablet_view(row).session not in live for row in rows if keys.is_tablet(row))


class DeleteTable(Struct, frozen=True):
    """Deletes a table and its unreplicated records (rule R9; :class:`bookkeeper.master.fate.engine.Operation`)."""

    context: Context
    first: str = "mark"

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table name at a time."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """mark, unload, forget, record."""
        return {"mark": self.mark, "unload": self.unload, "forget": self.forget, "record": self.record}

    def mark(self, call: Call) -> Outcome:
        """Set the state ``deleting`` and remove the targets. Raises NotFoundError, and ReadOnlyError unless an earlier
        try of this step has set the state.
        """
        config = self.context.config()
        table = config.table_named(text(call.args, "name"))
        if table.state == "online":
            refuse_if_read_only(config, table, "deletetable")
        change_table(self.context.stores.coordination, table.table_id, as_deleted)
        return Next(
            "unload", {"table_id": table.table_id, "generation": self.context.stores.coordination.settled_generation()}
        )

    def unload(self, call: Call) -> Outcome:
        """Wait until no tserver serves a tablet of the table or can write to one."""
        table_id = text(call.state, "table_id")
        waiting_for = self.context.tservers.unconfirmed(cast(int, call.state["generation"]))
        extents = [tablet_view(row).extent for row in tablet_rows(self.context, table_id) if keys.is_tablet(row)]
        waiting_for += self.context.tservers.unload_everywhere(extents, self.context.stores.reign.epoch)
        if waiting_for:
            return Wait(f"waiting for tservers to unload the table: {'; '.join(waiting_for)}")
        return Next("forget", call.state)

    def forget(self, call: Call) -> Outcome:
        """Mark the segments for the collector, then purge the tablets' rows. No later table gets the same id."""
        rows = tablet_rows(self.context, text(call.state, "table_id"), TABLET_ROW_FAMILIES)
        self.context.stores.reign.check()
        marks = [RowPut(keys.del_row(name), {keys.DEL: values.EMPTY}) for name in segments_of(rows)]
        if marks:
            self.context.stores.table.put(marks, keys.ONCE_RANK)
        cells = [CellKey(row.key, column) for row in rows for column in row.cells]
        if cells:
            self.context.stores.table.purge(cells)
        return Next("record", call.state)

    def record(self, call: Call) -> Outcome:
        """Delete the record; the table's name is free again."""
        remove_table_record(self.context.stores.coordination, text(call.state, "table_id"))
        self.context.hooks.wake()
        return Done()


TABLET_ROW_FAMILIES = ("tablet", "location", "segment", "log", "repl", keys.REPLICA_FAMILY)
"""All column families of a tablet's row."""


def as_deleted(table: TableConfig) -> TableConfig:
    """The record of a table that is being deleted. It has no targets, so it retains no file (rule R9)."""
    return structs.replace(table, state="deleting", targets=())


def segments_of(rows: Sequence[Row]) -> list[str]:
    """The segments that tablet rows name, sorted."""
    found = {keys.parse_file(c.qualifier) for row in rows for c in row.cells if c.family == "segment"}
    return sorted(found)


def set_groups_args(name: str, groups: Sequence[LocalityGroup]) -> Args:
    """Arguments of ``set_groups``. Raises InvalidInputError."""
    check_groups(groups)
    return {"name": name, "groups": encode_groups(groups)}


class SetGroups(ConfigChange, frozen=True):
    """Sets the locality groups of a table (rule R14)."""

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table name at a time."""
        return (f"table {text(args, 'name')}",)

    def write(self, call: Call) -> Outcome:
        """Write the groups. Raises NotFoundError, RefusedError."""
        table = online_table(self.context.config(), text(call.args, "name"))
        groups = decode_groups(call.args)
        refuse_loss_of_replicated_groups(table, groups)
        set_table_groups(self.context.stores.coordination, table.table_id, groups)
        return Next("confirm", {"table_id": table.table_id})


def refuse_loss_of_replicated_groups(table: TableConfig, groups: Sequence[LocalityGroup]) -> None:
    """Raises RefusedError if a group that is replicated by name vanishes or changes its families: other records would
    be replicated without notice.
    """
    after = {group.name: set(group.families) for group in groups}
    before = {group.name: set(group.families) for group in table.groups}
    for target in table.targets:
        for name in target.groups or ():
            if name != DEFAULT_GROUP and after.get(name) != before.get(name):
                raise RefusedError(
                    f"locality group {name} of table {table.name} is replicated to cluster {target.key.cluster}; "
                    f"first: disablereplication -t {table.name} -lg {name} {target.key.cluster}"
                )
