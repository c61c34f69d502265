"""The topologies of ACCUMULO-378 with real processes: three clusters, each with a master, a tserver and a Spark replay.

A topology has edges and clusters that users write to. Each topology has a table of its own on the same three clusters.
Every cluster ends with exactly the cells that the writers put, each once. ``test_topologies.py`` has
more shapes, inside one process. Rules: R21 and R22. Source: ACCUMULO-378, *Background*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import permutations

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.replay.journal import Shipped, read_journal
from tests.support.cluster import Cluster
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_clusters import SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.spark]

NAMES = "abc"

SMALL: dict[str, object] = {
    **SETTINGS,
    "tserver.wal_roll_age_ms": 2_000,
    "tserver.stream_idle_timeout_ms": 2_000,
}

BATCHES = 8
ROWS = 100
SETTLED_MS = 180_000
"""On busy cores three replay processes take a minute to start."""
VERSIONS = 50
"""More than any cell gets: so that a record that is applied twice shows, as a version more."""

Cells = Counter[tuple[bytes, bytes, bytes]]
"""How many versions there are of each row, family and value."""


def batch_of(cluster: str, number: int) -> Iterator[Mutation]:
    """A counter of each row, and a state that comes, changes and goes."""
    for row in range(ROWS):
        mutation = Mutation(b"%s-%03d" % (cluster.encode(), row)).put(b"count", b"n", b"%d" % number)
        if (row + number) % 3 == 2:
            yield mutation.delete(b"state", b"s")
        else:
            yield mutation.put(b"state", b"s", b"%d" % number)


def cells_after(cluster: str) -> Cells:
    """The cells after the batches of one writer: a delete hides all earlier cells."""
    found: Cells = Counter()
    for row in range(ROWS):
        key = b"%s-%03d" % (cluster.encode(), row)
        found.update((key, b"count", b"%d" % number) for number in range(BATCHES))
        gone = max(number for number in range(BATCHES) if (row + number) % 3 == 2)
        found.update((key, b"state", b"%d" % number) for number in range(gone + 1, BATCHES))
    return found


RECORDS = 2 * BATCHES * ROWS
"""The records of one writer: each mutation has two."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Cluster]]:
    """Three clusters that know each other."""
    directory = tmp_path_factory.mktemp("topologies")
    with ExitStack() as cleanup:
        made = {name: Cluster(directory / name, name, tservers=1, overrides=SMALL) for name in NAMES}
        for cluster in made.values():
            cleanup.callback(cluster.stop)
            cluster.launch()
        for cluster in made.values():
            cluster.wait_ready()
        for source, peer in permutations(NAMES, 2):
            made[source].client.replication.define_cluster(peer, made[peer].quorum)
        yield made


def write(client: Client, table: str, name: str) -> None:
    """All batches of one writer, each acknowledged before the next."""
    with client.writer(table) as writer:
        for number in range(BATCHES):
            writer.add_all(batch_of(name, number))
            writer.flush()


def settle(clusters: Mapping[str, Cluster], table: str, names: Sequence[str]) -> None:
    """Return when nothing is left to send, however many clusters a record has to pass."""
    for _ in names:
        for name in names:
            if all(one.table != table for one in clusters[name].client.replication.config()):
                continue  # the end of a chain
            left = clusters[name].client.replication.wait(table, timeout_ms=SETTLED_MS)
            assert not left, f"cluster {name}: {left}"


def shipped(cluster: Cluster, table: str) -> Iterable[Shipped]:
    """The shipments of a table in the journal of the replay process."""
    table_id = cluster.client.tables.get(table).table_id
    return [line for line in read_journal(cluster.settings).shipped if line.source_table_id == table_id]


def arrived(clusters: Mapping[str, Cluster], table: str, edges: Iterable[str]) -> dict[str, int]:
    """Records that each edge brought and that its peer did not have from this edge before."""
    return {
        edge: sum(line.records - line.resent for line in shipped(clusters[edge[0]], table) if line.cluster == edge[1])
        for edge in edges
    }


