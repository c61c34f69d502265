"""Defining and deleting peer clusters.

Arrives: an alias and a quorum. Leaves: a record of the peer in the configuration, with the instance id that answered.
Cut after any step: nothing but that record. Rule: R23.

A cluster that some table replicates to can't be deleted: HBase refuses it as well, and the unsent data of a table
should not go by a slip of the pen. The quorum that is given must be the one that was defined.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bookkeeper.coordination.config_changes import define_cluster, delete_cluster
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster
from bookkeeper.errors import ExistsError, InvalidInputError, RefusedError, TransientError
from bookkeeper.master.calls.peer_masters import PeerIdentity, explain_unreachable
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, Step
from bookkeeper.master.operations.context import Context, text
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.rpc.address import format_quorum, parse_quorum

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def cluster_args(name: str, quorum: str) -> Args:
    """Arguments of ``define_cluster`` and ``delete_cluster``. Raises InvalidInputError."""
    if _ALIAS.fullmatch(name) is None:
        raise InvalidInputError(f"{name!r} can't be a cluster's name; use up to 64 letters, digits, '.', '_' and '-'")
    return {"name": name, "quorum": normal_quorum(quorum)}


def normal_quorum(quorum: str) -> str:
    """One spelling of a quorum. Raises InvalidInputError when it is malformed."""
    system, rest = split_quorum(quorum.strip())
    return format_quorum(parse_quorum(rest)) if system == BUILT_IN else quorum.strip()


@dataclass(frozen=True, slots=True)
class DefineCluster:
    """See :class:`bookkeeper.master.fate.engine.Operation`. The same again is fine and may bring a new quorum."""

    context: Context
    first: str = "contact"

    def locks(self, _args: Args) -> Collection[str]:
        """One definition at a time: two aliases must not come to name one instance."""
        return ("clusters",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """contact, write."""
        return {"contact": self.contact, "write": self.write}

    def contact(self, call: Call) -> Outcome:
        """Ask who it is. Fails when it does not answer: nobody can say then which cluster it is.

        Raises RefusedError (this cluster, or one of its name), InvalidInputError.
        """
        name, quorum, peers = text(call.args, "name"), text(call.args, "quorum"), self.context.peers
        try:
            found = peers.prepare(quorum) if may_begin(self.context.config(), name) else peers.contact(quorum)
        except TransientError as error:
            return Failed(explain_unreachable(name, error))
        refuse_namesake(self.context.config(), found)
        return Next("write", {"instance_id": found.instance_id, "name": found.name})

    def write(self, call: Call) -> Outcome:
        """Write the record. Raises ExistsError."""
        peer = PeerCluster(
            text(call.args, "name"),
            text(call.args, "quorum"),
            text(call.state, "instance_id"),
            text(call.state, "name"),
        )
        refuse_second_alias(self.context.config(), peer)
        define_cluster(self.context.stores.coordination, peer)
        self.context.hooks.wake()
        return Done(peer.instance_id)


def may_begin(config: ClusterConfig, alias: str) -> bool:
    """Rule R23: only a new alias may make a place a peer. A cluster that is defined is an instance already: where it is
    missing, its place is unmounted, emptied or replaced, and a new identity there would be another instance.
    """
    return alias not in config.clusters


def refuse_namesake(config: ClusterConfig, found: PeerIdentity) -> None:
    """Two clusters with one name replicate rightly, for instance ids tell them apart (rule R23), but people can't: what
    is new is refused, and a name that was changed later harms nothing.
    """
    own = config.instance
    if (
        own is not None
        and found.system == BUILT_IN
        and own.name == found.name != ""
        and own.instance_id != found.instance_id
    ):
        raise RefusedError(
            f"the cluster at {found.leader} has the name {own.name}, as this one has: give one of them another "
            "instance.name in its bookkeeper.toml and start it again"
        )


def refuse_second_alias(config: ClusterConfig, peer: PeerCluster) -> None:
    """Rule R23: one instance has one alias, or a table could be sent to it twice."""
    for alias, known in config.clusters.items():
        if known.instance_id == peer.instance_id and alias != peer.alias:
            raise ExistsError(
                f"cluster {alias} is the same instance ({peer.instance_id}); use that name, or deletecluster {alias} "
                f"{known.quorum} first"
            )


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    """See :class:`bookkeeper.master.fate.engine.Operation`. Refused while a table replicates to the cluster."""

    context: Context
    first: str = "check"

    def locks(self, args: Args) -> Collection[str]:
        """Not while a table is being enabled for it."""
        return ("clusters", f"cluster {text(args, 'name')}")

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, delete."""
        return {"check": self.check, "delete": self.delete}

    def check(self, call: Call) -> Outcome:
        """The cluster is there, with that quorum. Raises NotFoundError, InvalidInputError."""
        known = self.context.config().cluster(text(call.args, "name"))
        if normal_quorum(known.quorum) != text(call.args, "quorum"):
            raise InvalidInputError(
                f"cluster {known.alias} has the quorum {known.quorum}, not {text(call.args, 'quorum')}: give that one"
            )
        return Next("delete", {})

    def delete(self, call: Call) -> Outcome:
        """Drop the record; a cut may have left it dropped. Raises RefusedError."""
        name = text(call.args, "name")
        if name in self.context.config().clusters:
            delete_cluster(self.context.stores.coordination, name)
        return Done()
