"""A host joins a tablet: the bytes that it gets, how fast, and what the leader writes meanwhile.

The first joiner gets its files in quiet, and a plain copy of the same files follows in the same run. The second one
gets them while the leader takes writes; the same writes before it are the reference.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figure import Figure
from tests.benchmarks.host_processes import HostProcesses, host_processes
from tests.benchmarks.plain_receiver import copy_plain
from tests.support.tservers import wait_until

SIZE_BYTES, LARGE_BYTES = 256 << 20, 1 << 30
INGEST_BATCHES, LARGE_BATCHES = 400, 1_500
"""Several times what a memtable takes."""
ROWS, VALUE_BYTES = 64, 4 << 10
"""Of a batch: small ones, so that many of them fit into one join."""
FIRST_ROW = 1 << 40
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Joined:
    """One joiner. ``list_bytes``: of the files of the leader's newest list; ``received_bytes``: content that came."""

    list_bytes: int
    received_bytes: int
    bytes_per_s: float


def received(hosts: HostProcesses, name: str) -> int:
    """Content that a host has got of segments."""
    return hosts.fact(name, "segment_bytes_received")


def begun(hosts: HostProcesses, name: str) -> float:
    """Start a host that joins, and wait for its first bytes; the time of the last look that found none."""
    hosts.start(name)
    hosts.place(name, "joining")
    began = time.perf_counter()

    def has_some() -> bool:
        nonlocal began
        looked = time.perf_counter()
        if received(hosts, name) > 0:
            return True
        began = looked
        return False

    wait_until(has_some, f"the first bytes on {name}", LIMIT_S)
    return began


def joined(hosts: HostProcesses, name: str) -> Joined:
    """Let a host join in quiet. The time begins with the last look without a byte: a leader learns of a joiner at the
    end of a wait, and a small join may be over at the next look.
    """
    began = begun(hosts, name)
    wait_until(lambda: hosts.files(name) == hosts.files(hosts.leader), f"all files on {name}", LIMIT_S)
    took = time.perf_counter() - began
    hosts.wait_same(name)
    here = received(hosts, name)
    return Joined(sum(hosts.files(hosts.leader).values()), here, here / took)


class Ingest:
    """Writes acknowledged batches at the leader."""

    def __init__(self, hosts: HostProcesses) -> None:
        self._hosts = hosts
        self._row = FIRST_ROW
        self.batches = 0

    def batch(self) -> None:
        """Write one."""
        self._hosts.write(self._row, ROWS, VALUE_BYTES)
        self._row += ROWS
        self.batches += 1


def ingest_rates(hosts: HostProcesses, name: str, batches: int) -> tuple[float, float]:
    """Batches a second without a join, and while a host joins. After each batch of both a reader asks how far a host
    is, and both are long enough for flushes, which go to hosts, too.
    """
    ingest = Ingest(hosts)
    began = time.perf_counter()
    for _ in range(batches):
        ingest.batch()
        received(hosts, "host2")
    alone = ingest.batches / (time.perf_counter() - began)
    size = sum(hosts.files(hosts.leader).values())
    begun(hosts, name)
    before, began = ingest.batches, time.perf_counter()
    while ingest.batches == before or received(hosts, name) < size:
        ingest.batch()
    return alone, (ingest.batches - before) / (time.perf_counter() - began)


def run(large: bool = False) -> list[Figure]:
    """Measure; takes half a minute, or about two."""
    return measure(LARGE_BYTES, LARGE_BATCHES) if large else measure()


def measure(size_bytes: int = SIZE_BYTES, batches: int = INGEST_BATCHES) -> list[Figure]:
    """One tablet of about this many bytes, and two joiners."""
    with host_processes() as hosts, tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as scratch:
        hosts.write_bytes(size_bytes)
        quiet = joined(hosts, "host2")
        paths = [hosts.path(hosts.leader, file) for file in hosts.files(hosts.leader)]
        plain_seconds = sum(copy_plain(path, Path(scratch) / path.name).seconds for path in paths)
        alone, meanwhile = ingest_rates(hosts, "host3", batches)
    return figures_of(quiet, quiet.list_bytes / plain_seconds, alone, meanwhile)


def figures_of(quiet: Joined, plain_bytes_per_s: float, alone: float, meanwhile: float) -> list[Figure]:
    """The figures of both joins. Raises AssertionError when the joiner got less than the list has."""
    if quiet.received_bytes < 0.99 * quiet.list_bytes:
        raise AssertionError(f"a joiner got {quiet.received_bytes} of {quiet.list_bytes} bytes, so a count is wrong")
    return [
        Figure(
            name="content that a joiner gets",
            value=quiet.received_bytes / 1e6,
            unit="MB",
            reference=quiet.list_bytes / 1e6,
            reference_name="files of the newest list",
            reference_unit="MB",
            ratio=quiet.received_bytes / quiet.list_bytes,
            target=1.01,
            target_of="ratio",
            lower_is_better=True,
        ),
        Figure(
            name="a join in quiet",
            value=quiet.bytes_per_s / 1e6,
            unit="MB/s",
            reference=plain_bytes_per_s / 1e6,
            reference_name="plain copy of the same files",
            reference_unit="MB/s",
            ratio=quiet.bytes_per_s / plain_bytes_per_s,
            target=0.8,
            target_of="ratio",
        ),
        Figure(
            name="writes at the leader during a join",
            value=meanwhile,
            unit="batches/s",
            reference=alone,
            reference_name="without a join",
            reference_unit="batches/s",
            ratio=meanwhile / alone,
            target=0.8,
            target_of="ratio",
        ),
    ]
