"""``table.replicas`` changes from 1 to 3 and back while rows are written, with real processes that are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from tests.support.cluster import Cluster
from tests.support.replica_looks import tablets, voters

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % number for number in range(60)]
SPLITS = [b"015", b"030", b"045"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts."""
    overrides = {"standalone.hosts": 3, "master.scan_interval_ms": 500}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


class Writer:
    """Writes all rows again and again; each cell has a number that only rises. ``acknowledged``: the last one."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged = 0
        self._stop = threading.Event()
        self._cluster = cluster
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.write(self._cluster.client)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.error = error

    def write(self, client: Client) -> None:
        """All rows, acknowledged."""
        number = self.acknowledged + 1
        with client.writer("t") as writer:
            for row in ROWS:
                writer.add(Mutation(row).put(b"f", b"q", b"%06d" % number))
        self.acknowledged = number

    def end(self) -> None:
        """Stop; raises what it ran into."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def replicas(cluster: Cluster) -> list[int]:
    """The complete voters of each tablet; empty while the master changes."""
    return [len(voters(tablet)) for tablet in tablets(cluster)]


def values(cluster: Cluster) -> dict[bytes, bytes]:
    """All rows."""
    return {cell.row: cell.value for cell in cluster.client.scan("t").cells()}


@pytest.mark.long
def test_a_table_moves_to_hosts_and_back_while_it_is_written_and_processes_are_killed(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", splits=SPLITS)
    writer = Writer(cluster)
    cluster.wait_until(lambda: writer.acknowledged > 2, "rows")
    client.tables.flush("t")

    client.tables.change_properties("t", {"table.replicas": "3"})
    cluster.kill9("master")
    cluster.wait_until(lambda: replicas(cluster) == [3] * 4, "three complete replicas of each tablet")
    seen = writer.acknowledged
    cluster.wait_until(lambda: writer.acknowledged > seen + 1, "rows on hosts")
    cluster.kill9("host2.tserver1")
    cluster.wait_until(lambda: replicas(cluster) == [3] * 4, "three complete replicas again")

    client.tables.change_properties("t", {"table.replicas": "1"})
    cluster.kill9("master")
    cluster.wait_until(lambda: replicas(cluster) == [0] * 4, "no tablet has replicas on hosts")
    seen = writer.acknowledged
    cluster.wait_until(lambda: writer.acknowledged > seen + 1, "rows on the Volume")
    writer.end()
    assert values(cluster) == dict.fromkeys(ROWS, b"%06d" % writer.acknowledged)
    cluster.kill9("tserver1")
    assert values(cluster) == dict.fromkeys(ROWS, b"%06d" % writer.acknowledged)
