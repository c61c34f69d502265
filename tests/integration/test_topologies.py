"""How clusters may be joined: to several, in chains, in circles, both ways; under other names, cut otherwise, by group.

The clusters run inside the test, each with a master, a tserver and a ship loop of its own. The tests compare the rows
of each cluster and the records that crossed each edge. Rules: R19, R21, R22 and R23. Source: ACCUMULO-378,
*Implementation*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import ExistsError, PermanentError
from bookkeeper.metadata import keys, values
from bookkeeper.model import LocalityGroup
from bookkeeper.replay.stream.segment_transfer import BY_SEGMENTS
from bookkeeper.storage.wal.reading.block_reader import read_headers
from tests.support.local_pair import Books, LocalCluster, local_cluster
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

ROWS = 40

SHORT_GRACE: dict[str, object] = {"tserver.stream_idle_timeout_ms": 2_000, "coordination.session_lease_ms": 20_000}
"""The grace of streams (R20) is made of these, and a log is remembered until its streams are over (R22)."""


class Map:
    """Clusters by name; each has a table ``t`` unless told otherwise."""

    def __init__(self, directory: Path, stack: ExitStack, books: Books) -> None:
        self.directory = directory
        self._books = books
        self._stack = stack
        self._clusters: dict[str, LocalCluster] = {}
        self.overrides: dict[str, object] = {}
        """Settings of the clusters that are added from now on."""

    def __getitem__(self, name: str) -> LocalCluster:
        return self._clusters[name]

    def add(
        self,
        *names: str,
        table: str = "t",
        splits: Sequence[bytes] = (),
        groups: Sequence[LocalityGroup] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        for name in names:
            self._clusters[name] = self._start(name)
            self._clusters[name].client.tables.create(table, splits, groups=groups, properties=properties)

    def _start(self, name: str) -> LocalCluster:
        return self._stack.enter_context(local_cluster(self.directory / name, self.overrides, self._books(name)))

    def join(self, source: str, peer: str, alias: str | None = None, remote_table: str | None = None) -> None:
        """Send what is written to ``t`` of one cluster to another one."""
        replication = self[source].client.replication
        replication.define_cluster(alias or peer, self[peer].quorum)
        replication.enable("t", alias or peer, remote_table=remote_table)

    def write(self, cluster: str, prefix: str = "") -> set[bytes]:
        """Some rows, which only this call writes; returns them."""
        rows = {f"{prefix or cluster}{number:03}".encode() for number in range(ROWS)}
        with self[cluster].client.writer("t") as writer:
            for row in sorted(rows):
                writer.add(Mutation(row).put(b"f", b"q", cluster.encode()))
        return rows

    def settle(self, table: str = "t") -> None:
        """Return when nobody has anything left to send, however many clusters it has to pass."""
        for _ in self._clusters:
            for cluster in self._clusters.values():
                if any(one.table == table for one in cluster.client.replication.config()):
                    assert not cluster.client.replication.wait(table)

    def sent(self, cluster: str) -> int:
        """Records that left a cluster, over all of its edges; a record that left twice counts twice."""
        return sum(result.sent_records for result in self[cluster].replay.results)

    def passed(self, cluster: str) -> int:
        """Records of a cluster that its peers acknowledged, over all of its edges. A record that is sent again because
        its stream had ended meanwhile counts once.
        """
        return sum(result.records for result in self[cluster].replay.results)


@pytest.fixture
def clusters(tmp_path: Path, books: Books) -> Iterator[Map]:
    with ExitStack() as stack:
        yield Map(tmp_path, stack, books)


def holds(cluster: LocalCluster, rows: set[bytes], table: str = "t") -> None:
    wait_until(lambda: cluster.rows(table).keys() == rows, f"{len(rows)} rows in {cluster.settings.instance.name}")


def remembered(cluster: LocalCluster) -> list[object]:
    """Logs that its books and its tablets remember because of several paths."""
    rows = cluster.metadata.scan(*keys.section(keys.ROOT_PREFIX), ("recv",))
    tablets = cluster.tserver.parts.tablets.registry.all()
    received = [tablet.received.origin_intervals for tablet in tablets]
    return [*(row.key for row in rows), *(root for intervals in received for root in intervals.applied())]


def test_several_peers_of_a_table_each_get_everything_once(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    clusters.join("a", "b")
    clusters.join("a", "c")
    rows = clusters.write("a")
    holds(clusters["b"], rows)
    holds(clusters["c"], rows)
    clusters.settle()
    assert clusters.sent("a") == 2 * ROWS


def test_a_chain_passes_on_what_it_gets(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    clusters.join("b", "c")
    clusters.join("a", "b")
    rows = clusters.write("a")
    holds(clusters["c"], rows)
    clusters.settle()
    assert [clusters.sent(name) for name in "abc"] == [ROWS, ROWS, 0]


def repl_columns(cluster: LocalCluster) -> dict[str, int]:
    """The `repl:` columns of its tablets: for each file how many records have to travel."""
    found: dict[str, int] = {}
    for row in cluster.metadata.scan(*keys.table_section(cluster.client.tables.get("t").table_id), ("repl",)):
        for column, cell in row.cells.items():
            file = keys.parse_file(column.qualifier)
            found[file] = max(found.get(file, 0), values.decode_status(cell.value).replication_needed_offset)
    return found


def provenances(cluster: LocalCluster) -> set[tuple[str, ...]]:
    """The provenances of the blocks in the cluster's logs."""
    logs = [name for name in cluster.volume.list_names("wal/") if name.endswith(".wal")]
    return {
        tuple(found.header.provenance)
        for log in logs
        for found in read_headers(cluster.volume, log)
        if found.header.record_count
    }


