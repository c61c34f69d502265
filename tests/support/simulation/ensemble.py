"""The servers of a simulated ZooKeeper, and how each process reaches them.

Arrives: calls of ``bookkeeper.coordination.zookeeper.ensemble.Ensemble``, for which :class:`SimEnsemble` stands; the
product's store above it is the real one. Leaves: what the process's server shows. A server may lag behind the others,
but never goes back for one process, and shows at least the last transaction of that process. A transaction may get no
answer: then it was committed, or is not, or is a moment later. ``tests/contract/test_ensemble.py`` compares it with
the real one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from bookkeeper.coordination.zookeeper.ensemble import (
    ANY,
    Change,
    Create,
    Names,
    Node,
    NotAsExpectedError,
    Remove,
    UnknownOutcomeError,
    Write,
    Written,
)
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl
from bookkeeper.errors import UnavailableError
from tests.support.simulation.kernel import Kernel, KilledError, Process

LATE_MAX_NS = 1_000_000_000
"""How late a transaction comes at most whose caller is gone: the server then knows that the connection has ended."""

BEHIND_MAX = 30
"""Transactions by which the server of a new process is behind at most."""

TORN_ODDS = 0.2
"""How often others may change something between two of several reads."""


@dataclass(eq=False)
class Quorum:
    """What most servers have: each node at each transaction. ``away``: they do not answer anybody."""

    kernel: Kernel
    away: bool = False
    zxid: int = 0
    now: dict[str, Node] = field(default_factory=dict)
    on_change: Callable[[Change], None] = lambda _change: None
    """Called after each change of a transaction."""
    loses: float = 0.0
    """How often a transaction gets no answer."""
    arrives: float = 0.5
    """How often one that gets none is committed at once all the same."""
    late: float = 0.0
    """How often a transaction without an answer comes later, if it did not come at once."""
    new_lag: float = 0.0
    """How much the servers of new processes lag: see :attr:`Link.lag`."""
    dice: Random = field(default_factory=lambda: Random(0))
    _history: dict[str, list[tuple[int, Node | None]]] = field(default_factory=dict)
    _names: dict[str, dict[str, None]] = field(default_factory=dict)
    _lists: dict[str, list[int]] = field(default_factory=dict)
    """For each node the transactions that made or removed a node in it."""

    def commit(self, changes: Sequence[Change]) -> list[int]:
        """Make all changes, or none; returns the versions afterwards. Raises NotAsExpectedError."""
        self.zxid += 1  # also for one that fails: the servers agree on that, too
        made: dict[str, Node | None] = {}
        versions = [self._made(index, change, made) for index, change in enumerate(changes)]
        for path, node in made.items():
            if (node is None) != (path not in self.now):
                self._lists.setdefault(parent_of(path), []).append(self.zxid)
            self._names.setdefault(parent_of(path), {})[path.rpartition("/")[2]] = None
            self._history.setdefault(path, []).append((self.zxid, node))
            if node is None:
                self.now.pop(path, None)
            else:
                self.now[path] = node
        for change in changes:
            self.on_change(change)
        return versions

    def _made(self, index: int, change: Change, made: dict[str, Node | None]) -> int:
        path = change.path
        node = made[path] if path in made else self.now.get(path)
        if isinstance(change, Create):
            if node is not None:
                raise NotAsExpectedError(index, is_missing=False)
            parent = parent_of(path)
            if parent and parent not in self.now and made.get(parent) is None:
                raise NotAsExpectedError(index, is_missing=True)
            made[path] = Node(change.content, 0)
            return 0
        if node is None:
            raise NotAsExpectedError(index, is_missing=True)
        if change.version not in (ANY, node.version):
            raise NotAsExpectedError(index, is_missing=False)
        if isinstance(change, Write):
            made[path] = Node(change.content, node.version + 1)
            return node.version + 1
        if isinstance(change, Remove):
            made[path] = None
        return 0

    def node(self, path: str, at: int) -> Node | None:
        """A node behind a transaction."""
        if at >= self.zxid:
            return self.now.get(path)
        return next((node for zxid, node in reversed(self._history.get(path, ())) if zxid <= at), None)

    def names(self, path: str, at: int) -> Names:
        """The names in a node behind a transaction."""
        found = sorted(name for name in self._names.get(path, ()) if self.node(f"{path}/{name}", at) is not None)
        return Names(found, bisect_right(self._lists.get(path, []), at))

    def changed(self, path: str, at: int) -> int:
        """The last transaction up to this one that changed a node; 0 = none."""
        return next((zxid for zxid, _ in reversed(self._history.get(path, ())) if zxid <= at), 0)

    def listed(self, path: str, at: int) -> int:
        """The last transaction up to this one that made or removed a node in a node; 0 = none."""
        return next((zxid for zxid in reversed(self._lists.get(path, ())) if zxid <= at), 0)


@dataclass(eq=False)
class Link:
    """The way of a process to its server. ``requests``, ``answers``: whether they arrive now. ``lag``: how often the
    server does not catch up with the others. ``at``: the last transaction that it has shown.
    """

    process: Process | None
    requests: bool = True
    answers: bool = True
    lag: float = 0.0
    at: int = 0
    connected: bool = True
    connection: int = 0
    renewed_behind_ns: int = 0
    """:attr:`Process.behind_ns` when the last renewal of its lease was answered."""

    @property
    def is_whole(self) -> bool:
        """Whether requests and answers arrive."""
        return self.requests and self.answers

    def join(self) -> None:
        """Requests and answers arrive again, and the server catches up."""
        self.requests, self.answers, self.lag = True, True, 0.0


@dataclass(frozen=True)
class SimAccess:
    """Stands for ``bookkeeper.coordination.zookeeper.access.Access``."""

    url: ZooKeeperUrl
    quorum: Quorum
    link: Link


class SimEnsemble:
    """Stands for ``bookkeeper.coordination.zookeeper.ensemble.Ensemble``. Each exchange with a server is a step."""

    def __init__(self, access: SimAccess, clock: object, call_ms: int) -> None:
        del clock
        self._url, self._quorum, self._link = access.url, access.quorum, access.link
        self._kernel, self._call_ns = access.quorum.kernel, call_ms * 1_000_000
        self._nodes: dict[str, tuple[int, int]] = {}
        """The connection on which a node was watched, and the transaction that it showed."""
        self._lists: dict[str, tuple[int, int]] = {}

    def at(self, *parts: str) -> str:
        return "/".join((self._url.root, *parts))

    def read(self, *paths: str) -> list[Node | None]:
        return [self._quorum.node(path, at) for path, at in self._asked("read", paths)]

    @property
    def newest_zxid(self) -> int:
        return self._link.at

    def written(self, *paths: str, is_synced: bool = False) -> list[Written | None]:
        del is_synced  # what was shown never goes back
        quorum, asked = self._quorum, self._asked("look at", paths)
        nodes = [(quorum.node(path, at), quorum.changed(path, at)) for path, at in asked]
        return [None if node is None else Written(node.version, zxid) for node, zxid in nodes]

    def _asked(self, verb: str, paths: Sequence[str]) -> list[tuple[str, int]]:
        """The paths, each with the last transaction that the server has when it reads it."""
        if not paths:
            return []
        self._ask(f"{verb} {self._short(paths)}")
        found = [(paths[0], self._link.at)]
        for path in paths[1:]:
            if self._kernel.current is not None and self._quorum.dice.random() < TORN_ODDS:
                self._ask(f"{verb} {self._short([path])}")
            found.append((path, self._link.at))
        return found

    def watched(self, nodes: Sequence[str] = (), lists: Sequence[str] = ()) -> tuple[list[Node | None], list[Names]]:
        asked = self._asked("watch", [*nodes, *lists])
        places = [(path, (self._link.connection, at)) for path, at in asked]
        self._nodes.update(places[: len(nodes)])
        self._lists.update(places[len(nodes) :])
        return (
            [self._quorum.node(path, at) for path, at in asked[: len(nodes)]],
            [self._quorum.names(path, at) for path, at in asked[len(nodes) :]],
        )

    def has_news(self, nodes: Sequence[str] = (), lists: Sequence[str] = ()) -> bool:
        if self._link.is_whole and not self._quorum.away:
            self._catch_up()
        quorum, at = self._quorum, self._link.at
        looks = [(self._nodes.get(path), quorum.changed(path, at)) for path in nodes]
        looks += [(self._lists.get(path), quorum.listed(path, at)) for path in lists]
        return any(seen is None or seen[0] != self._link.connection or changed > seen[1] for seen, changed in looks)

    def names(self, path: str) -> list[str]:
        self._ask(f"list {self._short([path])}")
        return self._quorum.names(path, self._link.at).names

    def commit(self, *changes: Change) -> list[int]:
        label = "commit " + ", ".join(f"{type(one).__name__} {self._short([one.path])}" for one in changes)
        try:
            self._kernel.pause(label)
        except KilledError:
            self._come_later(label, changes)
            raise
        if self._kernel.current is not None:
            self._connect()
            self._may_lose(label, changes)
        try:
            versions = self._quorum.commit(changes)
        finally:
            self._link.at = self._quorum.zxid
        if self._link.process is not None and any(is_lease(change) for change in changes):
            self._link.renewed_behind_ns = self._link.process.behind_ns
        return versions

    def close(self) -> None:
        """Nothing to let go of."""

    # ---- the way to the server

    def _ask(self, label: str) -> None:
        """An exchange that changes nothing. Raises UnavailableError."""
        self._kernel.pause(label)
        if self._kernel.current is not None:
            self._connect()
            if not self._is_reached():
                self._get_no_answer()
                raise UnavailableError("ZooKeeper does not answer")
        self._catch_up()

    def _connect(self) -> None:
        """Raise UnavailableError while there is no connection; nothing was sent then."""
        if self._link.connected:
            return
        if not self._kernel.wait("a connection to ZooKeeper", self._is_reached, self._call_ns):
            raise UnavailableError("no server of ZooKeeper answers")
        self._link.connected = True

    def _is_reached(self) -> bool:
        return self._link.is_whole and not self._quorum.away

    def _catch_up(self) -> None:
        """The server learns of what others have committed, some of it, or nothing."""
        link, newest = self._link, self._quorum.zxid
        if self._kernel.current is None or not link.lag:
            link.at = newest
        elif self._quorum.dice.random() >= link.lag:
            link.at = self._quorum.dice.randint(link.at, newest)

    def _may_lose(self, label: str, changes: Sequence[Change]) -> None:
        """Raise UnknownOutcomeError when this transaction gets no answer."""
        quorum, link = self._quorum, self._link
        is_lost = quorum.loses > 0 and quorum.dice.random() < quorum.loses
        if self._is_reached() and not is_lost:
            return
        arrives = link.requests and not quorum.away and (not is_lost or quorum.dice.random() < quorum.arrives)
        if arrives:
            commit_late(quorum, changes)
        self._kernel.note(f"no answer to: {label}; it is {'committed' if arrives else 'not committed yet'}")
        if not arrives:
            self._come_later(label, changes)
        self._get_no_answer()
        raise UnknownOutcomeError("ZooKeeper did not answer a change")

    def _get_no_answer(self) -> None:
        """The time of a call passes, and the connection counts as lost."""
        self._link.connected, self._link.connection = False, self._link.connection + 1
        self._kernel.wait("an answer of ZooKeeper", lambda: False, self._call_ns)

    def _come_later(self, label: str, changes: Sequence[Change]) -> None:
        """The transaction is on its way to the servers, perhaps."""
        kernel, quorum = self._kernel, self._quorum
        if not quorum.late or quorum.dice.random() >= quorum.late:
            return
        delay_ns = quorum.dice.randrange(LATE_MAX_NS)

        def arrive() -> None:
            kernel.wait(f"arrive: {label}", lambda: False, delay_ns)
            commit_late(quorum, changes)

        kernel.spawn(Process("the way to ZooKeeper", ""), "late", arrive)

    def _short(self, paths: Sequence[str]) -> str:
        return " and ".join(path.removeprefix(f"{self._url.root}/") for path in paths)


def commit_late(quorum: Quorum, changes: Sequence[Change]) -> None:
    """A transaction that nobody waits for comes, or changes nothing."""
    try:
        quorum.commit(changes)
    except NotAsExpectedError:
        quorum.kernel.note("it changes nothing")


def is_lease(change: Change) -> bool:
    """Whether a process begins or renews its lease by this."""
    return isinstance(change, Create | Write) and parent_of(change.path).endswith("/alive")


def parent_of(path: str) -> str:
    """The path of the node above."""
    return path.rpartition("/")[0]
