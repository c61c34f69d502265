"""A cluster in one process for tests of the client: real servers and calls, tablets that are plain lists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from msgspec.structs import replace

from bookkeeper.errors import NotFoundError, NotLeaderError, NotServingError
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.rpc.contract.messages import (
    FileMark,
    ScanPage,
    ScanRequest,
    TableInfo,
    TabletLocation,
    TargetStatus,
    WriteBatch,
    WriteResult,
)
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.storage.tablet.batch_routing import split_by_tablets
from bookkeeper.storage.wal.blocks.block import decode_batch, encode_batch
from bookkeeper.tserver.maintenance.stale_reads import reason_against
from tests.support.rpc_peer import serving

NOW_MS = 1_000_000
"""The wall clock of hosts that follow."""

TABLE = TableInfo("1", "t", "online", (), {})


def extents_of(*ends: bytes) -> list[Extent]:
    """The tablets of table "1" that end at these rows."""
    bounds: list[bytes | None] = [None, *ends, None]
    return [Extent("1", end, start) for start, end in pairwise(bounds)]


class _Rest:
    """Methods that no test calls."""

    def status(self) -> Mapping[str, str]:
        return {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*_: object) -> None:
            raise NotFoundError(f"the fake has no {name}")

        return refuse


@dataclass
class FakeTServer(_Rest):
    """Holds the records written to its tablets, in order. ``before`` and ``after`` a write a test may raise."""

    serves: set[Extent] = field(default_factory=set)
    records: list[dict[str, Any]] = field(default_factory=list)
    before: Callable[[Sequence[WriteBatch]], None] = lambda _: None
    after: Callable[[Sequence[WriteBatch]], None] = lambda _: None
    durabilities: set[str] = field(default_factory=set)
    writes: int = 0
    scans: int = 0
    pages_asked: list[int] = field(default_factory=list)
    follows: dict[Extent, tuple[int, int]] = field(default_factory=dict)
    """Tablets of which it holds a replica: the state, and the time of its last record."""
    least_states: list[int | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult:
        del writer, attempt
        self.before(batches)
        self.durabilities.add(durability)
        elsewhere = []
        with self.lock:
            self.writes += 1
            for batch in batches:
                if batch.extent not in self.serves:
                    elsewhere.append(batch.extent)
                    continue
                decoded = decode_batch(batch.records)
                assert [extent for extent, _ in split_by_tablets(decoded, [batch.extent])] == [batch.extent]
                self.records += decoded.to_pylist()
        self.after(batches)
        return WriteResult(tuple(elsewhere))

    def scan(self, request: ScanRequest) -> ScanPage:
        """Pages of two records; the mark is the number of the next one among those asked for."""
        self.scans += 1
        self.pages_asked.append(request.page_bytes)
        state_id, as_of_ms = None, None
        if request.extent not in self.serves:
            if request.stale_ms is None or request.extent not in self.follows:
                raise NotServingError("not here")
            self.least_states.append(request.least_state)
            state_id, as_of_ms = self.follows[request.extent]
            if reason := reason_against(state_id, as_of_ms, NOW_MS, request.stale_ms, request.least_state):
                raise NotServingError(reason)
        pairs = set(zip(request.columns[::2], request.columns[1::2], strict=True))
        found = [
            record
            for record in sorted(self.records, key=lambda r: (r["row"], r["family"], r["qualifier"]))
            if request.extent.contains(record["row"])
            and (request.start_row is None or record["row"] >= request.start_row)
            and (request.stop_row is None or record["row"] < request.stop_row)
            and (
                not (request.families or pairs)
                or record["family"] in request.families
                or (record["family"], record["qualifier"]) in pairs
            )
        ]
        start = int(request.resume or b"0")
        page = pa.RecordBatch.from_pylist(found[start : start + 2], schema=MUTATION_SCHEMA)
        more = start + 2 < len(found)
        return ScanPage(bytes(encode_batch(page)), str(start + 2).encode() if more else None, state_id, as_of_ms)


@dataclass
class FakeMaster(_Rest):
    """Says where the tablets are; ``leads`` False sends callers away. ``hook`` gets each method's name first."""

    cluster: FakeCluster
    leads: bool = True
    hook: Callable[[str], None] = lambda _: None
    calls: list[str] = field(default_factory=list)
    made: dict[str, TableInfo] = field(default_factory=lambda: {"t": TABLE})
    pending: Callable[[Sequence[FileMark]], Sequence[TargetStatus]] = lambda _: ()

    def _enter(self, name: str) -> None:
        self.calls.append(name)
        self.hook(name)
        if not self.leads:
            raise NotLeaderError("another master leads")

    def leader(self) -> str:
        self.hook("leader")
        if self.cluster.leader is None:
            raise NotLeaderError("no master leads")
        return self.cluster.leader

    def tables(self) -> Sequence[TableInfo]:
        self._enter("tables")
        return tuple(self.made.values())

    def locate(self, table_id: str) -> Sequence[TabletLocation]:
        self._enter("locate")
        if table_id not in {extent.table_id for extent in self.cluster.extents}:
            raise NotFoundError(f"no table {table_id}")
        return self.cluster.locations()

    def locate_tablet(self, table_id: str, row: bytes) -> TabletLocation:
        self._enter("locate_tablet")
        if table_id not in {table.table_id for table in self.made.values()}:
            raise NotFoundError(f"no table {table_id}")
        return next(found for found in self.cluster.locations() if found.extent.contains(row))

    def replication_mark(self, table: str) -> Sequence[FileMark]:
        self._enter("replication_mark")
        return (FileMark(f"{table}.wal", 10),)

    def replication_pending(self, marks: Sequence[FileMark], table: str, cluster: str) -> Sequence[TargetStatus]:
        self._enter("replication_pending")
        assert (table, cluster) == ("t", "east")
        return self.pending(marks)


