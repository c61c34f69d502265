"""Sessions, leadership and the configuration tree of one cluster (see
``bookkeeper.coordination.coordination_protocol``).

Every call is one step. A session is first lost for its owner and then dead for others, as the lease and its margin
promise (``bookkeeper.coordination.lease`` has its own tests); it renews itself as long as nobody says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bookkeeper.coordination.coordination_protocol import Candidacy, Leader, SessionInfo, Versioned, refuse_alive
from bookkeeper.errors import ConflictError, LeaseLostError, UnavailableError
from bookkeeper.model import HostIdentity
from tests.support.simulation.kernel import Kernel, Process


@dataclass(eq=False)
class SimSession:
    """A lease. ``lapsed``: its owner may not act on it any more. ``dead``: others know."""

    session_id: str
    kind: str
    address: str
    process: Process
    host: HostIdentity | None = None
    lapsed: bool = False
    dead: bool = False

    def is_valid(self) -> bool:
        return not self.lapsed

    def check(self) -> None:
        if self.lapsed:
            raise LeaseLostError(f"session {self.session_id} is over")

    def close(self) -> None:
        self.expire()

    def expire(self) -> None:
        """Over for its owner, and others see it."""
        self.lapsed = self.dead = True


@dataclass(eq=False)
class SimCoordination:
    """One cluster's coordination store. ``unreadable``: the tree can't be read now."""

    kernel: Kernel
    name: str
    sessions_by_id: dict[str, SimSession] = field(default_factory=dict)
    unreadable: bool = False
    epoch: int = 0
    _leader: Leader | None = None
    _tree: dict[str, Versioned] = field(default_factory=dict)
    _generation: int = 1
    _numbers: int = 0
    risen: dict[str, int] = field(default_factory=dict)
    _standing: dict[tuple[str, str], Candidacy] = field(default_factory=dict)
    """Session and election to the candidacy."""
    _places: int = 0
    _standing_version: int = 0

    # ---- sessions

    def open_session(self, kind: str, address: str, host: HostIdentity | None = None) -> SimSession:
        self.kernel.pause(f"open a {kind} session")
        self._numbers += 1
        name = f"{kind}-{self.name}-{self._numbers:04d}"
        session = SimSession(name, kind, address, self.kernel.process_of_current(), host)
        self.sessions_by_id[session.session_id] = session
        session.process.on_death.append(session.expire)
        return session

    def sessions(self, *kinds: str) -> list[SessionInfo]:
        self.kernel.pause(f"list {' and '.join(kinds)} sessions")
        return [
            SessionInfo(session.session_id, session.kind, session.address, not session.dead, session.host)
            for session in self.sessions_by_id.values()
            if session.kind in kinds
        ]

    def census(self) -> tuple[int, int]:
        """For the world: how many sessions there are, and how many of them are dead."""
        return len(self.sessions_by_id), sum(session.dead for session in self.sessions_by_id.values())

    def has_session_news(self) -> bool:
        return True

    def confirm(self, session: SimSession) -> None:
        self.kernel.pause(f"confirm session {session.session_id}")
        session.check()

    def forget_session(self, session_id: str) -> None:
        self.kernel.pause(f"forget session {session_id}")
        self.sessions_by_id.pop(session_id, None)

    # ---- leadership

    def try_lead(self, session: SimSession) -> Leader | None:
        self.kernel.pause("try to lead")
        session.check()
        if self._live_leader() is None:
            self.epoch += 1
            self._leader = Leader(session.session_id, session.address, self.epoch)
            self.kernel.note(f"{session.process.name} leads {self.name}, epoch {self.epoch}")
        return self._leader if self._leader and self._leader.session_id == session.session_id else None

    def leader(self) -> Leader | None:
        self.kernel.pause("ask who leads")
        return self._live_leader()

    def _live_leader(self) -> Leader | None:
        holder = None if self._leader is None else self.sessions_by_id.get(self._leader.session_id)
        return self._leader if holder is not None and not holder.dead else None

    def raise_epoch(self, session: SimSession, above: int) -> Leader:
        self.kernel.pause(f"raise the epoch above {above}")
        leader = self._live_leader()
        if leader is None or leader.session_id != session.session_id:
            raise LeaseLostError(f"session {session.session_id} does not lead")
        self.epoch = max(self.epoch, above) + 1
        self._leader = Leader(session.session_id, session.address, self.epoch)
        return self._leader

    # ---- elections

    def campaign(self, session: SimSession, candidacies: Mapping[str, bytes]) -> None:
        self.kernel.pause("stand in elections")
        session.check()
        before = {key: one for key, one in self._standing.items() if key[0] == session.session_id}
        after = {}
        for election, value in sorted(candidacies.items()):
            known = before.get((session.session_id, election))
            self._places += known is None
            place = self._places if known is None else known.order
            after[session.session_id, election] = Candidacy(session.session_id, place, value)
        if before != after:
            self._standing_version += 1
            self._standing = {key: one for key, one in self._standing.items() if key not in before} | after

    def candidates(self) -> dict[str, list[Candidacy]]:
        self.kernel.pause("read who stands in elections")
        found: dict[str, list[Candidacy]] = {}
        for (session_id, election), one in sorted(self._standing.items(), key=lambda item: item[1].order):
            if session_id in self.sessions_by_id and not self.sessions_by_id[session_id].dead:
                found.setdefault(election, []).append(one)
        return found

    def candidates_version(self) -> int:
        self.kernel.pause("read the version of the elections")
        dead = [key for key in self._standing if key[0] not in self.sessions_by_id or self.sessions_by_id[key[0]].dead]
        for key in dead:
            del self._standing[key]
        self._standing_version += bool(dead)
        return self._standing_version

    # ---- the tree

    def get(self, path: str) -> Versioned | None:
        self._pause(f"read {path}")
        return self._tree.get(path)

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        self._pause(f"write {path}")
        found = self._tree.get(path)
        version = 0 if found is None else found.version
        if expected_version is not None and expected_version != version:
            raise ConflictError(f"{path} has version {version}")
        self._tree[path] = Versioned(value, version + 1)
        self._generation += 1
        return version + 1

    def delete(self, path: str, expected_version: int | None = None) -> None:
        self._pause(f"remove {path}")
        found = self._tree.get(path)
        if found is None:
            return
        if expected_version is not None and expected_version != found.version:
            raise ConflictError(f"{path} has version {found.version}")
        del self._tree[path]
        self._generation += 1

    def put_while_idle(self, values: Mapping[str, bytes]) -> None:
        self._pause("write several values")
        refuse_alive(
            SessionInfo(one.session_id, one.kind, one.address, not one.dead) for one in self.sessions_by_id.values()
        )
        for path, value in values.items():
            self._tree[path] = Versioned(value, self._tree[path].version + 1 if path in self._tree else 1)
        self._generation += 1

    def children(self, prefix: str) -> dict[str, Versioned]:
        self._pause(f"list {prefix}")
        return {path: self._tree[path] for path in sorted(self._tree) if path.startswith(prefix)}

    def tree(self) -> tuple[int, dict[str, Versioned]]:
        """In several steps: the tree may change between them, and is read again then."""
        while True:
            generation, values = self.generation(), self.children("/")
            if self.generation() == generation:
                return generation, values

    def generation(self) -> int:
        self._pause("read the generation")
        return self._generation

    def settled_generation(self) -> int:
        return self.generation()

    # ---- numbers

    def number(self, name: str) -> int:
        self._pause(f"read the number {name}")
        return self.risen.get(name, 0)

    def raise_number(self, name: str, least: int) -> None:
        self._pause(f"raise the number {name} to {least}")
        self.risen[name] = max(least, self.risen.get(name, 0))

    def publish_masters(self, instance_id: str) -> None:
        """Clusters of a simulation name each other by the addresses of masters."""

    def close(self) -> None:
        """Nothing to let go of."""

    def _pause(self, label: str) -> None:
        self.kernel.pause(label)
        if self.unreadable and self.kernel.current is not None:
            raise UnavailableError("the configuration can't be read")

    # ---- for the world

    def of(self, _process: Process) -> SimCoordination:
        """The store as a process sees it: all see the same."""
        return self

    def draw(self, _seed: int) -> None:
        """Each call does what it says."""

    def calm(self) -> None:
        """No more faults."""
        self.unreadable = False

    def end_overdue(self) -> None:
        """A schedule ends a process itself."""

    def outlast(self, _to_ns: int) -> None:
        """Sessions do not end by the clock."""

    def is_counted_on(self, session: SimSession) -> bool:
        """Whether its process may act on a session."""
        return session.is_valid()

    def is_dead(self, session_id: str) -> bool:
        """Whether others know that a session is over."""
        session = self.sessions_by_id.get(session_id)
        return session is None or session.dead

    def live_leader(self) -> Leader | None:
        """The leading session now."""
        return self._live_leader()

    @property
    def current_generation(self) -> int:
        """See :meth:`generation`."""
        return self._generation

    def wipe(self) -> None:
        """The store is lost and made again: counters start anew (rule R8). Sessions and tree are put back."""
        self.epoch = 0
        self._leader = None
