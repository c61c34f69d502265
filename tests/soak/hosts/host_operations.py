"""The orders of a plan to a cluster of three hosts: splits, merges, moves, other numbers of replicas, and imports.

Each is decided by the step's pick. One that the cluster can't take now, because hosts are away or the master changes,
is passed over with a line in the trace; an import is given again until it is there, because it may be there in part.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.errors import BookkeeperError, RefusedError, TransientError
from tests.soak.hosts.host_plan import HostFault, HostStep
from tests.soak.trace import Trace
from tests.support.hosted_cluster import HOSTS, HostedCluster
from tests.support.workloads import CellKey, LinkedList
from tests.support.workloads_hosts import Trios
from tests.support.workloads_run import Loader

TABLETS_MAX = 6
"""A table with so many tablets is not split any more."""
NUMBERS = {"links": (2, 3), "mix": (2, 3), "plain": (1, 2)}
"""The numbers of replicas that a table may get: one can't have ``table.failover`` and a single replica."""
IMPORTED_ROWS = 40
IMPORT_TRIES_MAX = 10
IMPORTED_MS = 5
"""The time of imported cells: an import that is given twice changes nothing."""


@dataclass(frozen=True, slots=True)
class HostOperations:
    """Gives one order after the other; used by several threads."""

    trios: Trios
    trace: Trace

    def give(self, step: HostStep) -> None:
        """Give the order of a step. Raises BookkeeperError if the cluster refuses what it should take."""
        orders: dict[HostFault, Callable[[random.Random, HostedCluster], None]] = {
            HostFault.SPLIT: self._split,
            HostFault.MERGE: self._merge,
            HostFault.MOVE: self._move,
            HostFault.REPLICAS: self._change_replicas,
            HostFault.IMPORT: self._import,
        }
        try:
            orders[step.fault](random.Random(step.pick), self.trios.hosted[step.side])
        except TransientError as error:
            self._pass_over(step.fault.value, error)

    def _pass_over(self, what: str, error: BookkeeperError) -> None:
        self.trace.say(f"not done: {what}: {error.message}")

    def _split(self, rng: random.Random, hosted: HostedCluster) -> None:
        loader = rng.choice(self.trios.loaders)
        self._split_at(hosted, loader.workload.table, _row(rng, loader), [])

    def _move(self, rng: random.Random, hosted: HostedCluster) -> None:
        """Give the part of a tablet to as many hosts as its table wants."""
        (loader,) = [loader for loader in self.trios.loaders if loader.workload.table == "mix"]
        row, wanted = _row(rng, loader), int(hosted.cluster.client.tables.get("mix").properties["table.replicas"])
        try:
            self._split_at(hosted, "mix", row, rng.sample(HOSTS, wanted))
        except RefusedError as error:  # a host is away, or drained
            self._pass_over("move a part of mix", error)

    def _split_at(self, hosted: HostedCluster, table: str, row: bytes, onto: list[str]) -> None:
        tables = hosted.cluster.client.tables
        if len(tables.splits(table)) + 1 >= TABLETS_MAX:
            self.trace.say(f"not split: {table} has {TABLETS_MAX} tablets")
            return
        tables.add_splits(table, [row], onto)

    def _merge(self, rng: random.Random, hosted: HostedCluster) -> None:
        """Merge two tablets of a table."""
        table, tables = rng.choice(self.trios.loaders).workload.table, hosted.cluster.client.tables
        borders: list[bytes | None] = [None, *tables.splits(table), None]
        if len(borders) == 2:
            self.trace.say(f"not merged: {table} has one tablet")
            return
        at = rng.randrange(len(borders) - 2)
        tables.merge(table, borders[at], borders[at + 2])

    def _change_replicas(self, rng: random.Random, hosted: HostedCluster) -> None:
        table = rng.choice(sorted(NUMBERS))
        number = rng.choice(NUMBERS[table])
        try:
            hosted.cluster.client.tables.change_properties(table, {"table.replicas": str(number)})
        except RefusedError as error:  # fewer hosts are alive
            self._pass_over(f"{number} replicas of {table}", error)
            return
        self.trace.say(f"{table} has {number} replicas from now on")

    def _import(self, rng: random.Random, hosted: HostedCluster) -> None:
        """Import rows of their own into a table, and expect them from then on."""
        loader = rng.choice([loader for loader in self.trios.loaders if loader.workload.table != "plain"])
        exchange = hosted.cluster.settings.directory / "exchange"
        directory = exchange / f"import-{loader.workload.table}-{rng.randrange(10**12)}"
        directory.mkdir(parents=True)
        cells = _cells(rng, loader, directory.name)
        _write(directory, cells)
        for _ in range(IMPORT_TRIES_MAX):
            try:
                hosted.cluster.client.tables.import_directory(loader.workload.table, directory)
            except TransientError as error:
                self._pass_over(f"import into {loader.workload.table}", error)
            else:
                loader.imported.update(cells)
                return
        raise AssertionError(f"{directory} is not imported into {loader.workload.table}")


def _row(rng: random.Random, loader: Loader) -> bytes:
    """A row between those that a workload writes."""
    if isinstance(loader.workload, LinkedList):
        return b"%04x" % rng.randrange(1 << 16)
    return b"row-%04d" % rng.randrange(150)


def _cells(rng: random.Random, loader: Loader, name: str) -> dict[CellKey, bytes]:
    """Cells in all tablets, in rows that no batch and no import of another name writes."""
    family = loader.workload.groups[-1].families[-1]
    rows = [b"%b %b %d" % (_row(rng, loader), name.encode(), place) for place in range(IMPORTED_ROWS)]
    return {(row, family, b"imported"): b"%d" % rng.randrange(10**9) for row in rows}


def _write(directory: Path, cells: dict[CellKey, bytes]) -> None:
    rows, families, qualifiers = zip(*cells, strict=True)
    columns = {"row": rows, "family": families, "qualifier": qualifiers, "value": tuple(cells.values())}
    table = pa.table({name: [value.decode() for value in values] for name, values in columns.items()})
    table = table.append_column("timestamp", pa.array([IMPORTED_MS] * len(cells), pa.int64()))
    pq.write_table(table, directory / "cells.parquet")
