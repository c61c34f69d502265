"""One cluster of a simulated world: its stores, its processes, and what can be seen of it from outside.

Arrives: what a schedule wants to happen to it. Leaves: processes of the product, started, killed, believed dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import create_table_record, define_cluster, next_count, set_table_state
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster, read_config
from bookkeeper.errors import BookkeeperError
from bookkeeper.master.operations.table_lifecycle import new_tablet_rows
from bookkeeper.master.process import MasterProcess
from bookkeeper.metadata import keys, values
from bookkeeper.model import Extent, LocalityGroup, TargetKey
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import COPY_SUFFIX
from bookkeeper.tserver.process import TServerProcess
from tests.support.simulation.cells import SimTable
from tests.support.simulation.disk import lose_power
from tests.support.simulation.host_disk import HostDisks
from tests.support.simulation.hosts import Host
from tests.support.simulation.kernel import Process
from tests.support.simulation.primitives import SimClock
from tests.support.simulation.replay import SimReplay
from tests.support.simulation.replicas import ReplicaLaws
from tests.support.simulation.tablets import Entry, SimTabletData
from tests.support.simulation.tree import SimCoordination
from tests.support.simulation.zookeeper import SimZooKeeper
from tests.support.volumes import name_at

if TYPE_CHECKING:
    from tests.support.simulation.world import World


Store = SimCoordination | SimZooKeeper
"""The coordination store of a cluster."""

PASSING = ("repl", "done", "recv", "fate", "quar")
"""Families of cells that are there for a while only."""


@dataclass(eq=False)
class Node:
    """A process and what runs in it."""

    process: Process
    kind: str
    part: Any = None
    host: Host | None = None
    """The host that it was started on; None is the cluster's own directory."""

    @property
    def name(self) -> str:
        return self.process.name


