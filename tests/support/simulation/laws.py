"""The laws of docs/design/rules.md, judged when everything has come to rest: from the ledger and from the tablets.

Arrives: a world with nothing left to do. Leaves: nothing, or :class:`LawBrokenError` with every law that does not
hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

from msgspec.structs import replace

from bookkeeper.coordination.older_peers import LOST
from bookkeeper.master.cycle.check_ins import OLDER
from bookkeeper.model import TargetKey
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.ledger import Excused, pair_of
from tests.support.simulation.promises import lanes_in_force
from tests.support.simulation.tablets import Entry
from tests.support.simulation.world import LawBrokenError, World

LeftOut = Callable[[bytes, bytes], bool]
"""Whether the first value was left out of the path of the second one."""


def judge_at_rest(world: World) -> None:
    """All laws. Raises LawBrokenError."""
    world.judge()
    broken: list[str] = []
    for cluster in world.clusters.values():
        broken += kept_what_was_acknowledged(world, cluster)
        broken += nothing_twice(cluster)
        for target, peer in sorted(cluster.targets().items()):
            broken += target_equals_source(world, cluster, target, peer)
        broken += nothing_unmeant(world, cluster)
        broken += promises_kept(world, cluster)
        broken += nothing_left_over(cluster)
        broken += no_false_alarm(cluster)
    if broken:
        raise LawBrokenError("\n".join(broken[:8]))


def kept_what_was_acknowledged(world: World, cluster: Cluster) -> list[str]:
    """L1: what was acknowledged at sync is here; what was refused is not."""
    broken = []
    for table_id in cluster.config().tables:
        here = {entry.value for entry in cluster.entries(table_id)}
        for write in world.writes:
            if (write.cluster, write.table_id) != (cluster.name, table_id):
                continue
            if write.state == "acked" and write.durability == "sync" and write.value not in here:
                broken.append(f"lost: {write}")
            if write.state == "refused" and write.value in here:
                broken.append(f"refused and here: {write}")
    return broken


def no_false_alarm(cluster: Cluster) -> list[str]:
    """No peer counts as one that came back in an older state: in no schedule of these laws does one."""
    names = sorted(name for name in cluster.coordination.risen if name.startswith((LOST, OLDER)))
    return [f"{cluster.name} noted {name}, and its peers lost nothing" for name in names]


def nothing_twice(cluster: Cluster) -> list[str]:
    """L4: each record is here once, after any resends."""
    return [
        f"twice: {value!r} is {count} times in table {table_id} of {cluster.name}"
        for table_id in cluster.config().tables
        for value, count in Counter(entry.value for entry in cluster.entries(table_id)).items()
        if count > 1
    ]


def meant_for(world: World, cluster: Cluster, target: TargetKey, peer: str) -> dict[bytes, Entry]:
    """Everything that a cluster's logs held for a target and that has not passed it before, by value, but for what was
    given up.
    """
    may_be_missing = world.ledger.set_aside.may_be_missing
    return {
        entry.value: entry
        for file in world.ledger.files.values()
        if file.instance == cluster.instance
        for block in file.blocks
        if peer not in block.provenance and not may_be_missing(file.name, target, block.first, block.entries)
        for entry in block.meant_for(lambda other: other == target)
    }


def target_equals_source(world: World, cluster: Cluster, target: TargetKey, peer: str) -> list[str]:
    """L3: a configured target has all that was written for it, in the order of each cell."""
    there = next((other for other in world.clusters.values() if other.instance == peer), None)
    if there is None or target.remote_table_id not in there.config().tables:
        return []
    found = {entry.value: entry for entry in there.entries(target.remote_table_id)}
    expected = meant_for(world, cluster, target, peer)
    broken = [f"missing: {value!r} at {target}" for value in sorted(expected.keys() - found.keys())]
    common = [(expected[value], found[value]) for value in expected.keys() & found.keys()]
    behind = values_in(world, target, world.ledger.set_aside.may_be_passed)
    for here, copy in common:
        if replace(here, seq=0) != replace(copy, seq=0):
            broken.append(f"changed: {here} is {copy} at {target}")
    kept = [pair for pair in common if pair[0].value not in behind]
    left_out = left_out_of_paths(world, there, target)
    for writer in sorted(world.clusters):
        written = {write.value for write in world.writes if write.cluster == writer}
        broken += order_kept([pair for pair in kept if pair[0].value in written], target, left_out)
    return broken


def values_in(world: World, target: TargetKey, chosen: Excused) -> set[bytes]:
    """The values of chosen blocks."""
    return {
        entry.value
        for file in world.ledger.files.values()
        for block in file.blocks
        if chosen(file.name, target, block.first, block.entries)
        for entry in block.entries
    }


def left_out_of_paths(world: World, there: Cluster, target: TargetKey) -> LeftOut:
    """Whether the last part of a record's path to a target leaves out another record, because it was disabled then."""
    carried: dict[str, set[bytes]] = {}
    came_from: dict[bytes, str] = {}
    for file in world.ledger.files.values():
        for block in file.blocks:
            if file.instance == there.instance and block.provenance:
                came_from.update((entry.value, block.provenance[-1]) for entry in block.entries)
            found = block.meant_for(
                lambda other: (other.cluster, other.remote_table_id) == (target.cluster, target.remote_table_id)
            )
            carried.setdefault(file.instance, set()).update(entry.value for entry in found)
    return lambda earlier, later: earlier not in carried.get(came_from.get(later, ""), ())


