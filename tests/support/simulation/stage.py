"""Clusters with tables, and how a number chooses one of what is there.

Arrives: a world without clusters. Leaves: west and east, started, the first table of west replicated to east; or three
of them, where what users write in west comes to east by two paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.kernel import Task
from tests.support.simulation.setting_aside import LONGEST
from tests.support.simulation.users import GOLD
from tests.support.simulation.world import World, zookeeper_store

ROWS = (b"a", b"h", b"k", b"p", b"x")
TABLES = ("t", "u")
"""Both clusters have both; t has a named locality group."""

EAST = {"tserver.value_bytes_max": LONGEST}

HELD_NS = 8_000_000_000
"""How long a range is held in the end: its file has been closed by then, and all others of it are gone."""

PROCESSES_MAX = 5
"""Processes of one kind that live at once, zombies included."""


class Stage:
    """The scene of acts and accidents. ``rows``: the rows that users write. ``both_ways``: whether they write in both
    clusters.
    """

    def __init__(self, world: World, rng: Random, rows: Sequence[bytes], both_ways: bool) -> None:
        self.world = world
        self.kernel = world.kernel
        self.rng = rng
        self.rows = rows
        self.both_ways = both_ways
        self.slow: list[int] = []
        self.repairs: dict[tuple[str, str, str], Task] = {}
        self.releasing: Task | None = None
        self.released = 0
        self.patience_ns = 0
        if self.in_zookeeper:
            world.make_store = zookeeper_store
        self._found({"replication.quarantine": rng.choice(("auto", "manual"))})
        self._join()

    in_zookeeper: bool = False
    """Whether the clusters have their coordination stores in ZooKeeper."""

    takes: Mapping[str, object] = EAST
    """Settings of east: it takes short values only."""

    more: Sequence[str] = ()
    """Deeds that happen here and nowhere else: a new one changes what every seed means."""

    frequent: Mapping[str, int] = {}
    """The least weights of some of these."""

    threads: Sequence[str] = ()
    """Further threads of tservers that may be slow, and in whose middle something may happen."""

    repeated: Sequence[str] = ()
    """Further calls that may arrive late or twice."""

    without: Sequence[str] = ()
    """Deeds and accidents that do not happen here."""

    def _found(self, overrides: Mapping[str, object]) -> None:
        """Make the clusters west, with other settings, and east."""
        self.west = self.world.add_cluster("west", overrides)
        self.east = self.world.add_cluster("east", self.takes)
        self.clusters: tuple[Cluster, ...] = (self.west, self.east)
        self.west.create_table("t", "1", [b"m"], [GOLD])
        self.west.create_table("u", "3", [])
        self.east.create_table("t", "2", [b"g", b"t"], [GOLD])
        self.east.create_table("u", "4", [b"k"])

    def _join(self) -> None:
        """Start everything, and replicate."""
        for cluster in self.clusters:
            for peer in self.peers_of(cluster):
                cluster.define(peer)
            self.world.boot(cluster, masters=2)
        self.world.enable(self.west, "t", self.east)

    def peers_of(self, cluster: Cluster) -> Sequence[Cluster]:
        """Those that a cluster may replicate to."""
        return [self.east if cluster is self.west else self.west]

    def peer_of(self, cluster: Cluster) -> Cluster:
        """One of them."""
        peers = self.peers_of(cluster)
        return peers[0] if len(peers) == 1 else self.rng.choice(peers)

    def cluster(self, rng: Random) -> Cluster:
        """One of those that there are."""
        return rng.choice(self.clusters)

    def source(self, rng: Random) -> Cluster:
        """One that users write in."""
        return self.cluster(rng) if self.both_ways else self.west

    def cluster_of(self, node: Node) -> Cluster:
        """The cluster of a process."""
        return self.world.clusters[node.process.cluster]

    def node(self, rng: Random, of: Callable[[Cluster], Sequence[Node]]) -> Node | None:
        """One process of a cluster, None when there is none."""
        nodes = of(self.cluster(rng))
        return rng.choice(nodes) if nodes else None

    def has_room(self, nodes: Sequence[Node]) -> bool:
        """One more process may be started."""
        return len(nodes) < PROCESSES_MAX

    def hosts_for(self, cluster: Cluster, table: str, rng: Random) -> list[str]:
        """The hosts to which a split moves its tablets; none in a cluster without hosts."""
        del cluster, table, rng
        return []

    def command(self, cluster: Cluster, method: str, *arguments: object) -> Task | None:
        """An operator asks the leading master, if there is one."""
        return None if cluster.leader() is None else self.world.ask(cluster, method, *arguments)

    def see_to_range(self, cluster: Cluster, method: str, choice: int) -> Task | None:
        """An operator lists the ranges with permanent errors, and does something about one of them."""
        return None if cluster.leader() is None else self.world.see_to_range(cluster, method, choice)

    def supervise(self) -> None:
        """Before each event. Here processes end by events only, which start others."""

    def release_ranges(self) -> None:
        """Quarantine the range that blocks a queue; give it up only when no other task is left for a while."""
        if self.releasing is not None and not self.releasing.done:
            return
        self.patience_ns = self.patience_ns or self.kernel.now_ns + HELD_NS
        method = "hold_range" if self.kernel.now_ns < self.patience_ns else "skip_range"
        self.released += 1
        self.releasing = self.see_to_range(self.west, method, self.released)

    def repair(self) -> None:
        """Operators end what replicates into a table that is gone, and give up what a peer refuses for good: both would
        be tried for ever.
        """
        self.release_ranges()
        for cluster in self.clusters:
            for table, peer in cluster.lost_tables():
                key = (cluster.name, table, peer)
                if key in self.repairs and not self.repairs[key].done:
                    continue
                task = self.command(cluster, "disable_replication", table, [], peer)
                if task is not None:
                    self.repairs[key] = task


class Triangle(Stage):
    """West replicates to south and to east, south to east; east may be made to replicate to west. No cluster
    refuses a value: quarantine on one path is no concern of schedules about several.
    """

    takes: Mapping[str, object] = {}

    def _join(self) -> None:
        self.south = self.world.add_cluster("south")
        self.clusters = (self.west, self.south, self.east)
        self.south.create_table("t", "5", [b"k"], [GOLD])
        self.south.create_table("u", "6", [])
        super()._join()
        self.world.enable(self.west, "t", self.south)
        self.world.enable(self.south, "t", self.east)

    def peers_of(self, cluster: Cluster) -> Sequence[Cluster]:
        """West's, south's, or east's."""
        return {"west": [self.south, self.east], "south": [self.east], "east": [self.west]}[cluster.name]


class ImportingTriangle(Triangle):
    """Operators import files, too."""

    more: Sequence[str] = ("import_files",)
