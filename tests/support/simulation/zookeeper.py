"""A cluster's coordination store in a simulated ZooKeeper: the product's own store above simulated servers.

Arrives: a quorum (``ensemble``). Leaves: a store for each process with a server, a lease and a clock of its own; and
for the world what most servers have now. Two rules are laws here. R1: one session leads in an epoch. R15: a session
counts as dead only when its owner does not count on it any more, unless the owner's machine was paused and its clock
stood still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Leader, Session
from bookkeeper.coordination.zookeeper import layout
from bookkeeper.coordination.zookeeper.ensemble import ANY, Change, Create, Remove, Write
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl
from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination
from bookkeeper.coordination.zookeeper.zookeeper_session import ZooKeeperSession
from bookkeeper.model import HostIdentity
from tests.support.simulation.ensemble import BEHIND_MAX, Link, Quorum, SimAccess, commit_late, parent_of
from tests.support.simulation.kernel import Kernel, Process
from tests.support.simulation.primitives import SimClock

ODDS = (0.0, 0.01, 0.05)
"""How often a transaction gets no answer."""

REAPED_ODDS = 0.7
"""How often a supervisor ends the session of a process that was killed; else the others find its lease over."""

POWER_FAILURE = "power failure"

leader_of = lru_cache(maxsize=64)(layout.leader_of)
"""The world asks for it after each step."""

SUPERVISED = ("kill -9", POWER_FAILURE)
"""Ends of processes that a schedule makes, and follows up itself."""


class NoFile:
    """Stands for the file of a lease: a supervisor of a simulation needs none."""

    def is_there(self) -> bool:
        return True

    def write(self, before_ns: int) -> None:
        """See ``bookkeeper.coordination.lease_file.LeaseFile``."""

    def close(self) -> None:
        """The same."""


class NoLease:
    """Stands for ``bookkeeper.coordination.host_leases.OwnLease``."""

    file = NoFile()

    def remove(self) -> None:
        """Nothing is there."""


class NoLeases:
    """Stands for ``bookkeeper.coordination.host_leases.HostLeases``."""

    token = "that of each process"

    def make(self, _session_id: str, _before_ns: int) -> NoLease:
        return NoLease()


@dataclass(eq=False)
class SeenSession:
    """A session as the world sees it. ``lapsed``: it is over for its owner or for others. ``dead``: others know."""

    store: SimZooKeeper
    session: Session
    kind: str
    address: str
    process: Process
    host: HostIdentity | None
    alive: str
    """The node that is there while it lives."""

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def dead(self) -> bool:
        return self.alive not in self.store.quorum.now

    @property
    def lapsed(self) -> bool:
        return self.dead or not self.session.is_valid()

    def expire(self) -> None:
        """Its process is cut off until others are sure that it is dead."""
        self.store.link.requests = self.store.link.answers = False


@dataclass(eq=False)
class Sessions:
    """What the world knows of a cluster's sessions."""

    by_id: dict[str, SeenSession] = field(default_factory=dict)
    opened: list[SeenSession] = field(default_factory=list)
    """All, those that were forgotten, too."""
    links: dict[Process, Link] = field(default_factory=dict)
    led: dict[int, str] = field(default_factory=dict)
    """The session that led in each epoch."""
    serials: int = 0
    counted: tuple[int, int, int] = (0, 0, 0)
    """The last transaction at which they were counted, how many there were, and how many of them were dead."""
    leading: tuple[int, Leader | None] = (0, None)
    """The last transaction at which the world looked who leads, and who did."""


