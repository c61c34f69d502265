"""Three clusters for directed schedules of several paths: west to south and to east, south to east.

Arrives: what a schedule wants to see. Leaves: the same in terms of the clusters; LawBrokenError where it is not so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.metadata import keys
from bookkeeper.model import Extent, StreamKey
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.users import GOLD, Write
from tests.support.simulation.world import World

REST_S = 50.0
"""Twice the simulated time in which a schedule of records comes to rest."""


class Trio:
    """Three clusters, table t in each; nothing is replicated yet."""

    def __init__(self, world: World, settings: Mapping[str, object] | None = None) -> None:
        self.world = world
        self.west, self.south, self.east = (world.add_cluster(name, settings) for name in ("west", "south", "east"))
        self.west.create_table("t", "1", [], [GOLD])
        self.south.create_table("t", "5", [b"k"], [GOLD])
        self.east.create_table("t", "2", [b"g", b"t"], [GOLD])
        for cluster in (self.south, self.east):
            self.west.define(cluster)
        self.south.define(self.east)
        self.east.define(self.west)
        for cluster in (self.east, self.south, self.west):
            world.boot(cluster, tservers=1 if cluster is self.west else 2)

    def enable_all(self) -> None:
        """Every edge but the one back to west."""
        self.world.enable(self.west, "t", self.south)
        self.world.enable(self.west, "t", self.east)
        self.world.enable(self.south, "t", self.east)

    def hold_south(self) -> int:
        """South's way to east stands still, until the kernel releases what is returned."""
        return self.world.kernel.hold(
            lambda task: task.process.cluster == "south" and task.name.startswith("replication-east")
        )

    def there(self) -> set[bytes]:
        """The records that east has."""
        return {entry.value for entry in self.east.entries("2")}

    def until_there(self, writes: Sequence[Write]) -> None:
        """Wait until east has it."""
        wanted = {write.value for write in writes}
        self.world.until(lambda: self.east.is_served() and wanted <= self.there(), "it is at east")

    def end_west(self) -> None:
        """Every log of west that holds something is rolled, shipped and deleted; its streams to east are over."""
        used = {name for name, file in self.world.ledger.files.items() if file.instance == self.west.instance}
        for node in self.west.booted(self.west.tservers):
            self.world.roll(node)
        self.world.until(lambda: not used & set(self.west.logs()), "the logs are gone")
        self.world.until(lambda: not self._streams_of_west(), "over")

    def _streams_of_west(self) -> list[StreamKey]:
        tablets = [self.east.serving(extent) for extent in self.east.all_extents()]
        streams = [stream for tablet in tablets if tablet is not None for stream in tablet.received.high_water]
        return [stream for stream in streams if stream.source_instance_id == self.west.instance]

    def remembered(self) -> list[str]:
        """Logs that the books of any cluster still speak of (R22)."""
        prefix = keys.ROOT_PREFIX.decode()
        return [line for cluster in self.world.clusters.values() for line in cluster.books() if prefix in line]

    def kill_east(self) -> None:
        """East's tservers die."""
        for node in self.east.alive(self.east.tservers):
            self.east.kill(node)

    def start_east(self) -> None:
        """Two others are started."""
        for _ in range(2):
            self.east.start_tserver()

    def flush_east(self) -> None:
        """Every tablet of east writes down what it knows."""
        for extent in self.east.all_extents():
            self._flush(extent)

    def _flush(self, extent: Extent) -> None:
        node = self.east.holder(extent)
        assert node is not None
        address = node.part.address
        task = self.world.client(self.east, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))
        self.world.until(lambda: task.done, "a flush")

    def rest(self, limit_s: float = REST_S) -> None:
        """Everything comes to rest, and all laws hold. Raises LawBrokenError with every law that does not hold."""
        try:
            self.world.rest(limit_s)
        except StuckError:
            judge_at_rest(self.world)
            raise
        judge_at_rest(self.world)


class Relays(Trio):
    """North beside south: west to both, and each of them to east, which gets nothing from west itself."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.north = world.add_cluster("north")
        self.north.create_table("t", "7", [], [GOLD])
        self.west.define(self.north)
        self.north.define(self.east)
        world.boot(self.north)
        for relay in (self.south, self.north):
            world.enable(self.west, "t", relay)
            world.enable(relay, "t", self.east)
