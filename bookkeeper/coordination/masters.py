"""Where the masters of a cluster answer: a quorum names them, or a root in ZooKeeper that knows them.

A quorum is ``host:port[,host:port]``, the addresses of masters, or ``zk://host:port[,host:port]/root``: ZooKeeper
servers, and the node below which that cluster has its coordination store. ``zk://`` may be missing. The addresses of a
root are read when they are first needed, and again when none of them answers. So a cluster whose masters moved is
followed, and ZooKeeper is asked nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.zookeeper.layout import MASTERS
from bookkeeper.coordination.zookeeper.masters_node import PublicMasters, masters_of
from bookkeeper.coordination.zookeeper.url import SCHEME, ZooKeeperUrl, parse_url
from bookkeeper.errors import InvalidInputError, OtherInstanceError, UnavailableError
from bookkeeper.rpc.address import Address, format_quorum, parse_quorum

READ_LIMIT_MS = 5_000
"""Longest wait for a ZooKeeper of another cluster; an operator waits for it."""

READ_AGAIN_MS = 1_000
"""Least time between two reads of a root: when a cluster is away, each of its streams asks for it."""


class MasterAddress(Struct, frozen=True):
    """The address of a process that should be a master, of this instance; "" = the quorum does not say which."""

    address: str
    instance_id: str = ""


def parse_masters(quorum: str) -> tuple[Address, ...] | ZooKeeperUrl:
    """The addresses in a quorum, or the root that it names. Raises InvalidInputError."""
    if "/" in quorum:
        return parse_url(quorum if quorum.startswith(SCHEME) else SCHEME + quorum)
    return parse_quorum(quorum)


def normal_quorum(quorum: str) -> str:
    """The normal spelling of a quorum; the address ``SYSTEM://ADDRESS`` of another replica system stays as it is.
    Raises InvalidInputError.
    """
    text = quorum.strip()
    if "://" in text and not text.startswith(SCHEME):
        return text
    where = parse_masters(text)
    return str(where) if isinstance(where, ZooKeeperUrl) else format_quorum(where)


def read_masters(url: ZooKeeperUrl, limit_ms: int) -> PublicMasters:
    """Ask ZooKeeper. It imports a client of ZooKeeper. Raises UnavailableError with the next step."""
    from bookkeeper.coordination.zookeeper.ensemble import read_public

    content = read_public(url, MASTERS, limit_ms)
    try:
        return masters_of(content)
    except InvalidInputError as error:
        raise UnavailableError(
            f"{url} has something else in its node {MASTERS!r} than addresses of masters ({error.message}): correct "
            "the root, or restart the masters of that cluster"
        ) from error


class LastRead(Struct, frozen=True):
    """What the last read of a root found, at this time of the boot clock. ``number`` 0 = nothing was read;
    ``problem``: why that read found nothing; the addresses are those of an earlier one then.
    """

    number: int = 0
    read_ns: int = 0
    instance_id: str = ""
    addresses: tuple[MasterAddress, ...] = ()
    problem: str = ""


class Root(Struct):
    """A root in ZooKeeper. Threads that need a new read take turns."""

    last: LastRead = LastRead()
    turn: threading.Lock = field(default_factory=threading.Lock)


class MasterFinder:
    """Finds the masters of other clusters, or of a client's cluster, and remembers those that ZooKeeper named.
    Thread-safe.
    """

    def __init__(self, clock: Clock, read: Callable[[ZooKeeperUrl, int], PublicMasters] = read_masters) -> None:
        self._clock = clock
        self._read = read
        self._roots: dict[ZooKeeperUrl, Root] = {}
        self._lock = threading.Lock()

    def addresses(self, quorum: str, limit_ms: int, instance_id: str = "") -> Iterator[MasterAddress]:
        """The addresses to ask, one after the other, until one of them answers: those of the last read, and then, when
        the caller goes on, the others of a new one. ``instance_id``: the instance that is wanted; "" = any. A list of
        addresses does not say whose they are.

        A read waits ``limit_ms`` for a connection and as long for an answer, at most :data:`READ_LIMIT_MS` each. Raises
        InvalidInputError for a malformed quorum, UnavailableError when ZooKeeper does not say where masters are, and
        OtherInstanceError when it names those of another instance.
        """
        where = parse_masters(quorum)
        if not isinstance(where, ZooKeeperUrl):
            yield from (MasterAddress(str(address)) for address in where)
            return
        with self._lock:
            root = self._roots.setdefault(where, Root())
        last = root.last
        if instance_id in ("", last.instance_id):
            yield from last.addresses
        newer = self._read_again(where, root, last, min(limit_ms, READ_LIMIT_MS))
        if newer.problem:
            raise UnavailableError(newer.problem)
        if instance_id not in ("", newer.instance_id):
            raise OtherInstanceError(
                f"{where} is the root of instance {newer.instance_id}, and the caller wants {instance_id}: correct the "
                "root; if the peer was created again, delete the cluster and define it again"
            )
        for master in newer.addresses:
            if master not in last.addresses:
                yield master

    def _read_again(self, where: ZooKeeperUrl, root: Root, last: LastRead, limit_ms: int) -> LastRead:
        """What is known behind ``last``: by another thread's read, or this one's, unless the last one is young."""
        if not root.turn.acquire(timeout=limit_ms / 1000):
            raise UnavailableError(f"{where} does not answer yet where the masters of that cluster are")
        try:
            age_ns = self._clock.boot_ns() - root.last.read_ns
            is_young = root.last.number > 0 and age_ns < READ_AGAIN_MS * 1_000_000
            if root.last.number == last.number and not is_young:
                root.last = self._read_now(where, last, limit_ms)
            return root.last
        finally:
            root.turn.release()

    def _read_now(self, where: ZooKeeperUrl, last: LastRead, limit_ms: int) -> LastRead:
        try:
            found = self._read(where, limit_ms)
        except UnavailableError as error:
            now_ns = self._clock.boot_ns()
            return LastRead(last.number + 1, now_ns, last.instance_id, last.addresses, error.message)
        addresses = tuple(MasterAddress(address, found.instance_id) for address in found.masters)
        return LastRead(last.number + 1, self._clock.boot_ns(), found.instance_id, addresses)