def order_kept(pairs: list[tuple[Entry, Entry]], target: TargetKey, left_out: LeftOut) -> list[str]:
    """R24: records of one cell come in the same order on both sides. They are of one cluster's users: what others wrote
    may come between them by another path. A record that was left out of the path of a later one may come after it.
    """
    cells: dict[tuple[bytes, bytes, bytes], list[tuple[Entry, Entry]]] = {}
    for here, copy in pairs:
        cells.setdefault((here.row, here.family, here.column), []).append((here, copy))
    broken = []
    for cell, found in sorted(cells.items()):
        by_source = [pair[0].value for pair in sorted(found, key=lambda pair: (pair[0].timestamp, pair[0].seq))]
        by_target = [pair[0].value for pair in sorted(found, key=lambda pair: (pair[1].timestamp, pair[1].seq))]
        passed = [
            (earlier, later)
            for earlier, later in combinations(by_source, 2)
            if by_target.index(later) < by_target.index(earlier) and not left_out(earlier, later)
        ]
        if passed:
            broken.append(f"order: {cell} is {by_source} here and {by_target} at {target}")
    return broken


def sent_to(world: World, cluster: Cluster, table_id: str) -> set[bytes]:
    """The values of records that were written elsewhere under a stamp for a table of a cluster."""
    return {
        entry.value
        for file in world.ledger.files.values()
        for block in file.blocks
        for entry in block.meant_for(
            lambda target: (target.cluster, target.remote_table_id) == (cluster.name, table_id)
        )
    }


def nothing_unmeant(world: World, cluster: Cluster) -> list[str]:
    """Each record of a table was written there, or written elsewhere with this table as a block target."""
    broken: list[str] = []
    for table_id, table in cluster.config().tables.items():
        known = {write.value for write in world.writes if (write.cluster, write.table_id) == (cluster.name, table_id)}
        known |= sent_to(world, cluster, table_id)
        broken.extend(
            f"not meant: {entry} is in table {table.name} of {cluster.name}"
            for entry in cluster.entries(table_id)
            if entry.value not in known
        )
    return broken


def promises_kept(world: World, cluster: Cluster) -> list[str]:
    """R14: what was written when a command had returned travels, or does not, as the command said."""
    broken: list[str] = []
    in_force = lanes_in_force(cluster)
    for write in world.writes:
        if write.cluster != cluster.name:
            continue
        for target, group in sorted(write.open_lanes & in_force):
            there = world.clusters[target.cluster]
            if (
                write.state != "acked"
                or write.durability != "sync"
                or target.remote_table_id not in there.config().tables
            ):
                continue
            if write.value in values_in(world, target, world.ledger.set_aside.may_be_missing):
                continue
            if all(entry.value != write.value for entry in there.entries(target.remote_table_id)):
                broken.append(f"promised and missing at {target}, group {group}: {write}")
        for target, group in sorted(write.ended_lanes):
            if write.value in came_through(world, cluster, target):
                broken.append(f"disabled and yet at {target}, group {group}: {write}")
    return broken


def came_through(world: World, cluster: Cluster, target: TargetKey) -> set[bytes]:
    """The values of records that reached a target from a cluster."""
    pair = (cluster.instance, *pair_of(target))
    there = world.clusters[target.cluster].instance
    return {
        value
        for (instance, through), values in world.ledger.received.items()
        if (instance, through) == (there, pair)
        for value in values
    }


def nothing_left_over(cluster: Cluster) -> list[str]:
    """Nothing is kept for ever: no books, no files but those that are written now, no high-waters."""
    return [f"left over in {cluster.name}: {line}" for line in cluster.unrest()]
