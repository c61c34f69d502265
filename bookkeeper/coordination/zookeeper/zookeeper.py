"""Coordination in ZooKeeper: hosts on several machines share one root of an ensemble.

Everything is in persistent nodes, and each change is a transaction that names the versions it rests on. So nothing
depends on the time-outs of ZooKeeper's own sessions, and a change that arrives late changes nothing. The tree is cached
and follows the list of changes. Rules: R8, R14, R15.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.coordination_protocol import (
    Candidacy,
    Leader,
    Session,
    SessionInfo,
    Versioned,
    refuse_alive,
)
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.lease import digest_of
from bookkeeper.coordination.seen_store import StoreAge
from bookkeeper.coordination.zookeeper import layout
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.ensemble import (
    ANY,
    Change,
    Check,
    Create,
    Ensemble,
    Node,
    NotAsExpectedError,
    Remove,
    UnknownOutcomeError,
    Write,
    call_limit_ms,
)
from bookkeeper.coordination.zookeeper.layout import Place, SessionNode, TreeChange
from bookkeeper.coordination.zookeeper.lives import Lives
from bookkeeper.coordination.zookeeper.masters_node import content_of
from bookkeeper.coordination.zookeeper.zookeeper_session import ZooKeeperSession
from bookkeeper.errors import (
    ConflictError,
    CorruptionError,
    ExistsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import HostIdentity

LOG = logging.getLogger(__name__)

TRIES = 100
"""Tries of a change that others came before; each of them lost to one that succeeded."""

CALLS = 3
"""Calls without an answer for whose time a change is tried."""

READ_NODES_MAX = 500
"""Most nodes that one call reads: a call has a fixed time, and a tree may be of any size."""


def random_suffix() -> str:
    """Unique also after the root was restored from a backup: a bare serial would come again."""
    return secrets.token_hex(8)


class Tree(Struct, frozen=True):
    """The configuration tree at one generation, and the newest changes; generation -1 = nothing was read."""

    values: Mapping[str, Versioned]
    changes: list[TreeChange]
    generation: int


def make_root(access: Access, clock: Clock, call_ms: int) -> str:
    """Make the nodes of a new cluster, and return the id of the store. Raises ExistsError when the root is there,
    NotFoundError when the node above it is not, RefusedError, UnavailableError.
    """
    ensemble, store_id = Ensemble(access, clock, call_ms), secrets.token_hex(16)
    try:
        parts = [Create(ensemble.at(part)) for part in layout.PARTS]
        ensemble.commit(Create(access.url.root, store_id.encode()), *parts)
    except NotAsExpectedError as error:
        if error.is_missing:
            above = access.url.root.rpartition("/")[0]
            raise NotFoundError(
                f"{access.url}: ZooKeeper has no node {above}; make it, or choose another root"
            ) from error
        raise ExistsError(f"{access.url} is there already: choose another root") from error
    finally:
        ensemble.close()
    return store_id


def remove_root(access: Access, clock: Clock, call_ms: int, store_id: str) -> None:
    """Remove the nodes that :func:`make_root` has just made, and nothing else. Raises UnavailableError."""
    ensemble = Ensemble(access, clock, call_ms)
    try:
        (root,) = ensemble.read(access.url.root)
        if root is not None and root.content == store_id.encode():
            parts = [Remove(ensemble.at(part), 0) for part in layout.PARTS]
            ensemble.commit(*parts, Remove(access.url.root, 0))
    except NotAsExpectedError as error:
        raise UnavailableError(f"{access.url} is used already and stays") from error
    finally:
        ensemble.close()


class ZooKeeperCoordination:
    """See :class:`bookkeeper.coordination.coordination_protocol.Coordination`."""

    def __init__(
        self,
        access: Access,
        settings: CoordinationSettings,
        leases: HostLeases,
        clock: Clock | None = None,
        *,
        suffix: Callable[[], str] = random_suffix,
    ) -> None:
        """Raises NotFoundError when there is no such root, RefusedError when it is not that of the settings' store id
        or the user may not open it, UnavailableError.
        """
        self._url = access.url
        self._settings = settings
        self._leases = leases
        self._clock = clock or SystemClock()
        self._suffix = suffix
        self._zk = Ensemble(access, self._clock, call_limit_ms(settings))
        self._lives = Lives(settings.session_lease_ms, settings.session_margin_ms, settings.session_renew_ms)
        self._lives_lock = threading.Lock()
        self._kinds: dict[str, SessionNode] = {}
        self._own: list[ZooKeeperSession] = []
        self._own_lock = threading.Lock()
        self._led: Leader | None = None
        """The leader at the last look, if it lived then."""
        self._tree = Tree({}, [], -1)
        self._tree_lock = threading.Lock()
        try:
            self._refuse_other_root()
        except BaseException:
            self._zk.close()
            raise

    def _refuse_other_root(self) -> None:
        (root,) = self._zk.read(self._url.root)
        if root is None:
            raise NotFoundError(
                f"{self._url} does not exist: restore it, or correct coordination.url; only bookkeeper init makes one"
            )
        if root.content != self._settings.store_id.encode():
            raise RefusedError(
                f"{self._url} is the root of another cluster (store {root.content.decode(errors='replace')!r}, and the "
                f"settings have {self._settings.store_id!r}): correct coordination.url, or restore the root of this one"
            )

    # ---- sessions

    def open_session(self, kind: str, address: str, host: HostIdentity | None = None) -> Session:
        """See the protocol."""
        if not (kind.isascii() and kind.isalnum()):
            raise InvalidInputError(f"a session's kind consists of letters and digits, not {kind!r}")
        content = layout.encode(SessionNode(kind, address, digest_of(self._leases.token), host))
        for _ in self._tries():
            serial = self._node(layout.SERIAL)
            session_id = f"{kind}-{serial.version + 1}-{self._suffix()}"
            made_ns = self._clock.boot_ns()
            alive = self._zk.at(layout.ALIVE, session_id)
            lease = self._leases.make(session_id, made_ns)
            try:
                self._zk.commit(
                    Write(self._zk.at(layout.SERIAL), b"", serial.version),
                    Create(self._zk.at(layout.SESSIONS, session_id), content),
                    Create(alive),
                )
            except NotAsExpectedError:
                lease.remove()
                continue
            except BaseException:
                lease.file.close()  # the supervisor ends the session, if it is there, and removes the file
                raise
            session = ZooKeeperSession(
                session_id, alive, self._zk, self._clock, self._settings, made_ns, self._end, lease
            )
            session.start()
            with self._own_lock:
                self._own.append(session)
            return session
        raise self._busy("sessions")

    def sessions(self, *kinds: str) -> list[SessionInfo]:
        """See the protocol."""
        return self._sessions(lambda name: name.partition("-")[0] in kinds)

    def _sessions(self, is_wanted: Callable[[str], bool]) -> list[SessionInfo]:
        _, (listed, alive) = self._zk.watched(lists=self._session_lists())
        with self._lives_lock:
            self._lives.keep(alive.names)
        ids = list(filter(is_wanted, listed.names))
        return [info for info in self._judge(ids, frozenset(alive.names)) if info is not None]

    def has_session_news(self) -> bool:
        """See the protocol."""
        with self._lives_lock:
            is_any_over = self._lives.is_any_over(self._clock.boot_ns())
        return is_any_over or self._zk.has_news(lists=self._session_lists())

    def _session_lists(self) -> tuple[str, str]:
        return self._zk.at(layout.SESSIONS), self._zk.at(layout.ALIVE)

    def confirm(self, session: Session) -> None:
        """See the protocol."""
        try:
            self._zk.commit(self._check_alive(session))
        except NotAsExpectedError as error:
            raise over(session) from error

    def forget_session(self, session_id: str) -> None:
        """See the protocol; raises RefusedError while the session is alive."""
        (info,) = self._judge([session_id])
        if info is None:
            return
        if info.alive:
            raise RefusedError(f"session {session_id} is alive and can't be forgotten; end its process first")
        for name in self._parts_of(session_id):
            self._remove(self._candidates_node(name))
        self._remove(self._zk.at(layout.SESSIONS, session_id))

    def end_session(self, session_id: str, token: str) -> None:
        """End the session of a process that is known to be gone, if ``token`` is that of the process; else log that
        nothing was ended. Raises UnavailableError.
        """
        record = self._zk.at(layout.SESSIONS, session_id)
        (node,) = self._zk.read(record)
        if node is None:
            return
        if layout.session_of(node.content).token_digest != digest_of(token):
            LOG.warning(
                "session %s is not ended: the lease file that names it on this host lacks the token of its process, so "
                "another program wrote that file; the session ends with its process, or its lease",
                session_id,
            )
            return
        self._end(session_id, Check(record, node.version))

    def _end(self, session_id: str, *conditions: Check) -> None:
        self._remove(self._zk.at(layout.ALIVE, session_id), *conditions)
        self._led = None  # the news of it may come later

    def _remove(self, path: str, *conditions: Check) -> None:
        try:
            self._zk.commit(*conditions, Remove(path, ANY))
        except NotAsExpectedError:
            return

    def _judge(self, session_ids: list[str], alive: frozenset[str] | None = None) -> list[SessionInfo | None]:
        """The current states of sessions; a death is in the store before this returns it. ``alive``: the names of the
        nodes that are there now, when that is known; then those are looked at that are due.
        """
        self._read_kinds(session_ids)
        now_ns = self._note_order()
        with self._lives_lock:
            wanted = session_ids if alive is None else self._lives.due(sorted(alive.intersection(session_ids)), now_ns)
        nodes = (self._zk.at(layout.ALIVE, session_id) for session_id in wanted)
        found = self._zk.written(*nodes, is_synced=alive is not None)
        gone, now_ns = set() if alive is None else set(session_ids) - alive, self._note_order()
        with self._lives_lock:
            for session_id, written in zip(wanted, found, strict=True):
                if written is None:
                    gone.add(session_id)
                else:
                    self._lives.note(session_id, written.version, written.zxid, now_ns)
        return [self._judged(session_id, session_id in gone) for session_id in session_ids]

    def _note_order(self) -> int:
        """Note that ZooKeeper has committed the newest transaction that an answer named. Returns now (boot clock)."""
        zxid, now_ns = self._zk.newest_zxid, self._clock.boot_ns()  # in this order
        with self._lives_lock:
            self._lives.note_order(zxid, now_ns)
        return now_ns

    def _judged(self, session_id: str, is_gone: bool) -> SessionInfo | None:
        node = self._kinds.get(session_id)
        if node is None:
            return None
        silent_ms = 0
        if not is_gone:
            with self._lives_lock:
                version = self._lives.over_at(session_id, self._clock.boot_ns())
                silent_ms = self._lives.silent_ms(session_id)
            is_gone = version is not None and self._has_removed(session_id, version)
        return SessionInfo(session_id, node.kind, node.address, not is_gone, node.host, 0 if is_gone else silent_ms)

    def _has_removed(self, session_id: str, version: int) -> bool:
        """Whether the session is dead for good: its node is gone, or goes at the version that this observer saw."""
        try:
            self._zk.commit(Remove(self._zk.at(layout.ALIVE, session_id), version))
        except NotAsExpectedError as error:
            return error.is_missing
        return True

    def _read_kinds(self, session_ids: list[str]) -> None:
        """Read what sessions are, of those that are not known; one that was forgotten is not known any more."""
        unknown = [session_id for session_id in session_ids if session_id not in self._kinds]
        nodes = self._zk.read(*(self._zk.at(layout.SESSIONS, session_id) for session_id in unknown))
        for session_id, node in zip(unknown, nodes, strict=True):
            if node is not None:
                self._kinds[session_id] = layout.session_of(node.content)

    # ---- leadership

    def try_lead(self, session: Session) -> Leader | None:
        """See the protocol."""
        session.check()
        if self._is_led_by_other(session):
            return None
        row, version, is_alive = self._leader_row()
        if row is not None and is_alive:
            return row if row.session_id == session.session_id else None
        address = self._address_of(session)
        leader = Leader(session.session_id, address, 1 if row is None else row.epoch + 1)
        return leader if self._write_leader(session, leader, version) else None

    def leader(self) -> Leader | None:
        """See the protocol."""
        row, _, is_alive = self._leader_row()
        return row if is_alive else None

    def _is_led_by_other(self, session: Session) -> bool:
        """Whether another live session led at the last look, and nothing has changed since, so that a candidate asks no
        server until it has to look at the leader's lease.
        """
        row, now_ns = self._led, self._note_order()
        if row is None or row.session_id == session.session_id:
            return False
        if self._zk.has_news((self._zk.at(layout.LEADER),), (self._zk.at(layout.ALIVE),)):
            return False
        with self._lives_lock:
            return not self._lives.due((row.session_id,), now_ns)

    def raise_epoch(self, session: Session, above: int) -> Leader:
        """See the protocol."""
        session.check()
        row, version, _ = self._leader_row()
        if row is None or row.session_id != session.session_id:
            raise LeaseLostError(f"session {session.session_id} does not lead any more")
        leader = Leader(row.session_id, row.address, max(row.epoch, above + 1))
        if not self._write_leader(session, leader, version):
            raise LeaseLostError(f"session {session.session_id} does not lead any more")
        return leader

    def _leader_row(self) -> tuple[Leader | None, int, bool]:
        """The last leader, the version of its node, and whether it lives."""
        (node,), (alive,) = self._zk.watched((self._zk.at(layout.LEADER),), (self._zk.at(layout.ALIVE),))
        if node is None:
            raise self._gone(layout.LEADER)
        row = layout.leader_of(node.content)
        with self._lives_lock:
            self._lives.keep(alive.names)
        (info,) = (None,) if row is None else self._judge([row.session_id], frozenset(alive.names))
        self._led = row if info is not None and info.alive else None
        return row, node.version, self._led is not None

    def _write_leader(self, session: Session, leader: Leader, version: int) -> bool:
        """False when another one came first. Raises LeaseLostError."""
        alive = self._check_alive(session)
        try:
            self._zk.commit(alive, Write(self._zk.at(layout.LEADER), layout.encode(leader), version))
        except NotAsExpectedError as error:
            if error.index == 0:
                raise over(session) from error
            return False
        except UnknownOutcomeError:
            return self._leader_row()[:2] == (leader, version + 1)
        return True

    def _address_of(self, session: Session) -> str:
        (info,) = self._judge([session.session_id])
        if info is None or not info.alive:
            raise over(session)
        return info.address

    def _check_alive(self, session: Session) -> Check:
        return Check(self._zk.at(layout.ALIVE, session.session_id))

    # ---- elections

    def campaign(self, session: Session, candidacies: Mapping[str, bytes]) -> None:
        """See the protocol."""
        session.check()
        for _ in self._tries():
            names = self._parts_of(session.session_id)
            places, *found = self._zk.read(self._zk.at(layout.PLACES), *map(self._candidates_node, names))
            if places is None:
                raise self._gone(layout.PLACES)
            nodes = {name: node for name, node in zip(names, found, strict=True) if node is not None}
            before = {name: layout.places_of(node.content) for name, node in nodes.items()}
            wanted, highest = layout.parted(session.session_id, before, candidacies, int(places.content or b"0"))
            changed = {name: layout.encode(all_) for name, all_ in wanted.items() if all_ != before.get(name)}
            try:
                self._write_candidacies(session, nodes, changed, highest, places.version)
            except NotAsExpectedError as error:
                if error.index == 0:
                    raise over(session) from error
            except UnknownOutcomeError as error:
                LOG.info("whether the candidacies were written is looked for: %s", error)
            else:
                return
        raise self._busy("elections")

    def _write_candidacies(
        self, session: Session, nodes: Mapping[str, Node], changed: Mapping[str, bytes], highest: int, version: int
    ) -> None:
        """Write the changed nodes of a session, in one step if a server takes them; ``version``: of the places."""
        alive, counted = self._check_alive(session), self._zk.at(layout.PLACES)
        if not changed:
            self._zk.commit(alive)
            return
        for group in layout.grouped(changed):
            writes = [
                Write(self._candidates_node(name), content, nodes[name].version)
                if name in nodes
                else Create(self._candidates_node(name), content)
                for name, content in group.items()
            ]
            _, version, *_ = self._zk.commit(alive, Write(counted, b"%d" % highest, version), *writes)

    def _parts_of(self, session_id: str) -> list[str]:
        names = self._zk.names(self._zk.at(layout.CANDIDATES))
        return [name for name in names if layout.session_of_part(name) == session_id]

    def _candidates_node(self, name: str) -> str:
        return self._zk.at(layout.CANDIDATES, name)

    def candidates(self) -> dict[str, list[Candidacy]]:
        """See the protocol."""
        for _ in self._tries():
            before = self.candidates_version()
            names = self._zk.names(self._zk.at(layout.CANDIDATES))
            nodes = self._read_all([*map(self._candidates_node, names)])
            sessions = sorted(set(map(layout.session_of_part, names)))
            alive = {info.session_id for info in self._judge(sessions) if info is not None and info.alive}
            if before == self.candidates_version():
                found = zip(map(layout.session_of_part, names), nodes, strict=True)
                return in_order([(one, layout.places_of(node.content)) for one, node in found if node and one in alive])
        raise self._busy("elections")

    def candidates_version(self) -> int:
        """See the protocol."""
        (places,), (alive,) = self._zk.watched((self._zk.at(layout.PLACES),), (self._zk.at(layout.ALIVE),))
        if places is None:
            raise self._gone(layout.PLACES)
        return places.version + alive.changes

    # ---- configuration tree

    def get(self, path: str) -> Versioned | None:
        """See the protocol."""
        return self._current_tree().values.get(layout.checked_path(path))

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """See the protocol."""
        layout.checked_size(value, f"the value of {path}")

        def change(node: str, version: int) -> Change:
            return Write(node, value, version - 1) if version else Create(node, value)

        return self._change_tree(path, expected_version, change)

    def delete(self, path: str, expected_version: int | None = None) -> None:
        """See the protocol."""

        def change(node: str, version: int) -> Change | None:
            return Remove(node, version - 1) if version else None

        self._change_tree(path, expected_version, change)

    def put_while_idle(self, values: Mapping[str, bytes]) -> None:
        """See the protocol: each new session writes the serial."""
        token = self._suffix()
        for path, value in values.items():
            layout.checked_size(value, f"the value of {layout.checked_path(path)}")
        for _ in self._tries():
            serial, tree = self._node(layout.SERIAL), self._current_tree()
            if any(known.token == token for known in tree.changes):
                return
            refuse_alive(self._sessions(lambda _: True))
            content = layout.with_change(tree.changes, TreeChange(tree.generation + 1, layout.SEVERAL, token))
            writes = [
                Write(self._tree_node(path), value, tree.values[path].version - 1)
                if path in tree.values
                else Create(self._tree_node(path), value)
                for path, value in values.items()
            ]
            try:
                self._zk.commit(
                    Check(self._zk.at(layout.SERIAL), serial.version),
                    Write(self._zk.at(layout.GENERATION), content, tree.generation),
                    *writes,
                )
            except (NotAsExpectedError, UnknownOutcomeError) as error:
                LOG.info("whether the values were written is looked for: %s", error)
            else:
                return
        raise self._busy("the tree")

    def children(self, prefix: str) -> dict[str, Versioned]:
        """See the protocol."""
        layout.checked_path(prefix)
        values = self._current_tree().values
        return {path: values[path] for path in sorted(values) if path.startswith(prefix)}

    def tree(self) -> tuple[int, dict[str, Versioned]]:
        """See the protocol."""
        tree = self._current_tree()
        return tree.generation, {path: tree.values[path] for path in sorted(tree.values)}

    def generation(self) -> int:
        """See the protocol."""
        return self._generation_node().version

    def settled_generation(self) -> int:
        """See the protocol. A server that was the leader answers a sync also while others have elected another one; a
        write needs most of the servers.
        """
        try:
            self._zk.commit(*(self._checks_of_own() or [Check(self._zk.at(layout.GENERATION))]))
        except NotAsExpectedError as error:
            raise LeaseLostError("the session of this process counts as dead; it must stop") from error
        return self.generation()

    def _generation_node(self) -> Node:
        """Raises UnavailableError when the tree is older than what this process has read."""
        known = self._tree.generation
        (node,), _ = self._zk.watched((self._zk.at(layout.GENERATION),))
        if node is None:
            raise self._gone(layout.GENERATION)
        if node.version < known:
            raise UnavailableError(
                f"{self._url} went back from generation {known} to {node.version}: it was restored while this process "
                "runs; put the newest copy back, or stop the cluster and restore its books and directories, too"
            )
        return node

    def _current_tree(self) -> Tree:
        """The tree at one moment behind the call: the cached one, with what has changed since."""
        with self._tree_lock:
            for _ in self._tries():
                node = self._generation_node()
                if node.version == self._tree.generation:
                    return self._tree
                changes = layout.changes_of(node.content)
                self._tree = self._read_changed(changes, node.version) or self._tree
        raise self._busy("the tree")

    def _read_changed(self, changes: list[TreeChange], generation: int) -> Tree | None:
        """The tree of a generation; None when it has changed again."""
        missed = layout.missed(changes, self._tree.generation, generation) if self._tree.generation >= 0 else None
        values = {} if missed is None else dict(self._tree.values)
        if missed is None:
            missed = {layout.unquoted(name) for name in self._zk.names(self._zk.at(layout.TREE))}
        paths = sorted(missed)
        *nodes, last = self._read_all([*map(self._tree_node, paths), self._zk.at(layout.GENERATION)])
        if last is None or last.version != generation:
            return None
        for path, node in zip(paths, nodes, strict=True):
            values.pop(path, None)
            if node is not None:
                values[path] = Versioned(node.content, node.version + 1)
        return Tree(values, changes, generation)

    def _read_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Any number of nodes; each is read after the one before, as by one call."""
        parts = (paths[first : first + READ_NODES_MAX] for first in range(0, len(paths), READ_NODES_MAX))
        return [node for part in parts for node in self._zk.read(*part)]

    def _change_tree(self, path: str, expected_version: int | None, change: Callable[[str, int], Change | None]) -> int:
        """Make one change of the tree; returns the new version. The token tells whether a change came through whose
        answer was lost.
        """
        node, token = self._tree_node(layout.checked_path(path)), self._suffix()
        for _ in self._tries():
            tree = self._current_tree()
            version = tree.values[path].version if path in tree.values else 0
            if any(known.token == token for known in tree.changes):
                return version
            wanted = change(node, version)
            if wanted is None:
                return 0
            if expected_version not in (None, version):
                raise ConflictError(f"{path} has version {version}, expected {expected_version}; read it again")
            content = layout.with_change(tree.changes, TreeChange(tree.generation + 1, path, token))
            counted = Write(self._zk.at(layout.GENERATION), content, tree.generation)
            try:
                self._zk.commit(*self._checks_of_own(), counted, wanted)
            except NotAsExpectedError as error:
                if error.is_missing and error.index == 0:
                    raise LeaseLostError("the session of this process counts as dead; it must stop") from error
            except UnknownOutcomeError as error:
                LOG.info("whether %s was written is looked for: %s", path, error)
            else:
                return version + 1
        raise self._busy("the tree")

    def _checks_of_own(self) -> list[Check]:
        """A process whose session is over changes nothing (R14)."""
        with self._own_lock:
            return [self._check_alive(session) for session in self._own[:1]]

    def _tree_node(self, path: str) -> str:
        return self._zk.at(layout.TREE, layout.quoted(path))

    def age(self) -> StoreAge:
        """How far the store is. Raises UnavailableError."""
        (generation, serial), _ = self._zk.watched((self._zk.at(layout.GENERATION), self._zk.at(layout.SERIAL)))
        if generation is None or serial is None:
            raise self._gone(layout.GENERATION if generation is None else layout.SERIAL)
        return StoreAge(self._settings.store_id, generation.version, serial.version)

    # ---- numbers

    def number(self, name: str) -> int:
        """See the protocol."""
        (node,), _ = self._zk.watched((self._number_node(name),))
        return 0 if node is None else int(node.content)

    def raise_number(self, name: str, least: int) -> None:
        """See the protocol."""
        path = self._number_node(name)
        for _ in self._tries():
            (node,) = self._zk.read(path)
            if node is not None and int(node.content) >= least:
                return
            content = b"%d" % least
            try:
                self._zk.commit(Create(path, content) if node is None else Write(path, content, node.version))
            except (NotAsExpectedError, UnknownOutcomeError):
                continue
            return
        raise self._busy(f"the number {name}")

    def _number_node(self, name: str) -> str:
        return self._zk.at(layout.NUMBERS, layout.quoted(name))

    # ---- masters, for those outside

    def publish_masters(self, instance_id: str) -> None:
        """See the protocol."""
        path = self._zk.at(layout.MASTERS)
        for _ in self._tries():
            (node,) = self._zk.read(path)  # before the sessions: one that is not seen there writes behind this
            leader = self.leader()
            alive = [info.address for info in self.sessions("master") if info.alive]
            content = content_of(instance_id, alive, None if leader is None else leader.address)
            if node is not None and node.content == content:
                return
            change = Create(path, content, is_public=True) if node is None else Write(path, content, node.version)
            try:
                self._zk.commit(*self._checks_of_own(), change)
            except NotAsExpectedError as error:
                if error.is_missing and error.index == 0:
                    raise LeaseLostError("the session of this process counts as dead; it must stop") from error
            except UnknownOutcomeError as error:
                LOG.info("whether the masters' addresses were written is looked for: %s", error)
            else:
                return
        raise self._busy("the masters' addresses")

    # ---- all

    def close(self) -> None:
        """See the protocol."""
        with self._own_lock:
            own, self._own = self._own, []
        for session in own:
            session.close()
        self._zk.close()

    def _node(self, part: str) -> Node:
        (found,) = self._zk.read(self._zk.at(part))
        if found is None:
            raise self._gone(part)
        return found

    def _gone(self, part: str) -> CorruptionError:
        return CorruptionError(f"{self._url} has no node {part} any more: restore the coordination store")

    def _busy(self, what: str) -> UnavailableError:
        return UnavailableError(f"{self._url}: each change of {what} came too late, or got no answer")

    def _tries(self) -> Iterator[None]:
        """Tries of a change, for a limited time."""
        end_ns = self._clock.boot_ns() + CALLS * call_limit_ms(self._settings) * 1_000_000
        for _ in range(TRIES):
            yield
            if self._clock.boot_ns() > end_ns:
                return


def over(session: Session) -> LeaseLostError:
    """The session counts as dead."""
    return LeaseLostError(f"session {session.session_id} counts as dead; this process must stop")


def in_order(found: Iterable[tuple[str, Mapping[str, Place]]]) -> dict[str, list[Candidacy]]:
    """The candidacies by election, from those by session."""
    elections = dict[str, list[Candidacy]]()
    for session_id, places in found:
        for election, place in places.items():
            elections.setdefault(election, []).append(Candidacy(session_id, place.order, place.value))
    return {election: sorted(all_, key=lambda one: one.order) for election, all_ in elections.items()}
