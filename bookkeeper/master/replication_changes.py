"""Enabling and disabling replication: runs the operation, and returns the remaining targets with warnings.

Arrives: the parts of a leadership and the arguments of a call. Leaves: a :class:`ReplicationChange`. Its warnings name
records that no target covers, because the status does not show those. Rules: R5 and R13.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig, read_config
from bookkeeper.errors import NotReadyError
from bookkeeper.master.cycle.knowledge import expect_known
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.operations.replicated_tables import disable_args, enable_args
from bookkeeper.master.queries.target_states import TargetState, all_states
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import ReplicationChange, ReplicationConfig

HOW_TO_COPY = "to copy them: exporttable and importtable, see operations, A peer for a table that has data"


def enable(
    lead: Leadership, table: str, groups: Sequence[str], cluster: str, remote_table: str, timeout_ms: int
) -> ReplicationChange:
    """Returns the table's targets once every later write is replicated (rule R14). Raises the operation's errors."""
    before = read_config(lead.coordination).tables
    known = next((found for found in before.values() if found.name == table), None)
    has_records = known is not None and lead.queries.holds_records(known.table_id)
    lead.fate.run("enable_replication", enable_args(table, groups, cluster, remote_table), timeout_ms)
    after = read_config(lead.coordination).table_named(table)
    fresh = keys_of(after, cluster) - (set() if known is None else keys_of(known, cluster))
    return ReplicationChange(tuple(replication_configs([after])), enabling_warnings(table, cluster, fresh, has_records))


def enabling_warnings(table: str, cluster: str, fresh: Collection[TargetKey], has_records: bool) -> tuple[str, ...]:
    """Warnings about the records that a new target never gets."""
    if not (fresh and has_records):
        return ()
    left_out = f"table {table} holds records that were written before: {cluster} gets only those written from now on"
    lacks = "It lacks the older ones, also those written while replication to it was disabled"
    return (f"{left_out}. {lacks}; {HOW_TO_COPY}",)


def disable(lead: Leadership, table: str, groups: Sequence[str], cluster: str, timeout_ms: int) -> ReplicationChange:
    """Returns the remaining targets once no later write is replicated (rule R14). Raises the operation's errors."""
    before = read_config(lead.coordination)
    waiting = waiting_states(lead, before, table, cluster)
    lead.fate.run("disable_replication", disable_args(table, groups, cluster), timeout_ms)
    after = read_config(lead.coordination).table_named(table)
    gone = changed_keys(before.table_named(table), after, cluster)
    return ReplicationChange(tuple(replication_configs([after])), disabling_warnings(table, cluster, gone, waiting))


def disabling_warnings(
    table: str, cluster: str, gone: Collection[TargetKey], waiting: Sequence[TargetState] | None
) -> tuple[str, ...]:
    """Warnings about the records that a target lacked when it ended. ``waiting`` None: the books are not read yet."""
    if not gone:
        return ()
    if waiting is None:
        return (f"this master has not read yet whether {cluster} had all of table {table}; {HOW_TO_COPY}",)
    lost = [state for state in waiting if state.target.key in gone]
    if not lost:
        return ()
    records = sum(state.lag_records for state in lost)
    files = f"{len(lost)} file{'s' if len(lost) > 1 else ''}"
    waited = f"up to {records} records of table {table} in {files} had not reached {cluster} and are not sent any more"
    return (f"{waited}; {HOW_TO_COPY}",)


def waiting_states(lead: Leadership, config: ClusterConfig, table: str, cluster: str) -> Sequence[TargetState] | None:
    """The files of a table of which a cluster lacks records; None before the master has read the books."""
    wanted = keys_of(config.table_named(table), cluster)
    try:
        expect_known(lead.knowledge())
    except NotReadyError:
        return None
    tries = lead.settings.replication.quarantine_tries
    files, shipping = lead.cycle.books.snapshot.files, lead.cycle.dispatcher.shipping
    states = all_states(files, shipping, lead.moment(), lambda target: target.key in wanted, tries)
    return [state for state in states if state.lag_records]


def keys_of(table: TableConfig, cluster: str) -> set[TargetKey]:
    """The keys of a table's targets at one cluster."""
    return {target.key for target in table.targets if target.key.cluster == cluster}


def changed_keys(before: TableConfig, after: TableConfig, cluster: str) -> set[TargetKey]:
    """The keys of the targets at one cluster that ended, or lost some of their groups."""
    left = {(target.key, target.groups) for target in after.targets}
    changed = {target.key for target in before.targets if (target.key, target.groups) not in left}
    return changed & keys_of(before, cluster)


def replication_configs(tables: Sequence[TableConfig]) -> list[ReplicationConfig]:
    """The targets of tables as messages of the wire contract."""
    return [
        ReplicationConfig(table.name, target.key, target.groups or (), target.remote_table)
        for table in tables
        for target in table.targets
    ]
