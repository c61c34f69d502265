"""Schedules of receivers that work at the same time, and of their memory, each green with its rule, red without.

Rules: R18 and R20. Real clusters over simulated edges. A red twin names the broken law.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.model import Extent, StreamKey, TargetKey
from bookkeeper.rpc.contract.messages import ReplicateRequest, SourceBlock
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from tests.support.faults import fault
from tests.support.simulation.cluster import Node
from tests.support.simulation.kernel import StuckError, Task
from tests.support.simulation.network import SimPool
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation


def begin_to_send(pair: Pair, receiver: Node, file: str, target: TargetKey) -> Task:
    """A sender ships the first record of a log to a tserver of east, and does not wait."""
    stream = StreamKey(pair.west.instance, file, target.source_table_id, target.remote_table_id, target.incarnation)
    (block,) = read_blocks(pair.west.volume, file, 1, 1)
    record = SourceBlock(1, 1, block.payload.to_pybytes(), block.header.record_count, b"", b"")

    def run(pool: SimPool) -> None:
        tserver = pool.tserver(receiver.part.address, 10_000)
        token = tserver.open_stream(stream)
        tserver.replicate(ReplicateRequest(token, stream, (pair.west.instance,), 0, 0, 1, (record,)))

    return pair.world.client(pair.west, f"sender to {receiver.name}", run)


def two_receivers_race(world: World) -> None:
    """Two tservers of east get the same range; the tablet's own one syncs it when the other one's share arrives."""
    pair = Pair(world)
    target = pair.enable()
    sending = world.hold("replication-east")
    world.put(pair.west, "t", b"a")
    file = pair.owner().part.parts.writing.path.wal_name
    extent = next(extent for extent in pair.east.extents("2") if extent.contains(b"a"))
    holder = pair.east.holder(extent)
    assert holder is not None
    (other,) = (node for node in pair.east.booted(pair.east.tservers) if node is not holder)
    syncing = world.hold("/commit-", ": sync", process=holder.process)
    tasks = [begin_to_send(pair, node, file, target) for node in (holder, other)]
    world.until_at("/commit-", ": sync", process=holder.process)
    world.until_at("rpc-apply_replicated: an answer", process=holder.process)
    world.kernel.run_for(0.5)
    world.kernel.release(syncing)
    world.until(lambda: all(task.done for task in tasks), "both senders were answered")
    world.kernel.release(sending)
    pair.rest()


def marks_of_the_absent(world: World) -> None:
    """East's tservers have written down how far they have a stream, and are dead when it ends."""
    pair = Pair(world)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", b"a"))
    ending = world.hold("east", "rpc-stream_done")
    file = pair.owner().part.parts.writing.path.wal_name
    world.roll(pair.owner())
    world.until(lambda: file not in pair.west.logs(), "the log is gone")
    world.until_at("east", "rpc-stream_done")
    for extent in pair.east.extents("2"):
        flush(pair, extent)
    for node in pair.east.alive(pair.east.tservers):
        pair.east.kill(node)
    world.kernel.run_for(2.0)
    world.kernel.release(ending)
    world.until(lambda: not pair.east.books(), "the end of the stream in all books")
    for _ in range(2):
        pair.east.start_tserver()
    pair.rest()


def flush(pair: Pair, extent: Extent) -> None:
    """A tablet of east writes down what it knows."""
    node = pair.east.holder(extent)
    assert node is not None
    address = node.part.address
    task = pair.world.client(pair.east, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))
    pair.world.until(lambda: task.done, "a flush")


RACES = "in-flight-is-not-known and paths-are-not-compared"
SCHEDULES: dict[str, tuple[Callable[[World], None], dict[str, str]]] = {  # a schedule; its switches and laws
    "two receivers race": (two_receivers_race, {RACES: "twice"}),
    "marks of the absent": (marks_of_the_absent, {"marks-of-ended-streams-stay": "never: rest"}),
}
RED = [(name, switch, law) for name, (_, switches) in SCHEDULES.items() for switch, law in switches.items()]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[name][0](world)


@pytest.mark.parametrize(("name", "switch", "law"), RED)
def test_a_schedule_is_red_without_its_rule(name: str, switch: str, law: str, tmp_path: Path) -> None:
    broken = pytest.raises((LawBrokenError, StuckError), match=law)
    with fault(switch), simulation(tmp_path / "world") as world, broken:
        SCHEDULES[name][0](world)