@dataclass(eq=False)
class Cluster:
    """One cluster: its stores and its processes."""

    world: World
    name: str
    settings: Settings
    table: SimTable
    coordination: Store
    masters: list[Node] = field(default_factory=list)
    tservers: list[Node] = field(default_factory=list)
    replays: list[Node] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    """Those with a directory of their own; a cluster that runs in its own directory has none."""
    _started: int = 0
    _config: ClusterConfig | None = None
    _looked: tuple[int, int] = 0, 0
    """Tservers, and their steps, when :meth:`served_twice` looked last."""

    def __post_init__(self) -> None:
        self.replicas = ReplicaLaws(self)

    @property
    def volume(self) -> Volume:
        """Its files."""
        return open_volume(self.settings)

    @property
    def instance(self) -> str:
        """Its instance id."""
        return self.settings.instance.instance_id

    @property
    def quorum(self) -> str:
        """The addresses of its masters."""
        return ",".join(f"127.0.0.1:{self.settings.master.port + number}" for number in range(3))

    # ---- processes

    def start_tserver(self, host: Host | None = None) -> Node:
        """A new tserver process, on a host or in the cluster's own directory."""
        node = self._node("t", self.tservers)
        node.host, settings = host, self.settings if host is None else host.settings

        def boot() -> None:
            die, clock = self.world.kernel.die, SimClock(process=node.process)
            store = self.coordination.of(node.process)
            process = TServerProcess(settings, store, self.table, clock, die)  # type: ignore[arg-type]
            process.start()
            node.part = process

        self._spawn(node, "boot", boot)
        return node

    def add_host(self) -> Host:
        """One more host, which has joined the cluster; no process runs on it."""
        name = f"h{len(self.hosts) + 1}"
        joined = {"name": name, "cluster": f"../{self.name}"}
        settings = replace(
            self.settings,
            directory=self.world.directory / f"{self.name}-{name}",
            host=replace(self.settings.host, **joined),
        )
        HostDisks.beside.add(self.settings.directory.absolute())
        self.hosts.append(Host(self, name, settings))
        return self.hosts[-1]

    def start_master(self) -> Node:
        """A new master process, at the first of three ports that is free."""
        taken = {master.kind for master in self.alive(self.masters)}
        number = next(n for n in range(3) if f"m{n}." not in taken)
        node = self._node(f"m{number}.", self.masters)

        def boot() -> None:
            node.part = MasterProcess(
                self.settings,
                self.coordination.of(node.process),  # type: ignore[arg-type]
                self.table,
                SimClock(process=node.process),
                port=self.settings.master.port + number,
                rng=self.world.kernel.rng,
            )
            node.part.run(threading.Event())

        self._spawn(node, "main", boot)
        return node

    def start_missing(self, live: Callable[[Sequence[Node]], list[Node]]) -> None:
        """Start a master and a replay process unless one lives, and two tservers where no host has one. ``live`` tells
        which tservers and replay processes do.
        """
        if not self.alive(self.masters):
            self.start_master()
        if not live(self.replays):
            self.start_replay()
        while not self.hosts and len(live(self.tservers)) < 2:
            self.start_tserver()

    def start_replay(self) -> Node:
        """A new replay process."""
        node = self._node("r", self.replays)

        def boot() -> None:
            store = self.coordination.of(node.process)
            node.part = SimReplay(self.settings, store, SimClock(process=node.process))  # type: ignore[arg-type]

        self._spawn(node, "boot", boot)
        return node

    def _spawn(self, node: Node, name: str, main: Callable[[], None]) -> None:
        """The main thread of a process; an error of the project ends it, as it does with an exit code."""

        def run() -> None:
            try:
                main()
            except BookkeeperError as error:
                self.world.kernel.die(f"{error.code}: {error.message}")

        self.world.kernel.spawn(node.process, name, run)

    def _node(self, kind: str, nodes: list[Node]) -> Node:
        self._started += 1
        node = Node(Process(f"{self.name}.{kind}{self._started}", self.name), kind)
        nodes.append(node)
        return node

    def alive(self, nodes: Sequence[Node]) -> list[Node]:
        """Those that were not killed."""
        return [node for node in nodes if not node.process.dead]

    def valid(self, nodes: Sequence[Node]) -> list[Node]:
        """Those that live and whose session does, or that have none yet. One that others forgot is over, too."""
        sessions = self.coordination.sessions_by_id.values()
        known, over = {id(s.process) for s in sessions}, {id(s.process) for s in sessions if s.lapsed}
        return [
            node
            for node in self.alive(nodes)
            if id(node.process) not in over and (node.part is None or id(node.process) in known)
        ]

    def booted(self, nodes: Sequence[Node]) -> list[Node]:
        """Those of the valid ones that have begun to work."""
        return [node for node in self.valid(nodes) if node.part is not None]

    def counts(self, node: Node) -> bool:
        """Whether a process has begun to work, and its session is over neither for it nor for others."""
        part = node.part
        return part is not None and part.session.is_valid() and not self.coordination.is_dead(part.session.session_id)

    def kill(self, node: Node, power: bool = False) -> None:
        """kill -9, or a power failure of its machine: then what was not synced is lost."""
        self.world.kernel.kill(node.process, "power failure" if power else "kill -9")
        session = self.session_of(node)
        if power and session is not None:
            self.lose_power(session)

    def lose_power(self, session: str) -> None:
        """The machine that a session's logs lie on loses its power: its disk has what was synced."""
        self.world.ledger.power_lost(f"{self.name}/{session}")
        for root in self.roots():
            directory = root / "wal" / session
            lose_power(sorted([*directory.glob("*.wal"), *directory.glob(f"*{COPY_SUFFIX}")]))

    def roots(self) -> list[Path]:
        """The directories of the Volume and of the hosts' disks."""
        return [self.settings.directory, *(host.settings.replicas_dir for host in self.hosts)]

    def has(self, file: str) -> bool:
        """Whether a file is on a disk."""
        return any((root / file).exists() for root in self.roots())

    def live_sessions(self, kind: str) -> frozenset[str]:
        """The sessions of a kind that other processes count as alive."""
        found = self.coordination.sessions_by_id.values()
        return frozenset(session.session_id for session in found if session.kind == kind and not session.dead)

    def session_of(self, node: Node) -> str | None:
        """The session that a process opened."""
        for session in self.coordination.sessions_by_id.values():
            if session.process is node.process:
                return session.session_id
        return None

    def expire(self, node: Node) -> None:
        """All other processes believe that the process is dead; it may go on as a zombie."""
        for session in self.coordination.sessions_by_id.values():
            if session.process is node.process:
                session.expire()
                self.world.kernel.note(f"session {session.session_id} of {node.name} is over")

    def leader(self) -> Node | None:
        """The master that leads and knows it."""
        leader = self.coordination.live_leader()
        session = None if leader is None else self.coordination.sessions_by_id.get(leader.session_id)
        if session is None:
            return None
        for node in self.alive(self.masters):
            if node.process is session.process and node.part is not None:
                return node if node.part.leadership is not None else None
        return None

    # ---- configuration

    def config(self) -> ClusterConfig:
        """The configuration as it is."""
        if self._config is None or self._config.generation != self.coordination.current_generation:
            with self.world.kernel.aside():
                self._config = read_config(self.coordination)  # type: ignore[arg-type]
        return self._config

    def table_id(self, name: str) -> str:
        """The id of a table."""
        return self.config().table_named(name).table_id

    def create_table(
        self, name: str, table_id: str, splits: Sequence[bytes], groups: Sequence[LocalityGroup] = ()
    ) -> None:
        """Make a table that no tserver serves yet; masters give ids above this one."""
        while next_count(self.coordination, "table") < int(table_id, 36):  # type: ignore[arg-type]
            continue
        create_table_record(self.coordination, table_id, name, groups, {})  # type: ignore[arg-type]
        self.table.put(new_tablet_rows(table_id, sorted(splits)), keys.ONCE_RANK)
        set_table_state(self.coordination, table_id, "online")  # type: ignore[arg-type]

    def define(self, peer: Cluster) -> None:
        """Know another cluster by its name."""
        define_cluster(
            self.coordination,  # type: ignore[arg-type]
            PeerCluster(peer.name, peer.quorum, peer.instance, peer.name),
        )

    def targets(self) -> dict[TargetKey, str]:
        """Configured targets and the instances behind them."""
        return {
            target.key: target.peer_instance_id for table in self.config().tables.values() for target in table.targets
        }

    # ---- tablets

    def extents(self, table_id: str) -> list[Extent]:
        """The tablets of a table."""
        start, stop = keys.table_section(table_id)
        return [
            Extent(table_id, keys.parse_tablet_row(row.key)[1], values.decode_prev_row(row.cells[keys.PREV_ROW].value))
            for row in self.table.rows(table_id.encode(), ("tablet",))
            if start <= row.key < stop and keys.PREV_ROW in row.cells
        ]

    def all_extents(self) -> list[Extent]:
        """The tablets of all tables."""
        online = [table_id for table_id, table in self.config().tables.items() if table.state == "online"]
        return [extent for table_id in online for extent in self.extents(table_id)]

    def serving(self, extent: Extent) -> Any:
        """The tablet as its live, valid tserver serves it; None while no tserver does."""
        for node in self.alive(self.tservers):
            if not self.counts(node):
                continue
            tablet = node.part.parts.tablets.registry.find(extent)
            if tablet is not None and tablet.accepting:
                return tablet
        return None

    def holder(self, extent: Extent) -> Node | None:
        """The tserver that serves a tablet."""
        for node in self.alive(self.tservers):
            if self.counts(node):
                tablet = node.part.parts.tablets.registry.find(extent)
                if tablet is not None and tablet.accepting:
                    return node
        return None

    def is_served(self) -> bool:
        """Whether a tserver serves each tablet."""
        return not self.unserved()

    def served_twice(self) -> Iterator[str]:
        """Tablets that two processes serve which both count on their leases: a reader may see too little then. Nothing
        where no tserver has done a step since the last call: only its own step serves a tablet, or renews a lease.
        """
        looked, self._looked = self._looked, (len(self.tservers), sum(node.process.steps for node in self.tservers))
        if looked == self._looked:
            return
        first: dict[str, list[tuple[Extent, Node]]] = {}
        for node in self.alive(self.tservers):
            if node.part is None or not self.coordination.is_counted_on(node.part.session):
                continue
            served = [tablet.extent for tablet in node.part.parts.tablets.registry.all() if tablet.accepting]
            for extent in served:
                for other, by in first.get(extent.table_id, ()):
                    if by is not node and other.rows.part_in(extent.rows) is not None:
                        yield f"served twice: {extent} by {node.name}, and {other} by {by.name}"
            for extent in served:
                first.setdefault(extent.table_id, []).append((extent, node))

    def unserved(self) -> list[Extent]:
        """Tablets that no tserver serves."""
        return [extent for extent in self.all_extents() if self.serving(extent) is None]

    def entries(self, table_id: str) -> list[Entry]:
        """All cells of a table, from the tservers that serve it."""
        found: list[Entry] = []
        for extent in self.all_extents():
            if extent.table_id == table_id:
                tablet = self.serving(extent)
                assert tablet is not None, f"no tserver serves {extent}"
                assert isinstance(tablet.data, SimTabletData)
                found += tablet.data.entries()
        return found

    def logs(self) -> list[str]:
        """The names of the logs on disk."""
        shared = [name_at(path, self.settings.directory) for path in sorted(self.settings.wal_dir.glob("*/*.wal"))]
        return [*shared, *(log for host in self.hosts for log in host.logs())]

    def is_busy(self) -> bool:
        """Something is left to serve, to replicate, to recover from or to delete."""
        return not self.is_served() or next(self.work_left(), None) is not None

    def unrest(self) -> list[str]:
        """Outstanding things that must go before the cluster is at rest, as text."""
        later = [*map(str, self.marks()), *(f"the Volume has {name}" for name in self.replicas.unnamed_files())]
        return [*self.work_left(), *later, *(f"{e} is not served" for e in self.unserved())]

    def work_left(self) -> Iterator[str]:
        """The same without marks of files, unnamed files and tablets that are not served. The dearest look is last."""
        yield from self.books()
        yield from self.old_logs()
        yield from self.high_waters()
        yield from self.replicas.unrest()

    def marks(self) -> list[bytes]:
        """Rows of files that are gone, or go. A file that one tablet has let go of may be part of another one, which it
        was split from: that one may keep it for ever.
        """
        cells = list(self.table.names())
        named = {keys.parse_file(column.qualifier) for _, column, _ in cells if column.family == "segment"}
        needed = {keys.del_row(file) for file in named}
        return [key for key, column, _ in cells if column == keys.DEL and key not in needed]

    def old_logs(self) -> list[str]:
        """Logs that are there and written no more."""
        current = {node.part.parts.writing.path.wal_name for node in self.booted(self.tservers)}
        return [log for log in self.logs() if log not in current]

    def high_waters(self) -> list[str]:
        """The high-waters and root intervals that tablets have."""
        served = [(extent, self.serving(extent)) for extent in self.all_extents()]
        received = [(extent, tablet.received) for extent, tablet in served if tablet]
        known = [
            (extent, [*state.high_water, *state.partial_high_waters, *state.origin_intervals.applied()])
            for extent, state in received
        ]
        return [f"{extent} remembers {stream}" for extent, streams in known for stream in streams]

    def books(self) -> list[str]:
        """Cells of the books, without marks, that must go before the cluster is at rest: one line a cell."""
        tables = self.config().tables
        return [
            f"{key!r} {column.family}:{column.qualifier!r} at {cell.rank}"
            for key, column, cell in self.table.names()
            if (column.family in PASSING and column != keys.FATE_REIGN)
            or (key < keys.TABLETS_STOP and keys.parse_tablet_row(key)[0] not in tables)
            or key.startswith(keys.HOLD_PREFIX)
            or (column == keys.HOME and keys.parse_home_row(key) not in self.coordination.sessions_by_id)
        ]

    def lost_tables(self) -> list[tuple[str, str]]:
        """Tables, by name, that replicate to a table that does not exist any more, with the peer: only an operator can
        end that.
        """
        return [
            (table.name, target.key.cluster)
            for table in self.config().tables.values()
            for target in table.targets
            if target.key.remote_table_id not in self.world.clusters[target.key.cluster].config().tables
        ]
