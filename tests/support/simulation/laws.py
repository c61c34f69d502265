"""What must be true when everything has come to rest (design section 10): judged from the ledger and from the tablets.

Arrives: a world with nothing left to do. Leaves: nothing, or :class:`LawBrokenError` with every law that does not
hold.
"""

from __future__ import annotations

from collections import Counter

from bookkeeper.model import TargetKey
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.ledger import LoggedBlock
from tests.support.simulation.tablets import Entry
from tests.support.simulation.world import LawBrokenError, World


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
        broken += books_are_empty(cluster)
    if broken:
        raise LawBrokenError("\n".join(broken[:8]))


def kept_what_was_acknowledged(world: World, cluster: Cluster) -> list[str]:
    """Section 10, rule 1: what was acknowledged at sync is here; what was refused is not."""
    broken = []
    for table_id, table in cluster.config().tables.items():
        here = {entry.value for entry in cluster.entries(table_id)}
        for write in world.writes:
            if (write.cluster, write.table) != (cluster.name, table.name):
                continue
            if write.state == "acked" and write.durability == "sync" and write.value not in here:
                broken.append(f"lost: {write}")
            if write.state == "refused" and write.value in here:
                broken.append(f"refused and here: {write}")
    return broken


def nothing_twice(cluster: Cluster) -> list[str]:
    """Section 10, rule 4."""
    return [
        f"twice: {value!r} is {count} times in table {table_id} of {cluster.name}"
        for table_id in cluster.config().tables
        for value, count in Counter(entry.value for entry in cluster.entries(table_id)).items()
        if count > 1
    ]


def stamped_blocks(world: World, cluster: Cluster, target: TargetKey) -> list[LoggedBlock]:
    """Everything that a cluster's logs held for a target."""
    return [
        block
        for file in world.ledger.files.values()
        if file.instance == cluster.instance
        for block in file.blocks
        if block.stamped(target)
    ]


def target_equals_source(world: World, cluster: Cluster, target: TargetKey, peer: str) -> list[str]:
    """Section 10, rule 3: a configured target has all that was written for it, in the order of each cell."""
    there = next((other for other in world.clusters.values() if other.instance == peer), None)
    if there is None or target.remote_table_id not in there.config().tables:
        return []
    found = {entry.value: entry for entry in there.entries(target.remote_table_id)}
    expected: dict[bytes, Entry] = {}
    for block in stamped_blocks(world, cluster, target):
        if peer not in block.provenance:
            expected |= {entry.value: entry for entry in block.entries}
    broken = [f"missing: {value!r} at {target}" for value in sorted(expected.keys() - found.keys())]
    common = [(expected[value], found[value]) for value in expected.keys() & found.keys()]
    for here, copy in common:
        if (here.row, here.column, here.timestamp, here.delete) != (copy.row, copy.column, copy.timestamp, copy.delete):
            broken.append(f"changed: {here} is {copy} at {target}")
    return broken + order_kept(common, target)


def order_kept(pairs: list[tuple[Entry, Entry]], target: TargetKey) -> list[str]:
    """Records of one cell come in the same order on both sides."""
    cells: dict[tuple[bytes, bytes], list[tuple[Entry, Entry]]] = {}
    for here, copy in pairs:
        cells.setdefault((here.row, here.column), []).append((here, copy))
    broken = []
    for cell, found in sorted(cells.items()):
        by_source = [pair[0].value for pair in sorted(found, key=lambda pair: (pair[0].timestamp, pair[0].seq))]
        by_target = [pair[0].value for pair in sorted(found, key=lambda pair: (pair[1].timestamp, pair[1].seq))]
        if by_source != by_target:
            broken.append(f"order: {cell} is {by_source} here and {by_target} at {target}")
    return broken


def nothing_unmeant(world: World, cluster: Cluster) -> list[str]:
    """Whatever a table holds was written there, or written elsewhere under a stamp for it."""
    broken: list[str] = []
    for table_id, table in cluster.config().tables.items():
        own = {write.value for write in world.writes if (write.cluster, write.table) == (cluster.name, table.name)}
        meant = {
            entry.value
            for file in world.ledger.files.values()
            for block in file.blocks
            if any((s.target.cluster, s.target.remote_table_id) == (cluster.name, table_id) for s in block.stamps)
            for entry in block.entries
        }
        broken.extend(
            f"not meant: {entry} is in table {table.name} of {cluster.name}"
            for entry in cluster.entries(table_id)
            if entry.value not in own | meant
        )
    return broken


def books_are_empty(cluster: Cluster) -> list[str]:
    """Nothing is kept for ever: no books, no files but those that are written now, no high-waters."""
    broken = [f"left over in {cluster.name}: {line}" for line in cluster.books()]
    live = {
        node.part.parts.path.desk.wal_uri()
        for node in cluster.alive(cluster.tservers)
        if node.part is not None and node.part.session.is_valid()
    }
    broken += [f"left over in {cluster.name}: {uri}" for uri in cluster.logs() if uri not in live]
    for extent in cluster.all_extents():
        tablet = cluster.serving(extent)
        if tablet is not None and tablet.high_water:
            broken.append(f"left over in {cluster.name}: {extent} remembers {sorted(tablet.high_water)}")
    return broken