def sources_of(name: str, edges: Iterable[str]) -> str:
    """The clusters from which a way leads to this one, itself included."""
    found = {name}
    for _ in NAMES:
        found |= {edge[0] for edge in edges if edge[1] in found}
    return "".join(sorted(found))


def go_round(clusters: Mapping[str, Cluster], table: str, edges: Sequence[str], writers: str) -> None:
    """Join the clusters, write to several at once, and compare every cell of every cluster."""
    names = sorted({name for edge in edges for name in edge})
    for name in names:
        clusters[name].client.tables.create(table, [b"b-050"], properties={"table.versions.max": str(VERSIONS)})
    for edge in edges:
        clusters[edge[0]].client.replication.enable(table, edge[1])
    with ThreadPoolExecutor(len(writers)) as users:
        list(users.map(lambda name: write(clusters[name].client, table, name), writers))
    settle(clusters, table, names)
    timestamps: dict[object, int] = {}
    for name in names:
        expected: Cells = Counter()
        for writer in set(writers) & set(sources_of(name, edges)):
            expected += cells_after(writer)
        cells = clusters[name].client.scan(table, versions=VERSIONS).table()
        found = list(zip(*(cells.column(part).to_pylist() for part in ("row", "family", "value")), strict=True))
        assert Counter(found) == expected, f"cluster {name} does not hold each cell once"
        for cell, timestamp in zip(found, cells.column("timestamp").to_pylist(), strict=True):
            assert timestamps.setdefault(cell, timestamp) == timestamp, f"cluster {name}: {cell} has another timestamp"


MARK = ": a deletion candidate: "
"""It outlives its file by as long as a write can be in flight (R4): more than a minute."""


def test_one_way(clusters: Mapping[str, Cluster]) -> None:
    go_round(clusters, "one_way", ["ab"], "a")
    assert arrived(clusters, "one_way", ["ab", "ba"]) == {"ab": RECORDS, "ba": 0}


def test_two_ways(clusters: Mapping[str, Cluster]) -> None:
    go_round(clusters, "two_ways", ["ab", "ba"], "ab")
    assert arrived(clusters, "two_ways", ["ab", "ba"]) == {"ab": RECORDS, "ba": RECORDS}


def test_a_chain(clusters: Mapping[str, Cluster]) -> None:
    go_round(clusters, "chain", ["ab", "bc"], "ab")
    assert arrived(clusters, "chain", ["ab", "bc"]) == {"ab": RECORDS, "bc": 2 * RECORDS}


def test_a_circle_of_three(clusters: Mapping[str, Cluster]) -> None:
    go_round(clusters, "circle", ["ab", "bc", "ca"], "abc")
    assert arrived(clusters, "circle", ["ab", "bc", "ca"]) == dict.fromkeys(["ab", "bc", "ca"], 2 * RECORDS)


def test_one_to_two(clusters: Mapping[str, Cluster]) -> None:
    go_round(clusters, "fan_out", ["ab", "ac"], "a")
    assert arrived(clusters, "fan_out", ["ab", "ac"]) == {"ab": RECORDS, "ac": RECORDS}


def test_r22_each_to_each(clusters: Mapping[str, Cluster]) -> None:
    edges = ["".join(edge) for edge in permutations(NAMES, 2)]
    go_round(clusters, "mesh", edges, "abc")
    came = arrived(clusters, "mesh", edges)
    taken = {name: sum(count for edge, count in came.items() if edge[1] == name) for name in NAMES}
    assert taken == dict.fromkeys(NAMES, 2 * RECORDS), f"each record of two others by one of two edges: {came}"


def test_afterwards_nothing_is_left_behind(clusters: Mapping[str, Cluster]) -> None:
    """Nothing in the books, nothing on disk; the memory of several paths is over, too (R22)."""
    lines: list[str] = []

    def is_settled() -> bool:
        for cluster in clusters.values():
            for table in cluster.client.tables.list():
                cluster.client.tables.flush(table.name)
        found = (line for cluster in clusters.values() for line in leftovers(look(cluster.settings)))
        lines[:] = [line for line in found if MARK not in line]
        return not lines

    clusters["a"].wait_until(is_settled, "end of all logs")
    assert not lines
