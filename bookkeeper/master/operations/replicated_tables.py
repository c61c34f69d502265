"""Enabling and disabling replication of a table to a cluster.

Arrives: a table, locality groups (none = all), a cluster, a remote table. Leaves: targets in the table's record, in
force for every block that is written after the operation is done (rule R14). Cut after any step: before the target is
written nothing has changed but a counter; afterwards the next master waits for the confirmations.
Rules: R5, R13, R14 and R23.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.coordination.config_changes import (
    add_target,
    narrow_targets,
    next_incarnation,
    refuse_system_table,
    uncovered_groups,
)
from bookkeeper.errors import TransientError
from bookkeeper.master.calls.peer_masters import explain_unreachable
from bookkeeper.master.fate.engine import Args, Call, Failed, Next, Outcome, Step
from bookkeeper.master.operations.config_change import ConfigChange
from bookkeeper.master.operations.context import (
    check_group_names,
    number,
    online_table,
    optional_texts,
    text,
    texts,
)
from bookkeeper.metadata.values import Json


def enable_args(table: str, groups: Sequence[str], cluster: str, remote_table: str) -> Args:
    """Arguments of ``enable_replication``; no groups are all groups, no remote table is one of the same name.

    Raises RefusedError for system tables, here or there.
    """
    refuse_system_table(table)
    refuse_system_table(remote_table or table)
    names: list[Json] = [*sorted(set(groups))]
    return {"table": table, "groups": names, "cluster": cluster, "remote_table": remote_table or table}


def disable_args(table: str, groups: Sequence[str], cluster: str) -> Args:
    """Arguments of ``disable_replication``; no groups are all groups."""
    names: list[Json] = [*sorted(set(groups))]
    return {"table": table, "groups": names, "cluster": cluster}


@dataclass(frozen=True, slots=True)
class _TargetChange(ConfigChange):
    """A change of the targets of one table at one cluster."""

    def locks(self, args: Args) -> Collection[str]:
        """Neither the table nor the cluster may change meanwhile."""
        return (f"table {text(args, 'table')}", f"cluster {text(args, 'cluster')}")


@dataclass(frozen=True, slots=True)
class EnableReplication(_TargetChange):
    """Adds groups to the targets; groups that are enabled already stay as they are. From the end of the operation on,
    no block is written without the target.
    """

    first: str = "resolve"

    @property
    def steps(self) -> Mapping[str, Step]:
        """resolve, number, write, confirm."""
        return {"resolve": self.resolve, "number": self.number, "write": self.write, "confirm": self.confirm}

    def resolve(self, call: Call) -> Outcome:
        """Ask the peer who it is and for the remote table's id; find out which groups are new.

        Fails when the peer does not answer. Raises NotFoundError, RefusedError (rule R23).
        """
        config = self.context.config()
        table = online_table(config, text(call.args, "table"))
        cluster = config.cluster(text(call.args, "cluster"))
        wanted = texts(call.args, "groups")
        check_group_names(table, wanted)
        try:
            peer = self.context.peers.contact_as(cluster.alias, cluster.quorum, cluster.instance_id)
            remote_id = self.context.peers.resolve_table(cluster.alias, peer, text(call.args, "remote_table"))
        except TransientError as error:
            return Failed(explain_unreachable(cluster.alias, error))
        fresh = uncovered_groups(table, cluster.alias, remote_id, wanted or None)
        if fresh == ():
            return Next("confirm", {})
        groups: Json = None if fresh is None else list(fresh)
        return Next("number", {"table_id": table.table_id, "remote_table_id": remote_id, "groups": groups})

    def number(self, call: Call) -> Outcome:
        """Rule R5: every target begins a new incarnation; a cut leaves a gap in the numbers."""
        return Next("write", {**call.state, "incarnation": next_incarnation(self.context.stores.coordination)})

    def write(self, call: Call) -> Outcome:
        """Write the target. Raises NotFoundError when table or cluster went away."""
        state = call.state
        add_target(
            self.context.stores.coordination,
            text(state, "table_id"),
            self.context.config().cluster(text(call.args, "cluster")),
            text(state, "remote_table_id"),
            text(call.args, "remote_table"),
            optional_texts(state, "groups"),
            number(state, "incarnation"),
        )
        return Next("confirm", {})


@dataclass(frozen=True, slots=True)
class DisableReplication(_TargetChange):
    """Removes groups from the targets. From the end of the operation on, no block is written for these groups."""

    first: str = "narrow"

    def write(self, call: Call) -> Outcome:
        """Take the groups out of the targets; a target without a group is gone. Raises NotFoundError."""
        config = self.context.config()
        table = config.table_named(text(call.args, "table"))
        cluster = config.cluster(text(call.args, "cluster"))
        groups = texts(call.args, "groups")
        check_group_names(table, groups)
        narrow_targets(self.context.stores.coordination, table.table_id, cluster.alias, groups or None)
        return Next("confirm", {})
