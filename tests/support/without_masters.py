"""No master lives: kept away by kill -9 at each restart; and a reader of a table that asks none.

Arrives: clusters that run. Leaves: a block inside which no master leads, and how long acknowledged rows needed to a
peer meanwhile. The supervisors start masters all the time; each is killed before it leads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from bookkeeper.client import Client
from bookkeeper.clock import Clock
from bookkeeper.errors import TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.contract.messages import ScanRequest
from bookkeeper.storage.wal.blocks.block import decode_batch
from bookkeeper.tserver.receive.receiving_tablets import LOCATION_FAMILIES, located
from tests.support.books import books_of
from tests.support.cluster import Cluster
from tests.support.log_files import logs_below
from tests.support.time_limit import TimeLimit
from tests.support.workloads import LinkedList
from tests.support.workloads_run import Loader

LOOK_MS = 10
"""Between two looks for a master that was started."""

LEADS = " leads, epoch "
"""What a master logs when it begins to lead."""

TRIES = 3
"""Times that a test keeps masters away until none has led meanwhile."""

LATE_MS = 2_000
TIMEOUT_MS = 5_000
PAGE_BYTES = 64 * 1024


@dataclass(slots=True)
class Absence:
    """Of masters. ``failed``: one led meanwhile, since the test stood still while it began; known after the block."""

    failed: bool = False


@contextmanager
def masters_away(clusters: Sequence[Cluster], clock: Clock) -> Iterator[Absence]:
    """Kill the masters of these clusters, and each one that their supervisors start inside the block."""
    absence = Absence()
    led = [cluster.log_text("master").count(LEADS) for cluster in clusters]
    stop = threading.Event()
    for cluster in clusters:
        kill_master(cluster)
    threads = [threading.Thread(target=_keep_away, args=(cluster, clock, stop)) for cluster in clusters]
    for thread in threads:
        thread.start()
    try:
        yield absence
    finally:
        absence.failed = [cluster.log_text("master").count(LEADS) for cluster in clusters] != led
        stop.set()
        for thread in threads:
            thread.join()


def kill_master(cluster: Cluster) -> None:
    """Kill the master that the supervisor has written down, unless it has ended."""
    try:
        process = psutil.Process(cluster.pid("master"))
        if str(cluster.directory) in process.cmdline():
            process.kill()
    except psutil.NoSuchProcess:
        return


def _keep_away(cluster: Cluster, clock: Clock, stop: threading.Event) -> None:
    while not clock.wait(stop, LOOK_MS):
        kill_master(cluster)


class Reader:
    """Reads rows of one table of a cluster at the tservers that the books name."""

    def __init__(self, cluster: Cluster, client: Client, table: str) -> None:
        self._books: MetadataTable = books_of(cluster.settings)
        self._pool = client._pool
        self._table_id = client.tables.get(table).table_id

    def has(self, row: bytes) -> bool:
        """Whether the row is there; False as well while its tablet is not served."""
        try:
            rows = self._books.scan(*keys.table_section(self._table_id), LOCATION_FAMILIES)
            tablets = [tablet for found in rows if (tablet := located(found)) is not None]
            tablet = next(tablet for tablet in tablets if tablet.extent.contains(row))
            if tablet.address is None:
                return False
            request = ScanRequest(tablet.extent, row, row + b"\x00", (), (), None, PAGE_BYTES)
            page = self._pool.tserver(tablet.address, TIMEOUT_MS).scan(request)
        except TransientError:
            return False
        return bool(decode_batch(page.records).num_rows)

    def close(self) -> None:
        """Let go of the books."""
        self._books.close()


@contextmanager
def reading(cluster: Cluster, table: str) -> Iterator[Reader]:
    """A reader for the block; its master is asked for the table's id before."""
    reader = Reader(cluster, cluster.client, table)
    try:
        yield reader
    finally:
        reader.close()


def lag_ms(loader: Loader, reader: Reader, clock: Clock, limit_s: float) -> float:
    """How long a batch of a linked list that is acknowledged after the call needs to the peer, with all its rows, which
    lie in all tablets. Raises AssertionError after ``limit_s``.
    """
    workload = loader.workload
    assert isinstance(workload, LinkedList)
    loader.wait_acknowledged(loader.acknowledged + 1, limit_s)
    number, acknowledged_ns = loader.acknowledged - 1, clock.boot_ns()
    limit = TimeLimit(limit_s, clock)
    for place in range(workload.width):
        row = workload.row(number, place)
        while not reader.has(row):
            assert not limit.is_over(), f"{row!r} of batch {number} did not arrive in {limit_s:.0f} s"
            limit.pause()
    return (clock.boot_ns() - acknowledged_ns) / 1e6


def logs_of(cluster: Cluster) -> set[str]:
    """The names of all logs of a cluster's tservers."""
    return {str(path.relative_to(cluster.settings.wal_dir)) for path in logs_below(cluster.settings.wal_dir)}


def said(lags_ms: Sequence[float]) -> str:
    """Some lags, for people."""
    ordered = sorted(lags_ms)
    p50, p90 = (ordered[len(ordered) * percent // 100] for percent in (50, 90))
    late = sum(1 for lag in ordered if lag > LATE_MS)
    return f"{len(ordered)} batches: p50 {p50:.0f} ms, p90 {p90:.0f} ms, max {ordered[-1]:.0f} ms, {late} above 2 s"
