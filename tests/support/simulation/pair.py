"""Two clusters for directed schedules: one table, which may replicate from west to east.

Arrives: what a schedule wants to see. Leaves: the same in terms of both clusters; LawBrokenError where it is not so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.errors import GapError
from bookkeeper.model import LocalityGroup, StreamKey, TargetKey
from bookkeeper.rpc.contract.messages import ReplicateRequest, SourceBlock
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from tests.support.simulation.cluster import Node
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.network import SimPool
from tests.support.simulation.users import Write
from tests.support.simulation.world import LawBrokenError, World


class Pair:
    """Two clusters, table t in both."""

    def __init__(
        self,
        world: World,
        tservers: int = 1,
        splits: Sequence[bytes] = (),
        groups: Sequence[LocalityGroup] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.world = world
        self.west, self.east = world.add_cluster("west", settings), world.add_cluster("east", settings)
        self.west.create_table("t", "1", splits, groups)
        self.east.create_table("t", "2", [b"g", b"t"], groups)
        self.west.define(self.east)
        self.east.define(self.west)
        world.boot(self.east)
        world.boot(self.west, tservers=tservers)

    def enable(self) -> TargetKey:
        """West's table goes to east."""
        return self.world.enable(self.west, "t", self.east)

    def owner(self, row: bytes = b"a") -> Node:
        """The tserver of a row in west."""
        extent = next(extent for extent in self.west.extents("1") if extent.contains(row))
        node = self.west.holder(extent)
        assert node is not None
        return node

    def there(self) -> set[bytes]:
        """The records that east has."""
        return {entry.value for entry in self.east.entries("2")}

    def until_there(self, writes: Sequence[Write]) -> None:
        """Wait until east has it."""
        wanted = {write.value for write in writes}
        self.world.until(lambda: self.east.is_served() and wanted <= self.there(), "it is at east")

    def replace(self, node: Node, power: bool = False) -> None:
        """Kill a tserver and start another."""
        cluster = self.world.clusters[node.process.cluster]
        cluster.kill(node, power)
        cluster.start_tserver()

    def rest(self) -> None:
        """Everything comes to rest, and all laws hold."""
        self.world.rest(60.0)
        judge_at_rest(self.world)

    def must_be_there(self, writes: Sequence[Write]) -> None:
        """East has what was written after ``enablereplication`` had returned."""
        missing = {write.value for write in writes} - self.there()
        if missing:
            raise LawBrokenError(f"written after the command had returned, and not at east: {missing}")

    def must_not_be_there(self, writes: Sequence[Write]) -> None:
        """East lacks what was written after ``disablereplication`` had returned."""
        found = {write.value for write in writes} & self.there()
        if found:
            raise LawBrokenError(f"written after the command had returned, and at east: {found}")


def send(pair: Pair, file: str, target: TargetKey, first: int, last: int, acked: int) -> list[str]:
    """A zombie of a sender ships records ``first`` to ``last``; returns what it was told."""
    told: list[str] = []
    east = pair.east
    stream = StreamKey(pair.west.instance, file, target.source_table_id, target.remote_table_id, target.incarnation)
    blocks = tuple(
        SourceBlock(b.first_offset, b.last_offset, b.payload.to_pybytes(), b.header.record_count, b"", b"")
        for b in read_blocks(pair.west.volume, file, first, last)
    )

    def run(pool: SimPool) -> None:
        tserver = pool.tserver(east.booted(east.tservers)[0].part.address, 10_000)
        token = tserver.open_stream(stream)
        try:
            tserver.replicate(ReplicateRequest(token, stream, (pair.west.instance,), acked, first - 1, last, blocks))
            told.append("acknowledged")
        except GapError as error:
            told.append(f"gap behind {error.high_water}")

    task = pair.world.client(pair.west, "zombie sender", run)
    pair.world.until(lambda: task.done, "the zombie sender was answered")
    return told
