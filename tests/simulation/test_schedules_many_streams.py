"""Tasks that follow for several peers, of which one stands still, and for the many tablets of one table.

Time passes in a simulation only while all wait, so the lag of a row is what somebody waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.simulation.test_schedules_followers import followed, is_followed
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.pair import Pair
from tests.support.simulation.users import Write
from tests.support.simulation.world import World, simulation

LAG_MS = 20.0
"""No row takes longer to a healthy peer, whoever else stands still."""

ROWS_S = 65.0
"""Longer than a task follows, a message waits for its answer, and the master takes a silent range back."""

PAUSE_S = 4.0
"""Between two rows; seconds in which nothing happens cost CPU, too."""

TABLETS = 16
OTHER_TABLES = 4
BORDERS = [b"%02d" % number for number in range(1, TABLETS)]


def peer(pair: Pair, name: str) -> Cluster:
    """One more peer of west with table t."""
    cluster = pair.world.add_cluster(name)
    cluster.create_table("t", "2", [b"g"])
    pair.west.define(cluster)
    cluster.define(pair.west)
    pair.world.boot(cluster)
    pair.world.enable(pair.west, "t", cluster)
    return cluster


def has(cluster: Cluster, writes: Sequence[Write]) -> bool:
    """Whether a peer has these records."""
    return {write.value for write in writes} <= {entry.value for entry in cluster.entries("2")}


def all_have(peers: Sequence[Cluster], writes: Sequence[Write]) -> Callable[[], bool]:
    """Whether all of them have these records."""
    return lambda: all(has(one, writes) for one in peers)


def lags_ms(world: World, west: Cluster, peers: Sequence[Cluster], seconds: float) -> list[float]:
    """The time that each of some rows takes until all of these peers have it."""
    found, end_ns = list[float](), world.kernel.now_ns + int(seconds * 1e9)
    while world.kernel.now_ns < end_ns:
        writes = world.put(west, "t", b"c")
        began_ns = world.kernel.now_ns
        world.until(all_have(peers, writes), "healthy peers have it", 60.0)
        found.append((world.kernel.now_ns - began_ns) / 1e6)
        world.kernel.run_for(PAUSE_S)
    return found


def tasks_of(world: World, pair: Pair) -> int:
    """The polls that wait at the tserver of west."""
    process = pair.owner().process
    return sum(
        task.process is process and task.name == "rpc-follow" and not task.done and task.label == "a condition"
        for task in world.kernel.tasks
    )


def test_a_peer_that_stands_still_delays_no_row_to_the_others(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        pair = followed(world)
        north, south = peer(pair, "north"), peer(pair, "south")
        all_of_them = (pair.east, north, south)
        writes = world.put(pair.west, "t", b"a")
        world.until(all_have(all_of_them, writes), "all peers have it")
        world.until(lambda: tasks_of(world, pair) == len(all_of_them), "a task follows for each peer")
        before = lags_ms(world, pair.west, all_of_them, 2 * PAUSE_S)
        assert max(before) <= LAG_MS
        written = len(world.writes)
        stopped = [node.process for node in (*south.masters, *south.tservers)]
        for process in stopped:
            process.suspended = True
        beside = lags_ms(world, pair.west, (pair.east, north), ROWS_S)
        assert max(beside) <= LAG_MS, f"a stopped peer delays the others: {beside}"
        for process in stopped:
            process.suspended = False
        world.until(lambda: south.is_served() and has(south, world.writes[written:]), "south has all of it")
        pair.rest()


def test_the_rows_of_sixteen_tablets_go_at_once_and_with_no_more_messages_than_rows(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        pair = followed(world, borders=BORDERS)
        rows = [b"%02d" % number for number in range(TABLETS)]
        pair.until_there([write for row in rows for write in world.put(pair.west, "t", row)])
        world.until(lambda: is_followed(world, pair.owner()), "a poll waits")
        before, began_ns = len(world.kernel.trace), world.kernel.now_ns
        tasks = [world.write(pair.west, "t", [row]) for row in rows]
        pair.until_there([write for _, writes in tasks for write in writes])
        assert world.kernel.now_ns - began_ns <= LAG_MS * 1e6
        steps = world.kernel.trace[before:]
        messages = sum("call replicate" in line for line in steps)
        assert messages <= TABLETS, f"{messages} messages for a row in each of {TABLETS} tablets"
        assert not any("call run at" in line for line in steps), "a run ships beside the task"
        pair.rest()


def test_the_streams_of_other_tables_follow_before_the_master_hears_of_a_row(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        pair = Pair(world)
        pair.enable()
        others = {f"q{number}": str(number) for number in range(3, 3 + OTHER_TABLES)}
        for name, table_id in others.items():
            pair.west.create_table(name, table_id, [])
            pair.east.create_table(name, table_id, [])
        world.until(lambda: pair.west.is_served() and pair.east.is_served(), "all tables are served")
        for name in others:
            world.enable(pair.west, name, pair.east)
        world.roll(pair.owner())
        for name in (*others, "t"):
            world.put(pair.west, name, b"a")
        world.kernel.run_for(0.5)
        log, before, rows = log_of(pair), len(world.kernel.trace), 0
        while True:
            writes = world.put(pair.west, "t", b"c")
            if log_of(pair) != log:
                break
            pair.until_there(writes)
            world.kernel.run_for(0.4)
            rows += 1
            handed_out = sum("call assign_work" in line for line in world.kernel.trace[before:])
            assert not handed_out, "the master hands out ranges without a record"
        assert rows >= 2
        pair.rest()


def log_of(pair: Pair) -> str:
    """The log that west writes."""
    return str(pair.owner().part.parts.writing.path.wal_name)
