"""Acts of users and operators, and regular acts of clusters. Each takes the stage and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from msgspec.structs import replace

from bookkeeper.errors import NoSpaceError
from bookkeeper.model import RowRange
from tests.support.simulation.cluster import Node
from tests.support.simulation.setting_aside import TOO_LONG
from tests.support.simulation.stage import ROWS, TABLES, Stage
from tests.support.simulation.users import GOLD, PLAIN

DURABILITIES = ("sync", "sync", "sync", "log", "flush", "none")
FAMILIES = ((PLAIN,), (PLAIN,), (PLAIN, *GOLD.families), GOLD.families)
GROUPS: tuple[tuple[str, ...], ...] = ((), (), (GOLD.name,), ("default",))
SPLITS: tuple[list[bytes], ...] = ([], [b"g"], [b"h", b"p"])
REPLICAS = ("1", "1", "2", "3")
BORDERS = (b"c", b"g", b"h", b"j", b"k", b"m", b"p", b"s", b"w")
"""Rows at which tablets are split and merged: between rows of data, and at them."""


def write(stage: Stage, rng: Random) -> None:
    """A user writes a record, or deletes one, or both families of a row in one call."""
    stage.world.write(
        stage.source(rng),
        rng.choice(("t", "t", "u")),
        [rng.choice(stage.rows)],
        delete=rng.random() < 0.2,
        durability=rng.choice(DURABILITIES),
        families=rng.choice(FAMILIES),
    )


def write_two(stage: Stage, rng: Random) -> None:
    """A user writes two rows of one tablet in one call."""
    stage.world.write(stage.west, "t", rng.choice(((b"a", b"h"), (b"p", b"x"))))


def write_too_long(stage: Stage, rng: Random) -> None:
    """A user in west writes what east refuses for good."""
    families, rows = rng.choice(FAMILIES), [rng.choice(stage.rows)]
    stage.world.write(stage.west, rng.choice(("t", "t", "u")), rows, families=families, ending=TOO_LONG)


def hold_range(stage: Stage, rng: Random) -> None:
    """An operator sets a range with a permanent error aside."""
    stage.see_to_range(stage.west, "hold_range", rng.randrange(8))


def retry_range(stage: Stage, rng: Random) -> None:
    """An operator wants a range shipped after all."""
    stage.see_to_range(stage.west, "retry_range", rng.randrange(8))


def skip_range(stage: Stage, rng: Random) -> None:
    """An operator gives a range up."""
    stage.see_to_range(stage.west, "skip_range", rng.randrange(8))


def take_all(stage: Stage, rng: Random) -> None:
    """East takes long values from now on: its tservers are started anew, one after another, with another setting."""
    east = stage.east
    taken = replace(east.settings.tserver, value_bytes_max=1_000)
    east.settings = replace(east.settings, tserver=taken)
    nodes = east.alive(east.tservers)
    if nodes:
        east.kill(rng.choice(nodes))
        east.start_tserver()


def roll(stage: Stage, rng: Random) -> None:
    """A log is full."""
    node = stage.node(rng, lambda cluster: cluster.booted(cluster.tservers))
    if node is not None:
        chosen: Node = node
        stage.kernel.spawn(node.process, "roll", lambda: roll_log(chosen))


def roll_log(node: Node) -> None:
    """End the log of a tserver; a full disk may refuse that, and it goes on."""
    with suppress(NoSpaceError):
        node.part.parts.writing.committer.roll()


def flush(stage: Stage, rng: Random) -> None:
    """A tablet is full."""
    node = stage.node(rng, lambda cluster: cluster.booted(cluster.tservers))
    if node is None:
        return
    tablets = [tablet for tablet in node.part.parts.tablets.registry.all() if tablet.accepting]
    if tablets:
        address, extent = node.part.address, rng.choice(tablets).extent
        stage.world.client(
            stage.cluster_of(node), "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent)
        )


def move(stage: Stage, rng: Random) -> None:
    """One more tserver: tablets move to it."""
    cluster = stage.cluster(rng)
    if stage.has_room(cluster.alive(cluster.tservers)):
        cluster.start_tserver()


def import_files(stage: Stage, rng: Random) -> None:
    """An operator imports a file with some rows."""
    cluster, rows = stage.source(rng), sorted(rng.sample(ROWS, rng.randint(1, len(ROWS))))
    if cluster.leader() is not None:
        stage.world.import_files(cluster, rng.choice(("t", "t", "u")), rows, rng.choice(FAMILIES))


def enable(stage: Stage, rng: Random) -> None:
    """An operator enables replication of a table, or of one of its groups."""
    cluster = stage.cluster(rng)
    groups = list(rng.choice(GROUPS))
    stage.command(cluster, "enable_replication", rng.choice(TABLES), groups, stage.peer_of(cluster).name, "")


def enable_into_another(stage: Stage, rng: Random) -> None:
    """Two tables go into one."""
    stage.command(stage.west, "enable_replication", rng.choice(TABLES), [], stage.east.name, rng.choice(TABLES))


def disable(stage: Stage, rng: Random) -> None:
    """An operator disables replication of a table, or of one of its groups."""
    cluster = stage.cluster(rng)
    stage.command(
        cluster, "disable_replication", rng.choice(TABLES), list(rng.choice(GROUPS)), stage.peer_of(cluster).name
    )


def delete_table(stage: Stage, rng: Random) -> None:
    """An operator deletes a table, with records outstanding or not."""
    stage.command(stage.cluster(rng), "delete_table", rng.choice(TABLES))


def create_table(stage: Stage, rng: Random) -> None:
    """An operator makes a table, of a name that was there before, if it is gone."""
    groups = [GOLD] if rng.random() < 0.5 else []
    stage.command(stage.cluster(rng), "create_table", rng.choice(TABLES), rng.choice(SPLITS), groups, {})


def split(stage: Stage, rng: Random) -> None:
    """An operator splits a table."""
    rows = rng.sample(BORDERS, rng.randint(1, 2))
    cluster = stage.cluster(rng)
    table = rng.choice(("t", "t", "u"))
    stage.command(cluster, "add_splits", table, rows, stage.hosts_for(cluster, table, rng))


def merge(stage: Stage, rng: Random) -> None:
    """An operator merges the tablets of a table, or some of them."""
    low, high = sorted(rng.sample(BORDERS, 2))
    rows = RowRange(rng.choice((low, None)), rng.choice((high, None)))
    stage.command(stage.cluster(rng), "merge_tablets", rng.choice(("t", "t", "u")), rows)


def merge_two(stage: Stage, rng: Random) -> None:
    """An operator merges two neighbours of a table in west, or splits it while it has one tablet."""
    table = rng.choice(TABLES)
    tablets = stage.west.extents(stage.west.table_id(table))
    if len(tablets) < 2:
        stage.command(stage.west, "add_splits", table, [rng.choice(BORDERS)], stage.hosts_for(stage.west, table, rng))
        return
    first = rng.randrange(len(tablets) - 1)
    rows = RowRange(tablets[first].prev_row, tablets[first + 1].end_row)
    stage.command(stage.west, "merge_tablets", table, rows)


def change_replicas(stage: Stage, rng: Random) -> None:
    """An operator changes how many replicas a table of west has; one lies on the Volume."""
    properties = {"table.replicas": rng.choice(REPLICAS), "table.copies_min": "0"}
    stage.command(stage.west, "change_properties", rng.choice(TABLES), properties, [])


Deed = Callable[[Stage, Random], None]
DAILY: dict[str, Deed] = {"write": write, "write_two": write_two, "write_here": write, "roll": roll, "flush": flush}
SELDOM: dict[str, Deed] = {
    "move": move,
    "write_too_long": write_too_long,
    "hold_range": hold_range,
    "retry_range": retry_range,
    "skip_range": skip_range,
    "take_all": take_all,
    "enable": enable,
    "enable_into_another": enable_into_another,
    "disable": disable,
    "delete_table": delete_table,
    "create_table": create_table,
    "split": split,
    "merge": merge,
}
MORE: dict[str, Deed] = {"import_files": import_files, "merge_two": merge_two, "change_replicas": change_replicas}