class SimZooKeeper(ZooKeeperCoordination):
    """The store of one process, or of the world, which sees what most servers have."""

    def __init__(
        self,
        quorum: Quorum,
        settings: Settings,
        sessions: Sessions,
        process: Process | None = None,
    ) -> None:
        self.quorum, self.seen, self._of = quorum, sessions, settings
        self.link = Link(process)
        if process is not None:
            self.link.lag = quorum.new_lag
            behind = quorum.dice.randrange(BEHIND_MAX) if quorum.new_lag else 0
            self.link.at = max(0, quorum.zxid - behind)
            sessions.links[process] = self.link
        self._process = process
        url = ZooKeeperUrl("zk:2181", f"/{settings.instance.name}")
        super().__init__(
            SimAccess(url, quorum, self.link),  # type: ignore[arg-type]
            settings.coordination,
            NoLeases(),  # type: ignore[arg-type]
            SimClock(process=process),
            suffix=self._next_suffix,
        )

    def _next_suffix(self) -> str:
        self.seen.serials += 1
        return f"{self._of.instance.name}{self.seen.serials:04d}"

    def open_session(self, kind: str, address: str, host: HostIdentity | None = None) -> Session:
        session = super().open_session(kind, address, host)
        assert self._process is not None, "the world opens no sessions"
        alive = self._zk.at(layout.ALIVE, session.session_id)
        seen = SeenSession(self, session, kind, address, self._process, host, alive)
        self.seen.by_id[session.session_id] = seen
        self.seen.opened.append(seen)
        self._process.on_death.append(lambda: self._reap(alive))
        return session

    def _reap(self, alive: str) -> None:
        """The process has died; its supervisor ends the session at once, or nobody does."""
        assert self._process is not None
        if self._process.reason != POWER_FAILURE and self.quorum.dice.random() < REAPED_ODDS:
            commit_late(self.quorum, [Remove(alive, ANY)])

    # ---- for the world

    @property
    def kernel(self) -> Kernel:
        """Where it runs."""
        return self.quorum.kernel

    @property
    def sessions_by_id(self) -> dict[str, SeenSession]:
        """Sessions that were not forgotten."""
        return self.seen.by_id

    def census(self) -> tuple[int, int]:
        """How many sessions there are, and how many of them are dead."""
        zxid, count, dead = self.seen.counted
        if (zxid, count) != (self.quorum.zxid, len(self.seen.by_id)):
            zxid, count = self.quorum.zxid, len(self.seen.by_id)
            dead = sum(session.dead for session in self.seen.by_id.values())
            self.seen.counted = zxid, count, dead
        return count, dead

    def of(self, process: Process) -> SimZooKeeper:
        """The store of a new process."""
        return SimZooKeeper(self.quorum, self._of, self.seen, process)

    def draw(self, seed: int) -> None:
        """Choose how often transactions get no answer, and how much servers of new processes lag, in a schedule."""
        dice = self.quorum.dice = Random(f"zookeeper {seed} {self._of.instance.name}")
        self.quorum.loses, self.quorum.late = dice.choice(ODDS), dice.choice((0.0, 0.5))
        self.quorum.new_lag = dice.choice((0.0, 0.5, 1.0))

    def calm(self) -> None:
        """No more faults."""
        self.quorum.away = False
        self.quorum.loses = self.quorum.late = self.quorum.new_lag = 0.0
        for link in self.seen.links.values():
            link.join()

    def end_overdue(self) -> None:
        """The supervisor of each machine ends a process that is there after its lease and the margin, by the clock of
        the machine (``bookkeeper.standalone.fencing``): its threads may wait for each other.
        """
        margin_ns = self._of.coordination.session_margin_ms * 1_000_000
        for seen in self.seen.opened:
            process, own = seen.process, seen.session
            assert isinstance(own, ZooKeeperSession)
            if process.dead or process.suspended:
                continue
            if process.boot_ns(self.kernel.now_ns) > own._valid_until_ns + margin_ns:
                self.kernel.kill(process, "its supervisor ends it")

    def outlast(self, to_ns: int) -> None:
        """Time is about to pass at once up to then, in which each live process renews its lease."""
        for seen in self.seen.by_id.values():
            if seen.lapsed:
                continue
            own = seen.session
            assert isinstance(own, ZooKeeperSession)
            own._valid_until_ns += to_ns - self.kernel.now_ns
            (own._version,) = self.quorum.commit([Write(seen.alive, b"", ANY)])

    @property
    def unreadable(self) -> bool:
        """Whether the quorum is away."""
        return self.quorum.away

    @unreadable.setter
    def unreadable(self, is_away: bool) -> None:
        self.quorum.away = is_away

    def is_counted_on(self, session: Session) -> bool:
        """See :func:`counts_on`."""
        seen = self.seen.by_id.get(session.session_id)
        return seen is not None and counts_on(seen)

    def is_dead(self, session_id: str) -> bool:
        """Whether a session is over for all others."""
        return self._zk.at(layout.ALIVE, session_id) not in self.quorum.now

    def live_leader(self) -> Leader | None:
        """The leading session now."""
        zxid, leader = self.seen.leading
        if zxid != self.quorum.zxid:
            leader = leader_of(self.quorum.now[self._zk.at(layout.LEADER)].content)
            leader = None if leader is None or self.is_dead(leader.session_id) else leader
            self.seen.leading = self.quorum.zxid, leader
        return leader

    @property
    def current_generation(self) -> int:
        """The generation now."""
        return self.quorum.now[self._zk.at(layout.GENERATION)].version

    @property
    def risen(self) -> dict[str, int]:
        """The numbers now."""
        above = self._zk.at(layout.NUMBERS)
        found = {path: node for path, node in self.quorum.now.items() if parent_of(path) == above}
        return {layout.unquoted(path.rpartition("/")[2]): int(node.content) for path, node in found.items()}


def in_zookeeper(kernel: Kernel, settings: Settings, break_law: Callable[[str], None]) -> SimZooKeeper:
    """The store of a new cluster. ``break_law`` is told when a session is dead that its owner counts on."""
    quorum, sessions = Quorum(kernel), Sessions()
    root = f"/{settings.instance.name}"
    quorum.commit([Create(root), *(Create(f"{root}/{part}") for part in layout.PARTS)])
    quorum.on_change = lambda change: judge(change, sessions, break_law)
    return SimZooKeeper(quorum, settings, sessions)


def judge(change: Change, sessions: Sessions, break_law: Callable[[str], None]) -> None:
    """R1, when a master leads; R15, when a session ends for the others. One that is forgotten is known no more."""
    if isinstance(change, Write) and change.path.endswith(f"/{layout.LEADER}"):
        leader = layout.leader_of(change.content)
        assert leader is not None
        before = sessions.led.setdefault(leader.epoch, leader.session_id)
        if before != leader.session_id:
            break_law(f"R1: sessions {before} and {leader.session_id} lead in one epoch, {leader.epoch}")
    if not isinstance(change, Remove):
        return
    above, _, session_id = change.path.rpartition("/")
    seen = sessions.by_id.get(session_id)
    if seen is None:
        return
    if above.endswith(f"/{layout.SESSIONS}"):
        del sessions.by_id[session_id]
    if above.endswith(f"/{layout.ALIVE}") and counts_on(seen):
        break_law(f"R15: session {session_id} counts as dead, and {seen.process.name} counts on its lease")


def counts_on(seen: SeenSession) -> bool:
    """Whether a process counts on its lease, and its clock has not stood still since the last renewal."""
    process = seen.process
    stood = process.stood_ns is not None or process.behind_ns > seen.store.link.renewed_behind_ns
    return not process.dead and not stood and seen.session.is_valid()
