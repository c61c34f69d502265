"""Clusters on hosts, whose tables have replicas on their disks: one for directed schedules, one for random ones.

Arrives: what a schedule wants of tablets and hosts. Leaves: the same in terms of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.metadata import keys
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.hosts import Host
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.replicas import ReplicatedTablet, tablet_of
from tests.support.simulation.stage import Stage
from tests.support.simulation.users import GOLD
from tests.support.simulation.world import World

PROPERTIES = {"table.replicas": "3", "table.copies_min": "2"}


def found_on_hosts(world: World, name: str, count: int, overrides: Mapping[str, object] | None = None) -> Cluster:
    """A cluster with a tserver on each of its hosts."""
    cluster = world.add_cluster(name, overrides)
    for _ in range(count):
        cluster.add_host()
    world.boot(cluster)
    return cluster


class Hosted:
    """West runs on hosts; its table t has one tablet, with replicas."""

    def __init__(self, world: World, hosts: int = 3, properties: Mapping[str, str] = PROPERTIES) -> None:
        self.world = world
        self.west = found_on_hosts(world, "west", hosts)
        world.command(self.west, "create_table", "t", [], [], dict(properties))
        world.until(self.west.is_served, "the table is served")

    @property
    def tablet(self) -> ReplicatedTablet:
        """Its tablet, as the books have it."""
        (extent,) = self.west.extents(self.west.table_id("t"))
        tablet = tablet_of(self.west.table.row(keys.tablet_row(extent.table_id, extent.end_row)))
        assert tablet is not None, "the table has no replicas"
        return tablet

    @property
    def leader(self) -> Host:
        """The host that serves the tablet."""
        (extent,) = self.west.extents(self.west.table_id("t"))
        node = self.west.holder(extent)
        assert node is not None, "no host serves the tablet"
        assert node.host is not None
        return node.host

    @property
    def followers(self) -> list[Host]:
        """The other hosts with a replica."""
        leader = self.leader
        return [host for host in self.west.hosts if host.name in self.tablet.cells and host is not leader]

    def put(self, *rows: bytes) -> list[bytes]:
        """Acknowledged writes; returns the values."""
        return [write.value for row in rows for write in self.world.put(self.west, "t", row)]

    def flush(self) -> None:
        """The leader's memory becomes a segment; it need not be named when this returns."""
        (extent,) = self.west.extents(self.west.table_id("t"))
        assert self.leader.node is not None
        address = self.leader.node.part.address
        task = self.world.client(self.west, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))
        self.world.until(lambda: task.done, "the tablet is flushed")

    def until_same(self) -> None:
        """Wait until all replicas are the named state."""
        self.world.until(lambda: not self.west.replicas.unrest(), "all replicas are the named state", look_every=20)

    def fail_over(self) -> Host:
        """Wait until another host serves the tablet than the one that does now."""
        before = self.leader
        before.kill()
        self.world.until(self.west.is_served, "another host leads")
        assert self.leader is not before
        return self.leader

    def rest(self) -> None:
        """Everything comes to rest, and all laws hold."""
        self.world.rest(60.0)
        judge_at_rest(self.world)

    def entries(self) -> list[bytes]:
        """The values that the tablet has."""
        return sorted(entry.value for entry in self.west.entries(self.west.table_id("t")))


class HostedStage(Stage):
    """West runs on four hosts, and each tablet of its tables has three replicas; east is its peer, without hosts."""

    more: Sequence[str] = ("away", "wipe")
    without: Sequence[str] = ("move", "take_all", "split", "merge", "create_table", "delete_table")
    takes: Mapping[str, object] = {}

    def _found(self, overrides: Mapping[str, object]) -> None:
        self.west = found_on_hosts(self.world, "west", 4, overrides)
        self.east = self.world.add_cluster("east", self.takes)
        self.clusters = (self.west, self.east)
        self.east.create_table("t", "2", [b"g", b"t"], [GOLD])
        self.east.create_table("u", "4", [b"k"])

    def _join(self) -> None:
        self.west.define(self.east)
        self.east.define(self.west)
        self.world.boot(self.east, masters=2)
        self.world.command(self.west, "create_table", "t", [b"m"], [GOLD], PROPERTIES)
        self.world.command(self.west, "create_table", "u", [], [], PROPERTIES)
        self.world.until(self.west.is_served, "the tables are served")
        self.world.enable(self.west, "t", self.east)
