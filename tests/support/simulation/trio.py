"""Three clusters for directed schedules of several paths: west to south and to east, south to east.

Arrives: what a schedule wants to see. Leaves: the same in terms of the clusters; LawBrokenError where it is not so.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.model import Extent
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.users import GOLD, Write
from tests.support.simulation.world import World


class Trio:
    """Three clusters, table t in each; nothing is replicated yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.west, self.south, self.east = (world.add_cluster(name) for name in ("west", "south", "east"))
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
        """What east has."""
        return {entry.value for entry in self.east.entries("2")}

    def until_there(self, writes: Sequence[Write]) -> None:
        """Wait until east has it."""
        wanted = {write.value for write in writes}
        self.world.until(lambda: self.east.is_served() and wanted <= self.there(), "it is at east")

    def end_west(self) -> None:
        """Every log of west that holds something is rolled, shipped and deleted; east knows its streams no more."""
        used = {uri for uri, file in self.world.ledger.files.items() if file.instance == self.west.instance}
        for node in self.west.booted(self.west.tservers):
            self.world.roll(node)
        self.world.until(lambda: not used & set(self.west.logs()), "the logs are gone")
        self.world.until(lambda: not any(self.west.instance in str(line) for line in self.east.high_waters()), "over")

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

    def rest(self) -> None:
        """Everything comes to rest, and all laws hold."""
        self.world.rest(120.0)
        judge_at_rest(self.world)
