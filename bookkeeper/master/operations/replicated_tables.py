"""The operations that enable and disable the replication of a table to a cluster.

They write the targets in the table's record. Every block that a tserver writes after the operation has these targets
(rule R14). Rules: R5, R13, R14 and R23.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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
    """Arguments of ``enable_replication``. No groups mean all groups; no remote table means one of the same name.

    Raises RefusedError if either table is a system table.
    """
    refuse_system_table(table)
    refuse_system_table(remote_table or table)
    names: list[Json] = [*sorted(set(groups))]
    return {"table": table, "groups": names, "cluster": cluster, "remote_table": remote_table or table}


def disable_args(table: str, groups: Sequence[str], cluster: str) -> Args:
    """Arguments of ``disable_replication``. No groups mean all groups."""
    names: list[Json] = [*sorted(set(groups))]
    return {"table": table, "groups": names, "cluster": cluster}


class _TargetChange(ConfigChange, frozen=True):
    """A change of the targets of one table at one cluster."""

    def locks(self, args: Args) -> Collection[str]:
        """Neither the table nor the cluster may change meanwhile."""
        return (f"table {text(args, 'table')}", f"cluster {text(args, 'cluster')}")


class EnableReplication(_TargetChange, frozen=True):
    """Adds groups to the targets; groups that are enabled already stay as they are. From the end of the operation on,
    no block is written without the target.
    """

    first: str = "resolve"

    @property
    def steps(self) -> Mapping[str, Step]:
        """resolve, number, write, confirm."""
        return {"resolve": self.resolve, "number": self.number, "write": self.write, "confirm": self.confirm}

    def resolve(self, call: Call) -> Outcome:
        """Get the peer's identity and the remote table's id, and find the groups that are not enabled yet.

        Fails if the peer does not answer. Raises NotFoundError, RefusedError (rule R23).
        """
        config = self.context.config()
        table = online_table(config, text(call.args, "table"))
        cluster = config.cluster(text(call.args, "cluster"))
        requested = texts(call.args, "groups")
        check_group_names(table, requested)
        try:
            peer = self.context.peers.contact_as(cluster.alias, cluster.quorum, cluster.instance_id)
            remote_id = self.context.peers.resolve_table(cluster.alias, peer, text(call.args, "remote_table"))
        except TransientError as error:
            return Failed(explain_unreachable(cluster.alias, error))
        new_groups = uncovered_groups(table, cluster.alias, remote_id, requested or None)
        if new_groups == ():
            return Next("confirm", {})
        groups: Json = None if new_groups is None else list(new_groups)
        return Next("number", {"table_id": table.table_id, "remote_table_id": remote_id, "groups": groups})

    def number(self, call: Call) -> Outcome:
        """Take an incarnation: every new target has its own (rule R5). A crash leaves a gap in the numbers."""
        return Next("write", {**call.state, "incarnation": next_incarnation(self.context.stores.coordination)})

    def write(self, call: Call) -> Outcome:
        """Write the target. Raises NotFoundError if the table or the cluster is gone."""
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


class DisableReplication(_TargetChange, frozen=True):
    """Removes groups from the targets. From the end of the operation on, no block is written for these groups."""

    first: str = "narrow"

    def write(self, call: Call) -> Outcome:
        """Remove the groups; a target without a group is deleted. Raises NotFoundError."""
        config = self.context.config()
        table = config.table_named(text(call.args, "table"))
        cluster = config.cluster(text(call.args, "cluster"))
        groups = texts(call.args, "groups")
        check_group_names(table, groups)
        narrow_targets(self.context.stores.coordination, table.table_id, cluster.alias, groups or None)
        return Next("confirm", {})
