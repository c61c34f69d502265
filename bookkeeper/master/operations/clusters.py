"""The operations that define and delete peer clusters. Rule: R23.

The record of a peer has its alias, its quorum and the instance id that answered there. ``delete_cluster`` refuses a
cluster that a table replicates to, because its unsent records would be lost; HBase refuses this, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from msgspec import Struct

from bookkeeper.coordination.config_changes import define_cluster, delete_cluster
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster
from bookkeeper.coordination.masters import normal_quorum
from bookkeeper.errors import ExistsError, InvalidInputError, RefusedError, TransientError
from bookkeeper.master.calls.peer_masters import PeerIdentity, explain_unreachable
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, Step
from bookkeeper.master.operations.context import Context, text
from bookkeeper.peers.registry import BUILT_IN, split_quorum

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def cluster_args(name: str, quorum: str) -> Args:
    """Arguments of ``define_cluster`` and ``delete_cluster``. Raises InvalidInputError."""
    if _ALIAS.fullmatch(name) is None:
        raise InvalidInputError(f"{name!r} can't be a cluster's name; use up to 64 letters, digits, '.', '_' and '-'")
    split_quorum(quorum.strip())
    return {"name": name, "quorum": normal_quorum(quorum)}


class DefineCluster(Struct, frozen=True):
    """Defines a peer, or changes its quorum (:class:`bookkeeper.master.fate.engine.Operation`)."""

    context: Context
    first: str = "contact"

    def locks(self, _args: Args) -> Collection[str]:
        """One definition at a time, so that two aliases never name one instance."""
        return ("clusters",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """contact, write."""
        return {"contact": self.contact, "write": self.write}

    def contact(self, call: Call) -> Outcome:
        """Get the peer's identity; fails if the peer does not answer.

        Raises RefusedError if the peer is this cluster or has its name, or is another one than its secret is for,
        InvalidInputError.
        """
        name, quorum, peers = text(call.args, "name"), text(call.args, "quorum"), self.context.peers
        try:
            found = peers.prepare(quorum) if may_prepare(self.context.config(), name) else peers.contact(quorum)
        except TransientError as error:
            return Failed(explain_unreachable(name, error))
        refuse_namesake(self.context.config(), found)
        refuse_other_than_its_secret(name, self.context.settings.secrets.instance_of_peer(name), found)
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


def may_prepare(config: ClusterConfig, alias: str) -> bool:
    """Whether a definition may turn an empty directory into a peer (rule R23): only for a new alias. The directory of a
    defined cluster has an identity; if that is missing, the directory is unmounted, emptied or replaced, and a new
    identity would make it another instance.
    """
    return alias not in config.clusters


def refuse_namesake(config: ClusterConfig, found: PeerIdentity) -> None:
    """Raise RefusedError if a new peer has the name of this cluster. Instance ids distinguish the two for replication
    (rule R23), but people would confuse them.
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


def refuse_other_than_its_secret(alias: str, instance_id: str, found: PeerIdentity) -> None:
    """Raise RefusedError if the secret for a peer is for another instance (``instance_id``; "" = for any). A process of
    an attacker, at the address or named by his ZooKeeper, may pass for a cluster that asks for no secret (rule R23).
    """
    if found.system == BUILT_IN and instance_id not in ("", found.instance_id):
        raise RefusedError(
            f"the secret for {alias} is for instance {instance_id}, and {found.instance_id} ({found.name}) answers at "
            f"{found.leader}: correct the address, or get a secret of that cluster"
        )


def refuse_second_alias(config: ClusterConfig, peer: PeerCluster) -> None:
    """Raise ExistsError if the instance has another alias: a table could replicate to it twice (rule R23)."""
    for alias, other in config.clusters.items():
        if other.instance_id == peer.instance_id and alias != peer.alias:
            raise ExistsError(
                f"cluster {alias} is the same instance ({peer.instance_id}); use that name, or deletecluster {alias} "
                f"{other.quorum} first"
            )


class DeleteCluster(Struct, frozen=True):
    """Deletes a peer (:class:`bookkeeper.master.fate.engine.Operation`), unless a table replicates to it."""

    context: Context
    first: str = "check"

    def locks(self, args: Args) -> Collection[str]:
        """No table can be enabled for the cluster meanwhile."""
        return ("clusters", f"cluster {text(args, 'name')}")

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, delete."""
        return {"check": self.check, "delete": self.delete}

    def check(self, call: Call) -> Outcome:
        """Compare the quorum. Raises NotFoundError, and InvalidInputError if the cluster has another quorum."""
        peer = self.context.config().cluster(text(call.args, "name"))
        quorum = text(call.args, "quorum")
        if normal_quorum(peer.quorum) != quorum:
            raise InvalidInputError(
                f"cluster {peer.alias} has the quorum {peer.quorum}, not {quorum}; name its own quorum"
            )
        return Next("delete", {})

    def delete(self, call: Call) -> Outcome:
        """Delete the record, unless an interrupted try of this step has deleted it. Raises RefusedError."""
        name = text(call.args, "name")
        if name in self.context.config().clusters:
            delete_cluster(self.context.stores.coordination, name)
        return Done()