def test_a_slave_that_is_a_master_makes_a_repl_column_of_its_own_and_adds_itself(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    clusters.join("b", "c")
    clusters.join("a", "b")
    clusters["c"].tserver.stop()
    rows = clusters.write("a")
    holds(clusters["b"], rows)
    wait_until(lambda: sum(repl_columns(clusters["b"]).values()) == ROWS, "the records of a wait at b")
    (log,) = repl_columns(clusters["b"])
    assert clusters["b"].volume.exists(log), "a log of b's own"
    first, second = (clusters[name].settings.instance.instance_id for name in "ab")
    assert provenances(clusters["b"]) == {(first,)}
    clusters["c"].replace_tserver()
    holds(clusters["c"], rows)
    assert provenances(clusters["c"]) == {(first, second)}
    assert repl_columns(clusters["c"]) == {}, "a cluster without peers has none"
    clusters.settle()


def test_two_masters_take_writes_of_both_and_send_none_back(clusters: Map) -> None:
    clusters.add("a", "b")
    clusters.join("a", "b")
    clusters.join("b", "a")
    rows = clusters.write("a") | clusters.write("b")
    for number, name in enumerate("ab" * 3):
        clusters[name].put("t", b"both", b"%d" % number, timestamp=1_000 + number)
    for name in "ab":
        holds(clusters[name], rows | {b"both"})
    clusters.settle()
    assert clusters["a"].rows("t") == clusters["b"].rows("t")
    assert clusters["a"].rows("t")[b"both"] == b"5"
    assert [clusters.sent(name) for name in "ab"] == [ROWS + 3, ROWS + 3]


def test_round_a_circle_of_three_every_record_crosses_every_edge_but_the_last_once(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    for source, peer in ("ab", "bc", "ca"):
        clusters.join(source, peer)
    rows = set.union(*(clusters.write(name) for name in "abc"))
    for name in "abc":
        holds(clusters[name], rows)
    clusters.settle()
    assert [clusters.sent(name) for name in "abc"] == [2 * ROWS] * 3, "its own, and those of the one before it"
    assert clusters["a"].rows("t") == clusters["b"].rows("t") == clusters["c"].rows("t")


KEPT = {"table.versions.max": "9"}
"""So that a record that is applied twice shows, as a version more."""


def versions(cluster: LocalCluster) -> Counter[bytes]:
    """How many versions there are of each row."""
    return Counter(cell.row for cell in cluster.client.scan("t", versions=9).cells())


def test_r22_by_two_paths_every_record_arrives_once(clusters: Map) -> None:
    clusters.add("a", splits=[b"a010"], properties=KEPT)
    clusters.add("b", splits=[b"a020"], properties=KEPT)
    clusters.add("c", splits=[b"a015", b"a030"], properties=KEPT)
    for source, peer in ("ab", "ac", "bc"):
        clusters.join(source, peer)
    clusters["c"].tserver.stop()
    rows = clusters.write("a")
    holds(clusters["b"], rows)
    clusters["c"].replace_tserver()
    rows |= clusters.write("a", "late") | clusters.write("b")
    holds(clusters["c"], rows)
    clusters.settle()
    clusters["c"].replace_tserver()
    assert versions(clusters["c"]) == dict.fromkeys(rows, 1)


@pytest.mark.long
def test_r22_where_each_is_joined_with_each_every_record_arrives_once_everywhere(clusters: Map) -> None:
    clusters.overrides |= SHORT_GRACE
    clusters.add("a", "b", "c", properties=KEPT)
    for source, peer in permutations("abc", 2):
        clusters.join(source, peer)
    rows = set.union(*(clusters.write(name) for name in "abc"))
    for name in "abc":
        holds(clusters[name], rows)
    clusters.settle()
    assert [versions(clusters[name]) for name in "abc"] == [dict.fromkeys(rows, 1)] * 3
    passed = {name: clusters.passed(name) for name in "abc"}
    assert max(passed.values()) <= 4 * ROWS, f"over two edges each, its own and one other's: {passed}"
    for name in "abc":
        clusters[name].tserver.parts.writing.path.roll()
        clusters[name].client.tables.flush("t")
    wait_until(lambda: not any(remembered(clusters[name]) for name in "abc"), "no cluster remembers any log")


def imported(clusters: Map, cluster: str) -> dict[bytes, int]:
    """Some rows come as an import of that cluster; returns how many versions each has."""
    incoming = clusters.directory / f"incoming-{cluster}"
    incoming.mkdir()
    lines = [f"{cluster}{number:03},f,q,{number}" for number in range(ROWS)]
    (incoming / "rows.csv").write_text("\n".join(["row,family,qualifier,value", *lines]))
    clusters[cluster].client.tables.import_directory("t", incoming)
    return {f"{cluster}{number:03}".encode(): 1 for number in range(ROWS)}


def ways(clusters: Map, cluster: str) -> list[str]:
    """How a cluster's logs of imports went: as files, as records, or not at all, for they had been there."""
    found = (result for result in clusters[cluster].replay.results if result.way)
    return sorted({"nothing" if "none of it" in result.way else result.way.partition(":")[0] for result in found})


@pytest.mark.long
def test_round_a_circle_an_import_goes_by_segment_transfer_and_not_back(clusters: Map) -> None:
    clusters.add("a", "b", "c", splits=[b"a020"], properties=KEPT)
    for source, peer in ("ab", "bc", "ca"):
        clusters.join(source, peer)
    rows = imported(clusters, "a")
    clusters["a"].put("t", b"a000", b"later")
    clusters.settle()
    assert [versions(clusters[name]) for name in "abc"] == [{**rows, b"a000": 2}] * 3
    newest = [next(cell.value for cell in clusters[name].client.scan("t").cells()) for name in "abc"]
    assert newest == [b"later"] * 3
    assert [ways(clusters, name) for name in "abc"] == [[BY_SEGMENTS], [BY_SEGMENTS], ["nothing"]]


@pytest.mark.long
def test_two_masters_give_each_other_their_imports_by_segment_transfer(clusters: Map) -> None:
    clusters.add("a", "b", properties=KEPT)
    clusters.join("a", "b")
    clusters.join("b", "a")
    rows = imported(clusters, "a") | imported(clusters, "b")
    clusters.settle()
    assert [versions(clusters[name]) for name in "ab"] == [rows, rows]
    assert [ways(clusters, name) for name in "ab"] == [["nothing", BY_SEGMENTS]] * 2


@pytest.mark.long
def test_at_the_end_of_a_chain_tablets_with_other_splits_share_transferred_segments(clusters: Map) -> None:
    clusters.add("a", "b", properties=KEPT)
    clusters.add("c", splits=[b"a010", b"a030"], properties=KEPT)
    clusters.join("a", "b")
    clusters.join("b", "c")
    rows = imported(clusters, "a")
    clusters.settle()
    assert [versions(clusters[name]) for name in "abc"] == [rows] * 3
    assert [ways(clusters, name) for name in "ab"] == [[BY_SEGMENTS]] * 2


@pytest.mark.long
def test_between_them_tablets_that_share_a_file_get_records(clusters: Map) -> None:
    clusters.add("a", "c", properties=KEPT)
    clusters.add("b", splits=[b"a010"], properties=KEPT)
    clusters.join("a", "b")
    clusters.join("b", "c")
    rows = imported(clusters, "a")
    clusters.settle()
    assert [versions(clusters[name]) for name in "abc"] == [rows] * 3
    assert ways(clusters, "a") == ["records"]


def test_r22_an_import_by_segments_on_one_path_and_by_records_on_another_is_there_once(
    clusters: Map,
) -> None:
    clusters.add("a", "b", "c", splits=[b"a020"], properties=KEPT)
    for source, peer in ("ab", "ac", "bc"):
        clusters.join(source, peer)
    rows = imported(clusters, "a")
    clusters.settle()
    assert versions(clusters["c"]) == rows


@pytest.mark.long
def test_r22_a_group_may_go_straight_and_another_by_way_of_a_third(clusters: Map) -> None:
    groups = [LocalityGroup("geo", (b"f",)), LocalityGroup("label", (b"name",))]
    for name in "abc":
        clusters.add(name, groups=groups, properties=KEPT)
    for source, peer, group in (("a", "b", ["geo"]), ("a", "c", ["label"]), ("b", "c", None)):
        replication = clusters[source].client.replication
        replication.define_cluster(peer, clusters[peer].quorum)
        replication.enable("t", peer, group)
    with clusters["a"].client.writer("t") as writer:
        for number in range(ROWS):
            row = b"%03d" % number
            writer.add(Mutation(row).put(b"f", b"q", row).put(b"name", b"q", row))
    clusters.settle()
    assert versions(clusters["c"]) == {b"%03d" % number: 2 for number in range(ROWS)}


def test_a_peer_may_have_another_table_name_and_other_split_points(clusters: Map) -> None:
    clusters.add("a", splits=[b"a010", b"a030"])
    clusters.add("b", table="copy", splits=[b"a005", b"a020", b"a021"])
    clusters.join("a", "b", remote_table="copy")
    clusters["a"].client.tables.change_properties("t", {"table.age_off_ms": "86400000", "table.versions.max": "3"})
    rows = clusters.write("a")
    holds(clusters["b"], rows, "copy")
    clusters.settle()
    assert clusters.sent("a") == ROWS
    assert not clusters["b"].client.tables.get("copy").properties, "each cluster has its own"


def test_groups_may_go_to_different_peers(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    groups = [LocalityGroup("geo", (b"lat", b"lon")), LocalityGroup("label", (b"name",))]
    clusters["a"].client.tables.create("places", groups=groups)
    for peer, group in (("b", "geo"), ("c", "label")):
        clusters[peer].client.tables.create("places")
        replication = clusters["a"].client.replication
        replication.define_cluster(peer, clusters[peer].quorum)
        replication.enable("places", peer, [group])
    with clusters["a"].client.writer("places") as writer:
        for row in (b"bern", b"ulm"):
            writer.add(Mutation(row).put(b"lat", b"", b"46").put(b"lon", b"", b"7").put(b"name", b"", b"x"))
            writer.add(Mutation(row).put(b"other", b"", b"goes nowhere"))
    clusters.settle("places")
    families = {name: {cell.family for cell in clusters[name].client.scan("places").cells()} for name in "bc"}
    assert families == {"b": {b"lat", b"lon"}, "c": {b"name"}}
    assert clusters.sent("a") == 3 * 2


def test_one_cluster_under_two_names_is_refused_with_its_name(clusters: Map) -> None:
    clusters.add("a", "b")
    clusters.join("a", "b")
    with pytest.raises(ExistsError, match="cluster b is the same instance"):
        clusters["a"].client.replication.define_cluster("other", clusters["b"].quorum)
    with pytest.raises(PermanentError):
        clusters["a"].client.replication.define_cluster("myself", clusters["a"].quorum)
    assert [peer.name for peer in clusters["a"].client.replication.clusters()] == ["b"]


def test_a_peer_that_is_away_for_the_whole_load_gets_it_later_and_delays_nobody(clusters: Map) -> None:
    clusters.add("a", "b", "c")
    clusters.join("a", "b")
    clusters.join("a", "c")
    clusters["b"].tserver.stop()
    rows = clusters.write("a", "one") | clusters.write("a", "two")
    holds(clusters["c"], rows)
    status = clusters["a"].client.replication.status
    wait_until(lambda: {one.target.cluster for one in status("t") if one.lag_records} == {"b"}, "a lag of b alone")
    clusters["b"].replace_tserver()
    holds(clusters["b"], rows)
    clusters.settle()


def test_a_table_of_a_peer_that_is_made_again_is_another_one_until_it_is_enabled_again(clusters: Map) -> None:
    clusters.add("a", "b")
    clusters.join("a", "b")
    holds(clusters["b"], clusters.write("a"))
    tables, replication = clusters["b"].client.tables, clusters["a"].client.replication
    tables.delete("t")
    tables.create("t")
    clusters["a"].put("t", b"to-the-old-one", b"1")
    wait_until(
        lambda: any("To begin anew" in (one.last_error or "") for one in replication.status("t")), "what is wrong"
    )
    told = next(one.last_error or "" for one in replication.status("t") if one.last_error)
    assert "disablereplication -t t --all-loc-groups b, then enablereplication -t t --all-loc-groups b" in told
    assert clusters["b"].rows("t") == {}
    (lost,) = replication.disable("t", "b").warnings
    assert re.match("up to [1-9][0-9]* records of table t in 1 file had not reached b and are not sent any more", lost)
    (missing,) = replication.enable("t", "b").warnings
    assert "also those written while replication to it was disabled" in missing
    clusters["a"].put("t", b"new", b"1")
    holds(clusters["b"], {b"new"})
    clusters.settle()
