"""Clusters on hosts, whose tables have replicas on their disks: one for directed schedules, one for random ones.

Arrives: what a schedule wants of tablets and hosts. Leaves: the same in terms of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Replica
from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.hosts import Host
from tests.support.simulation.kernel import StuckError, Task
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.replicas import ReplicatedTablet, tablet_of
from tests.support.simulation.stage import Stage
from tests.support.simulation.users import GOLD
from tests.support.simulation.world import LawBrokenError, World

PROPERTIES = {"table.replicas": "3", "table.copies_min": "2"}

ELECTED = {"replicas.election": "coordination"}
"""The setting of a cluster whose hosts stand in the coordination store."""


def found_on_hosts(world: World, name: str, count: int, overrides: Mapping[str, object] | None = None) -> Cluster:
    """A cluster with a tserver on each of its hosts."""
    cluster = world.add_cluster(name, overrides)
    for _ in range(count):
        cluster.add_host()
    world.boot(cluster)
    return cluster


class Hosted:
    """West runs on hosts; its table t has one tablet with replicas, unless it is split."""

    def __init__(
        self,
        world: World,
        hosts: int = 3,
        properties: Mapping[str, str] = PROPERTIES,
        settings: Mapping[str, object] | None = None,
        splits: Sequence[bytes] = (),
    ) -> None:
        self.world = world
        self.west = found_on_hosts(world, "west", hosts, settings)
        world.command(self.west, "create_table", "t", list(splits), [], dict(properties))
        world.until(self.west.is_served, "the table is served")

    def replicate_to(self, name: str) -> Cluster:
        """Another cluster, without hosts, that gets the table."""
        peer = self.world.add_cluster(name)
        peer.create_table("t", "2", [b"g"])
        self.west.define(peer)
        peer.define(self.west)
        self.world.boot(peer)
        self.world.enable(self.west, "t", peer)
        return peer

    # ---- what there is

    @property
    def extent(self) -> Extent:
        """The tablet, or the first one."""
        return self.extents[0]

    @property
    def extents(self) -> list[Extent]:
        """All tablets of the table."""
        return self.west.extents(self.west.table_id("t"))

    @property
    def tablet(self) -> ReplicatedTablet:
        """The tablet, as the books have it."""
        tablet = tablet_of(self.west.table.row(keys.tablet_row(self.extent.table_id, self.extent.end_row)))
        assert tablet is not None, "the table has no replicas"
        return tablet

    @property
    def leader(self) -> Host:
        """The host that serves the tablet."""
        return self.leader_of(self.extent)

    def leader_of(self, extent: Extent) -> Host:
        """The host that serves a tablet."""
        node = self.west.holder(extent)
        assert node is not None, f"no host serves {extent}"
        assert node.host is not None
        return node.host

    @property
    def followers(self) -> list[Host]:
        """The other hosts with a replica."""
        leader = self.leader
        return [host for host in self.west.hosts if host.name in self.tablet.cells and host is not leader]

    def replica_of(self, host: Host) -> Replica:
        """The tablet's files on a host's disk."""
        manifest = host.manifest(self.tablet.table_id, self.tablet.directory)
        assert manifest is not None, f"{host.name} has no replica"
        return manifest.replica

    def root_id_of(self, host: Host) -> int | None:
        """The root of a host's replica."""
        return self.replica_of(host).root

    def root_of(self, host: Host) -> tuple[str, ...]:
        """The files of that root."""
        replica = self.replica_of(host)
        return () if replica.root is None else replica.held(replica.root).segment.list

    # ---- what happens

    def put(self, *rows: bytes) -> list[bytes]:
        """Acknowledged writes; returns the values."""
        return [write.value for row in rows for write in self.world.put(self.west, "t", row)]

    def begin_flush(self, extent: Extent | None = None) -> Task:
        """The leader is asked to flush."""
        extent = extent or self.extent
        node = node_of(self.leader_of(extent))
        address = node.part.address
        return self.world.client(self.west, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))

    def flush(self) -> None:
        """The leaders' memory becomes segments; they need not be named when this returns."""
        tasks = [self.begin_flush(extent) for extent in self.extents]
        self.world.until(lambda: all(task.done for task in tasks), "the tablets are flushed")

    def held_call(self, host: Host, method: str) -> Callable[[], None]:
        """Wait until a call reaches a host, and hold this one call. Returns how to let it go and wait for its end."""
        task = self.world.until_at(f"rpc-{method}", process=host.process)
        number = self.world.kernel.hold(lambda other: other is task)

        def let_go() -> None:
            self.world.kernel.release(number)
            self.world.until(lambda: task.done, f"{method} has ended at {host.name}")

        return let_go

    def until_same(self) -> None:
        """Wait until all replicas are the named state."""
        self.world.until(lambda: not self.west.replicas.unrest(), "all replicas are the named state", look_every=20)

    def until_led_by_another(self, before: Host) -> None:
        """Wait until another host serves the tablet."""
        self.world.until(lambda: self.west.is_served() and self.leader is not before, "another host leads")

    def rest_with(self, values: Sequence[bytes]) -> None:
        """Everything comes to rest, all laws hold, and the tablet has these values."""
        try:
            self.world.rest(60.0, steps_max=8_000)
        except StuckError as error:
            raise LawBrokenError("; ".join([str(error), *error.__notes__])) from error
        judge_at_rest(self.world)
        assert sorted(entry.value for entry in self.west.entries(self.extent.table_id)) == sorted(values)


