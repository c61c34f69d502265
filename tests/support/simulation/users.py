"""Users and operators of a simulated world: processes that call tservers and masters, and what they were told.

Arrives: what a schedule wants written or commanded. Leaves: :class:`Write`, one a record, with what became of it as
its user knows it; the laws compare that with what the tablets hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookkeeper.errors import BookkeeperError
from bookkeeper.metadata import keys, values
from bookkeeper.model import MUTATION_SCHEMA, Extent, LocalityGroup, TargetKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, ImportRequest, QuarantinedRange, WriteBatch
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.imports import GIVEN, write_input
from tests.support.simulation.kernel import Kernel, Process, Task
from tests.support.simulation.ledger import Ledger
from tests.support.simulation.network import SimPool
from tests.support.simulation.promises import Lane, Promises

PLAIN = b"f"
"""A family of the default group."""

GOLD = LocalityGroup("gold", (b"g",))
"""The named group that tables may have."""

WRITE_MS = 3_000
"""How long a user waits for the answer to a write."""


@dataclass(eq=False)
class Write:
    """One record of a user. ``state``: pending, acked, unknown (an answer never came), refused."""

    cluster: str
    table: str
    row: bytes
    family: bytes
    column: bytes
    value: bytes
    delete: bool
    durability: str
    table_id: str = ""
    """Of the table that had the name when the call was made; empty when there was none."""
    state: str = "pending"
    open_lanes: frozenset[Lane] = frozenset()
    """The targets that were promised when the call was made."""
    ended_lanes: frozenset[Lane] = frozenset()
    """The targets that were promised to get nothing."""

    def mutation(self, timestamp: int | None) -> dict[str, object]:
        """As a batch holds it."""
        return {
            "row": self.row,
            "family": self.family,
            "qualifier": self.column,
            "visibility": b"",
            "timestamp": timestamp,
            "delete": self.delete,
            "value": self.value,
        }


class Users(ABC):
    """The part of a world that its users make."""

    kernel: Kernel
    directory: Path
    writes: list[Write]
    results: list[str]
    ledger: Ledger
    promises: dict[str, Promises]
    _clients: int

    @abstractmethod
    def until(self, condition: Callable[[], bool], what: str, limit_s: float = 120.0, look_every: int = 1) -> None:
        """See :class:`tests.support.simulation.world.World`."""

    def client(self, cluster: Cluster, name: str, run: Callable[[SimPool], object]) -> Task:
        """A process of a user."""
        self._clients += 1
        process = Process(f"user{self._clients}", cluster.name)
        hello = Hello(PROTOCOL_VERSION, cluster.instance, cluster.name, "client")

        def body() -> None:
            try:
                run(SimPool(hello))
            except BookkeeperError as error:
                self.kernel.note(f"{process.name} {name}: {error.code}: {error.message}")
                self.results.append(f"{name}: {error.code}")
            else:
                self.results.append(f"{name}: ok")

        return self.kernel.spawn(process, name, body)

    # ---- writing

    def write(
        self,
        cluster: Cluster,
        table: str,
        rows: Sequence[bytes],
        *,
        delete: bool = False,
        durability: str = "sync",
        families: Sequence[bytes] = (PLAIN,),
        column: bytes = b"q",
        timestamp: int | None = None,
        ending: bytes = b"",
        timeout_ms: float = WRITE_MS,
    ) -> tuple[Task, list[Write]]:
        """One call that writes a record in each family of each row (all of one tablet); its user waits ``timeout_ms``
        for the answer.
        """
        made = []
        for row in rows:
            for family in families:
                value = b"v%d" % (len(self.writes) + 1) + ending
                made.append(Write(cluster.name, table, row, family, column, value, delete, durability))
                self.writes.append(made[-1])

        def run(pool: SimPool) -> None:
            try:
                self._write(cluster, pool, made, timestamp, timeout_ms)
            except BookkeeperError:
                for write in made:
                    write.state = "unknown" if write.state == "pending" else write.state
                raise

        return self.client(cluster, f"write {made[0].value.decode()} to {table}", run), made

    def _write(
        self, cluster: Cluster, pool: SimPool, writes: Sequence[Write], timestamp: int | None, timeout_ms: float
    ) -> None:
        place = locate(cluster, writes[0].table, writes[0].row)
        if place is None:
            for write in writes:
                write.state = "refused"
            return
        extent, address = place
        table, promises = cluster.config().table(extent.table_id), self.promises[cluster.name]
        for write in writes:
            write.table_id = extent.table_id
            write.open_lanes = promises.of(promises.open, table, write.family)
            write.ended_lanes = promises.of(promises.ended, table, write.family)
        batch = pa.RecordBatch.from_pylist([write.mutation(timestamp) for write in writes], schema=MUTATION_SCHEMA)
        answer = pool.tserver(address, timeout_ms).write(
            [WriteBatch(extent, encode_batch(batch).to_pybytes())], writes[0].durability, "", 0
        )
        for write in writes:
            write.state = "refused" if answer.not_serving else "acked"

    def put(self, cluster: Cluster, table: str, *rows: bytes, **options: Any) -> list[Write]:
        """A write, and wait for its answer; it must be acknowledged."""
        task, made = self.write(cluster, table, rows, **options)
        self.until(lambda: task.done, f"an answer to {made[0].value!r}")
        assert made[0].state == "acked", f"{made[0]} {self.results[-1:]}"
        return made

    # ---- imports

    def import_files(
        self, cluster: Cluster, table: str, rows: Sequence[bytes], families: Sequence[bytes] = (PLAIN,)
    ) -> tuple[Task, list[Write]]:
        """An operator imports a file with a record in each family of each row. Each has a cell of its own."""
        number = self._clients
        made = []
        for row in rows:
            for family in families:
                name = b"%d" % (len(self.writes) + 1)
                made.append(Write(cluster.name, table, row, family, b"i" + name, b"v" + name, False, "sync"))
                self.writes.append(made[-1])
        directory = self.directory / GIVEN / str(number)
        write_input(directory, [{**write.mutation(None), "value": write.value} for write in made])
        request = ImportRequest(f"{number:032x}", table, str(directory), None)
        leader = cluster.leader()
        assert leader is not None, f"no master leads {cluster.name}"
        address = leader.part.address

        def run(pool: SimPool) -> None:
            table_id = cluster.table_id(table)
            for write in made:
                write.table_id, write.state = table_id, "unknown"
            while not pool.master(address, 60_000).import_directory(request).done:
                continue
            for write in made:
                write.state = "acked"

        return self.client(cluster, f"import of {made[0].value.decode()} into {table}", run), made

    # ---- commands

    def ask(self, cluster: Cluster, method: str, *arguments: Any) -> Task:
        """A command of an operator to the leading master."""
        leader = cluster.leader()
        assert leader is not None, f"no master leads {cluster.name}"
        address = leader.part.address

        def run(pool: SimPool) -> None:
            answer = getattr(pool.master(address, 60_000), method)(*arguments)
            if method in ("enable_replication", "disable_replication"):
                self.promises[cluster.name].answered(cluster, str(arguments[0]), answer.targets)

        return self.client(cluster, method, run)

    def see_to_range(self, cluster: Cluster, method: str, choice: int) -> Task:
        """An operator lists the permanent errors, and holds, retries or skips one of the ranges."""
        leader = cluster.leader()
        assert leader is not None, f"no master leads {cluster.name}"
        address = leader.part.address

        def run(pool: SimPool) -> None:
            master = pool.master(address, 60_000)
            found = master.quarantine("")
            if found:
                chosen: QuarantinedRange = found[choice % len(found)]
                if method == "skip_range":
                    self.ledger.set_aside.skip(chosen)
                getattr(master, method)(chosen.range_id)

        return self.client(cluster, method, run)

    def command(self, cluster: Cluster, method: str, *arguments: Any) -> None:
        """A command that must succeed."""
        task = self.ask(cluster, method, *arguments)
        self.until(lambda: task.done, f"{method}{arguments}")
        assert self.results[-1] == f"{method}: ok", self.results[-1]

    def enable(
        self, cluster: Cluster, table: str, peer: Cluster, remote_table: str = "", groups: Sequence[str] = ()
    ) -> TargetKey:
        """``enablereplication`` of some groups, of all when none is named; returns the target."""
        before = set(cluster.targets())
        self.command(cluster, "enable_replication", table, list(groups), peer.name, remote_table)
        (made,) = set(cluster.targets()) - before
        return made

    def disable(self, cluster: Cluster, table: str, peer: Cluster, groups: Sequence[str] = ()) -> None:
        """``disablereplication`` of some groups, of all when none is named."""
        self.command(cluster, "disable_replication", table, list(groups), peer.name)

    def roll(self, node: Node) -> None:
        """Seal a tserver's log."""
        task = self.kernel.spawn(node.process, "roll", lambda: node.part.parts.writing.committer.roll() and None)
        self.until(lambda: task.done, f"{node.name} rolls its log")


def locate(cluster: Cluster, table: str, row: bytes) -> tuple[Extent, str] | None:
    """The tablet of a row and who it is assigned to, as a client finds it; None while there is none."""
    table_id = next((t for t, config in cluster.config().tables.items() if config.name == table), None)
    extents = [] if table_id is None else cluster.extents(table_id)
    extent = next((extent for extent in extents if extent.contains(row)), None)
    if extent is None:
        return None
    location = cluster.table.row(keys.tablet_row(extent.table_id, extent.end_row), ("location",))
    if location is None:
        return None
    return extent, values.Location.decode(location.cells[keys.LOCATION].value).address
