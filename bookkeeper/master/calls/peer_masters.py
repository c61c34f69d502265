"""Calls of the masters of other clusters: their identity, their tables, and the end of streams.

Arrives: a quorum as it was defined. Leaves: the identity of the cluster that answers, ids of its tables, the message
that streams are over. Every call may be repeated. Rules: R20 and R23.

A quorum ``host:port[,host:port]`` names masters of another cluster of this project, any of which knows its leader;
``zk://host:port[,host:port]/root`` names the ZooKeeper that knows the masters. A quorum ``SYSTEM://ADDRESS`` belongs to
another replica system, whose code answers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.config.setting import NAME_PATTERN
from bookkeeper.coordination.masters import MasterFinder, normal_quorum
from bookkeeper.errors import (
    BookkeeperError,
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RefusedError,
    TransientError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.peers.protocol import Peer
from bookkeeper.peers.registry import BUILT_IN, Registry, split_quorum
from bookkeeper.rpc.contract.messages import Hello, RootQuestion, RootStanding
from bookkeeper.rpc.contract.services import Master
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.file_roots import FileRoots

LOG = logging.getLogger(__name__)

CONTACT_TIMEOUT_MS = 5_000
"""ms to wait for one answer of another cluster's master; an operator waits for it."""

TABLE_ID = re.compile(r"[a-z0-9]{1,64}")
"""A peer's word becomes a part of the target in the books, so its form is checked."""


class PeerIdentity(Struct, frozen=True):
    """The cluster that answers at a quorum: its replica system and the address of its leading master. Of another
    replica system, ``leader`` is empty and ``quorum`` is in the system's own form.
    """

    instance_id: str
    name: str
    leader: str
    system: str = BUILT_IN
    quorum: str = ""


class PeerMasters:
    """Other clusters, asked through their masters. Thread-safe."""

    def __init__(self, pool: RpcPool, own_instance_id: str, roots: FileRoots, finder: MasterFinder) -> None:
        """``roots``: the directories below which a peer may be."""
        self._pool = pool
        self._finder = finder
        self._own_instance_id = own_instance_id
        self._systems = Registry(roots=roots)

    def prepare(self, quorum: str) -> PeerIdentity:
        """:meth:`contact` of a peer that is being defined: another replica system may initialize its location as a peer
        now.

        Raises the errors of the replica system and of :meth:`contact`.
        """
        system, rest = split_quorum(quorum)
        if system == BUILT_IN:
            return self._contact(rest, is_new=True)
        return refuse_self(self._identify(system, rest, may_prepare=True), self._own_instance_id)

    def contact(self, quorum: str) -> PeerIdentity:
        """Find the leading master and its identity. Changes nothing there.

        Raises InvalidInputError on a malformed quorum, RefusedError when it is this cluster (rule R23),
        NotAdmittedError when it requires another secret or does not prove its own, UnavailableError when no master of
        it answers, IncompatibleError when another service answers, or one without the identity of a cluster.
        """
        return self._contacted(quorum, "")

    def _contacted(self, quorum: str, instance_id: str) -> PeerIdentity:
        system, rest = split_quorum(quorum)
        if system != BUILT_IN:
            return refuse_self(self._identify(system, rest, may_prepare=False), self._own_instance_id)
        return self._contact(rest, instance_id)

    def _contact(self, quorum: str, instance_id: str = "", *, is_new: bool = False) -> PeerIdentity:
        """``instance_id``: that of the peer, if it is defined. ``is_new``: no connection is used that may have proved a
        secret which is gone.
        """
        problems, refusal = list[str](), None
        for master in self._finder.addresses(quorum, CONTACT_TIMEOUT_MS, instance_id):
            pool = self._pool.of_instance(master.instance_id) if master.instance_id else self._pool
            if is_new:
                pool.disconnect(master.address)
            try:
                leader = pool.master(master.address, CONTACT_TIMEOUT_MS).leader()
                hello = pool.peer_hello(leader)
            except TransientError as error:
                problems.append(error.message)
                continue
            except PermanentError as error:  # the process may have the address of a master that moved
                refuse_own_refusal(error, master.address, self._own_instance_id)
                refusal = refusal or error
                continue
            if hello.role != "master":
                raise IncompatibleError(f"{leader} is a {hello.role}, not a master: name the masters of the cluster")
            refuse_strange(leader, hello)
            return refuse_self(PeerIdentity(hello.instance_id, hello.cluster_name, leader), self._own_instance_id)
        if refusal is not None:
            raise refusal
        raise UnavailableError(f"no master of {normal_quorum(quorum)} answers: {'; '.join(problems)}")

    def contact_as(self, alias: str, quorum: str, instance_id: str) -> PeerIdentity:
        """:meth:`contact`; raises RefusedError when another instance than the defined one answers (rule R23)."""
        found = self._contacted(quorum, instance_id)
        if found.instance_id != instance_id:
            raise RefusedError(
                f"cluster {alias} was defined as instance {instance_id}, and {found.instance_id} ({found.name}) "
                f"answers at {quorum}: disable replication to it, then deletecluster and definecluster"
            )
        return found

    def resolve_table(self, alias: str, peer: PeerIdentity, name: str) -> str:
        """The id of a table there. Raises NotFoundError with the next step, TransientError."""
        if peer.system != BUILT_IN:
            with foreign_errors(peer.system):
                return self._systems.installed(peer.system).resolve_table(peer_of(alias, peer), name)
        try:
            table_id = self._leader(peer).resolve_table(name)
        except NotFoundError as error:
            raise NotFoundError(
                f"cluster {alias} has no table {name}: create it there, or name another with --remote-table"
            ) from error
        if TABLE_ID.fullmatch(table_id) is None:
            raise IncompatibleError(f"cluster {alias} says that its table {name} has the id {table_id[:80]!r}")
        return table_id

    def tell_done(self, alias: str, quorum: str, instance_id: str, streams: Sequence[StreamKey]) -> None:
        """Rule R20: these streams are over and will never be sent again. Raises TransientError, RefusedError."""
        peer = self.contact_as(alias, quorum, instance_id)
        if peer.system != BUILT_IN:
            with foreign_errors(peer.system):
                self._systems.installed(peer.system).stream_done(peer_of(alias, peer), streams)
        else:
            self._leader(peer).stream_done(streams)

    def root_standings(
        self, alias: str, quorum: str, instance_id: str, route: Sequence[str], questions: Sequence[RootQuestion]
    ) -> Sequence[RootStanding]:
        """Rule R22: the standing of these logs at the end of a route that begins there. Raises TransientError, and
        PermanentError when the cluster can't be asked.
        """
        peer = self.contact_as(alias, quorum, instance_id)
        return self._leader(peer).root_standings(route, questions)

    def roots_over(
        self, alias: str, quorum: str, instance_id: str, route: Sequence[str], logs: Sequence[RootLog]
    ) -> None:
        """Rule R22: nothing of these logs is under way anywhere. Raises as above."""
        peer = self.contact_as(alias, quorum, instance_id)
        self._leader(peer).roots_over(route, logs)

    def check_in(self, alias: str, quorum: str, instance_id: str, known: int, number: int) -> int:
        """The number that this cluster left there last; leaves another one. Raises TransientError, and PermanentError
        when the cluster can't be asked.
        """
        peer = self.contact_as(alias, quorum, instance_id)
        return self._leader(peer).check_in(known, number)

    def _leader(self, peer: PeerIdentity) -> Master:
        """Calls of the peer's leading master; no other instance answers them, even if its address changes owner."""
        return self._pool.of_instance(peer.instance_id).master(peer.leader, CONTACT_TIMEOUT_MS)

    def _identify(self, system: str, quorum: str, *, may_prepare: bool) -> PeerIdentity:
        try:
            installed = self._systems.installed(system)
        except NotFoundError as error:
            raise InvalidInputError(f"cluster {system}://{quorum}: {error.message}") from error
        with foreign_errors(system):
            found = installed.prepare(quorum) if may_prepare else installed.identify(quorum)
        if not found.instance_id:
            raise IncompatibleError(f"replica system {system} gives the peer at {quorum} no instance id")
        return PeerIdentity(found.instance_id, found.name, "", system, quorum)