class FakeCluster:
    """Masters and tservers with real addresses; a context manager."""

    def __init__(self, *extents: Extent, tservers: int = 1, masters: int = 1) -> None:
        self.extents = list(extents) or extents_of()
        self.placement: dict[Extent, int | None] = {e: n % tservers for n, e in enumerate(self.extents)}
        self.tservers = [FakeTServer() for _ in range(tservers)]
        self.masters = [FakeMaster(self, leads=n == 0) for n in range(masters)]
        self.problems: dict[Extent, str] = {}
        """Why a tablet needs a person's help."""
        self.leader: str | None = None
        self._stack = ExitStack()
        self.tserver_servers: list[RpcServer] = []
        self.master_servers: list[RpcServer] = []
        self.move()

    def move(self, **placement: int | None) -> None:
        """Put tablets (by the decimal position in row order, ``_0=1``) elsewhere; tservers know at once."""
        for name, there in placement.items():
            self.placement[self.extents[int(name[1:])]] = there
        for number, tserver in enumerate(self.tservers):
            tserver.serves = {extent for extent, where in self.placement.items() if where == number}

    def make_again(self, table_id: str) -> None:
        """The table was deleted and made again, empty, with the same tablets in the same places."""
        placed = [self.placement.pop(extent) for extent in self.extents]
        self.extents = [Extent(table_id, extent.end_row, extent.prev_row) for extent in self.extents]
        self.placement.update(zip(self.extents, placed, strict=True))
        for master in self.masters:
            master.made["t"] = replace(TABLE, table_id=table_id)
        for tserver in self.tservers:
            tserver.records.clear()
        self.move()

    def locations(self) -> Sequence[TabletLocation]:
        def address(extent: Extent) -> str | None:
            where = self.placement[extent]
            return None if where is None else self.tserver_servers[where].address

        placed = len(self.extents)
        return tuple(
            TabletLocation(
                extent, address(extent), placed - number, self.problems.get(extent), replicas=self.replicas_of(extent)
            )
            for number, extent in enumerate(reversed(self.extents))
        )

    def replicas_of(self, extent: Extent) -> tuple[str, ...]:
        """The addresses of the hosts that hold a replica; none where no host follows."""
        has = [extent in tserver.follows for tserver in self.tservers]
        return tuple(
            server.address
            for tserver, server, follows in zip(self.tservers, self.tserver_servers, has, strict=True)
            if any(has) and (follows or extent in tserver.serves)
        )

    @property
    def quorum(self) -> str:
        return ",".join(server.address for server in self.master_servers)

    def records(self) -> list[dict[str, Any]]:
        return [record for tserver in self.tservers for record in tserver.records]

    def __enter__(self) -> Self:
        for tserver in self.tservers:
            self.tserver_servers.append(self._stack.enter_context(serving(tserver, "TServer", threads_max=8)))
        for master in self.masters:
            self.master_servers.append(self._stack.enter_context(serving(master, "Master", threads_max=8)))
        self.leader = self.master_servers[0].address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