def node_of(host: Host) -> Node:
    """The process that was started last on a host."""
    assert host.node is not None, f"no process was started on {host.name}"
    return host.node


class HostedStage(Stage):
    """West runs on four hosts; each tablet of its table t has three replicas, and of u two. East is its peer, without
    hosts.
    """

    more: Sequence[str] = ("away", "wipe", "full", "import_files", "merge_two", "change_replicas")
    frequent: Mapping[str, int] = {"merge_two": 5, "change_replicas": 5}
    threads: Sequence[str] = (
        "compactor",
        "namer",
        "sender-",
        "rpc-segment_",
        "rpc-divide_replica",
        "rpc-adopt_segments",
        "rpc-take_replica",
        "rpc-publish_replica",
        "replica-collector",
    )
    repeated: Sequence[str] = (
        "segment_offer",
        "segment_transit",
        "replicas",
        "divide_replica",
        "adopt_segments",
        "take_replica",
        "publish_replica",
    )
    without: Sequence[str] = ("move", "take_all", "create_table", "delete_table")
    takes: Mapping[str, object] = {}

    def _found(self, overrides: Mapping[str, object]) -> None:
        self.west = found_on_hosts(self.world, "west", 4, overrides)
        self.east = self.world.add_cluster("east", self.takes)
        self.clusters = (self.west, self.east)
        self.east.create_table("t", "2", [b"g", b"t"], [GOLD])
        self.east.create_table("u", "4", [b"k"])

    def hosts_for(self, cluster: Cluster, table: str, rng: Random) -> list[str]:
        """Every other split on hosts moves its tablets to chosen ones, as many as the table has replicas."""
        names = [host.name for host in cluster.hosts]
        if not names or rng.random() >= 0.5:
            return []
        properties = cluster.config().table_named(table).properties
        return sorted(rng.sample(names, parse_properties(properties).replicas))

    def _join(self) -> None:
        self.west.define(self.east)
        self.east.define(self.west)
        self.world.boot(self.east, masters=2)
        self.world.command(self.west, "create_table", "t", [b"m"], [GOLD], PROPERTIES)
        self.world.command(self.west, "create_table", "u", [], [], {"table.replicas": "2"})
        self.world.until(self.west.is_served, "the tables are served")
        self.world.enable(self.west, "t", self.east)


class HostLogsStage(HostedStage):
    """The same with the logs of west on its hosts' own disks, none of which is destroyed: nobody gives up a log."""

    more: Sequence[str] = tuple(name for name in HostedStage.more if name != "wipe")
    threads: Sequence[str] = (*HostedStage.threads, "rpc-read_log", "rpc-list_logs", "rpc-seal_log", "rpc-drop_logs")
    repeated: Sequence[str] = (*HostedStage.repeated, "read_log", "list_logs", "seal_log", "drop_logs")

    def _found(self, overrides: Mapping[str, object]) -> None:
        super()._found({**overrides, "storage.logs": "host"})


class ElectedStage(HostedStage):
    """The same, with leaders that are elected through coordination."""

    threads: Sequence[str] = (*HostedStage.threads, "candidacies")

    def _found(self, overrides: Mapping[str, object]) -> None:
        super()._found({**overrides, **ELECTED})