def peer_of(alias: str, peer: PeerIdentity) -> Peer:
    """The peer as an argument of its replica system."""
    return Peer(alias, peer.quorum, peer.instance_id)


@contextmanager
def foreign_errors(system: str) -> Iterator[None]:
    """Run code of another package: any exception of it becomes an error of this project, and ends no process."""
    try:
        yield
    except BookkeeperError:
        raise
    except Exception as error:
        raise PermanentError(
            f"replica system {system} failed in an unforeseen way: {type(error).__name__}: {error}"
        ) from error


def refuse_strange(address: str, hello: Hello) -> None:
    """Raise IncompatibleError when a master names an instance or a cluster that no cluster can be."""
    for found in (hello.instance_id, hello.cluster_name):
        if re.match(NAME_PATTERN, found) is None:
            raise IncompatibleError(f"the master at {address} says that it is {found[:80]!r}: no cluster can be that")


def refuse_self(found: PeerIdentity, own_instance_id: str) -> PeerIdentity:
    """Rule R23: instance ids identify clusters; this cluster is no peer of itself, under any name."""
    if found.instance_id == own_instance_id:
        where = found.leader or found.quorum
        raise RefusedError(f"{where} is a master of this cluster itself ({found.name}): name another cluster")
    return found


def refuse_own_refusal(error: PermanentError, address: str, own_instance_id: str) -> None:
    """The same error when this cluster's own master did not admit this cluster as a peer."""
    if error.details.get("instance_id") == own_instance_id:
        raise RefusedError(f"{address} is a master of this cluster itself: name another cluster") from error


def explain_unreachable(alias: str, error: BookkeeperError) -> UnavailableError:
    """The error of a request that needs a peer without an answer."""
    return UnavailableError(f"cluster {alias} can't be asked ({error.message}); nothing was changed, try again")
