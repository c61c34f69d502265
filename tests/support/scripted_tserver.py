"""A tserver that does what the master orders and remembers it: a real server and real calls, no tablets inside."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, NotFoundError, NotServingError
from bookkeeper.model import Extent, HostIdentity, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import (
    AdoptRequest,
    FileMark,
    HeldReplicaInfo,
    HeldReplicas,
    ImportedLog,
    ReplicaContent,
    SecretMark,
    ServedTablets,
    SplitPoint,
    TabletAssignment,
    TabletProblem,
    WorkItem,
    WorkReport,
)
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_server import RpcServer
from tests.support.master_world import World
from tests.support.rpc_peer import SERVER_HELLO
from tests.support.volumes import path_of

THREADS = 4
"""More than calls that one master has open at one tserver."""


@dataclass
class ScriptedTServer:
    """``directory`` has the cluster's files. ``trouble`` maps a method to what it raises; ``look`` is told of each call
    before that. ``session`` is set by :func:`scripted`.
    """

    directory: Path
    session: str = ""
    held: set[Extent] = field(default_factory=set)
    orders: list[str] = field(default_factory=list)
    items: list[WorkItem] = field(default_factory=list)
    reports: list[WorkReport] = field(default_factory=list)
    on_work: Callable[[WorkItem], None] = lambda item: None  # noqa: ARG005
    refused: dict[Extent, BookkeeperError] = field(default_factory=dict)
    """Tablets that it can't load, and why."""
    loads: Counter[Extent] = field(default_factory=Counter)
    """How often it was told to load each."""
    problems: list[TabletProblem] = field(default_factory=list)
    """The problems that it reports of its tablets."""
    without_room: tuple[Extent, ...] = ()
    """Tablets for whose next segment its host has no room."""
    points: dict[Extent, SplitPoint] = field(default_factory=dict)
    """The rows near the middle of its tablets."""
    marks: list[FileMark] = field(default_factory=list)
    adopted: dict[StreamKey, dict[Extent, list[bytes]]] = field(default_factory=dict)
    """Import to tablet to the rows that it took, in order."""
    logs: list[ImportedLog] = field(default_factory=list)
    """Logs of these imports, in order."""
    trouble: dict[str, BookkeeperError] = field(default_factory=dict)
    look: Callable[[str], None] = lambda _method: None
    lock: threading.Lock = field(default_factory=threading.Lock)
    holds: list[HeldReplicaInfo] = field(default_factory=list)
    """The replicas on its host."""
    wall_ms: int | None = None
    """What its wall clock shows; None = it does not say."""
    secrets: tuple[SecretMark, ...] | None = None
    """The secrets on its host."""
    contents: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """The files on its host, each with the checksum of its manifest."""
    compactions: set[Extent] = field(default_factory=set)
    """Tablets whose compaction was ordered; each is done when it is asked for again."""
    copied: set[str] = field(default_factory=set)
    """Copies that its host has made from the Volume and to it."""
    divided: set[Extent] = field(default_factory=set)
    """Tablets for which its host has linked the files of another one."""

    def status(self) -> Mapping[str, str]:
        return {}

    def load_tablet(self, assignment: TabletAssignment) -> None:
        self._may("load_tablet")
        with self.lock:
            self.loads[assignment.extent] += 1
            if assignment.extent in self.refused:
                raise self.refused[assignment.extent]
            self.orders.append(f"load {assignment.extent.end_row!r}")
            self.held.add(assignment.extent)

    def unload_tablet(self, extent: Extent, epoch: int, discard: bool) -> None:
        self._may("unload_tablet")
        assert epoch > 0
        with self.lock:
            self.orders.append(f"{'drop' if discard else 'unload'} {extent.end_row!r}")
            self.held.discard(extent)

    def tablets(self) -> ServedTablets:
        self._may("tablets")
        with self.lock:
            return ServedTablets(tuple(self.held), tuple(self.problems), self.without_room)

    def split_point(self, extent: Extent, row_bytes_max: int) -> SplitPoint:
        self._may("split_point")
        assert row_bytes_max > 0
        with self.lock:
            self.orders.append(f"measure {extent.end_row!r}")
            if extent not in self.points:
                raise NotServingError(f"tablet {extent} is not served here")
            return self.points[extent]

    def compact_tablet(self, extent: Extent, ticket: int) -> int:
        self._may("compact_tablet")
        with self.lock:
            self.compactions.add(extent)
        return 0 if ticket else 7

    def replicas(self, table_id: str, with_segments: bool) -> HeldReplicas:  # noqa: ARG002
        self._may("replicas")
        held = tuple(info for info in self.holds if table_id in ("", info.extent.table_id))
        return HeldReplicas(held, {}, None, self.wall_ms, self.secrets)

    def tablet_replica(self, table_id: str, directory: str) -> HeldReplicas:
        self._may("tablet_replica")
        key = table_id, directory
        return HeldReplicas(tuple(info for info in self.holds if (info.extent.table_id, info.directory) == key), {})

    def divide_replica(self, source: str, children: Sequence[Extent]) -> list[Extent]:
        self._may("divide_replica")
        assert source
        with self.lock:
            self.divided |= set(children)
        return list(children)

    def read_replica(self, table_id: str, directory: str, file: str, start: int) -> ReplicaContent:
        self._may("read_replica")
        assert file.startswith(f"tables/{table_id}/{directory}/")
        if file not in self.contents:
            raise NotFoundError(f"this host does not hold {file}")
        content, checksum = self.contents[file]
        return ReplicaContent(len(content), checksum, content[start : start + 4])

    def take_replica(self, extent: Extent, files: Mapping[str, str]) -> bool:
        self._may("take_replica")
        with self.lock:
            self.copied |= {f"take {extent.end_row!r}: {new} of {old}" for new, old in files.items()}
        return True

    def publish_replica(self, extent: Extent) -> bool:
        self._may("publish_replica")
        with self.lock:
            self.copied.add(f"publish {extent.end_row!r}")
        return True

    def confirm_config(self, generation: int) -> int:
        self._may("confirm_config")
        return generation

    def wal_positions(self, table_id: str) -> list[FileMark]:
        self._may("wal_positions")
        assert table_id
        return self.marks

    def assign_work(self, items: Sequence[WorkItem]) -> None:
        self._may("assign_work")
        with self.lock:
            self.items += items
        for item in items:
            self.on_work(item)

    def follow(self, cluster: str, run: str, results: bytes, wait_ms: int) -> bytes:  # noqa: ARG002
        """See the contract. Nothing is followed."""
        return b""

    def work_reports(self) -> list[WorkReport]:
        self._may("work_reports")
        with self.lock:
            return list(self.reports)

    def flush_tablet(self, extent: Extent) -> None:
        self._may("flush_tablet")
        with self.lock:
            self.orders.append(f"flush {extent.end_row!r}")

    def adopt_segments(self, request: AdoptRequest) -> None:
        self._may("adopt_segments")
        with self.lock:
            self.orders.append(f"adopt {request.extent.end_row!r}")
            taken = self.adopted.setdefault(request.stream, {})
            if request.extent not in taken:
                self.logs += [] if request.log is None else [request.log]
                files = [path_of(segment.name, self.directory) for segment in request.segments]
                taken[request.extent] = [row for path in files for row in pq.read_table(path)["row"].to_pylist()]

    def forget_streams(self, streams: Sequence[StreamKey]) -> None:
        self._may("forget_streams")
        with self.lock:
            self.orders += [f"forget {stream.file}" for stream in streams]

    def forget_roots(self, logs: Sequence[RootLog]) -> None:
        self._may("forget_roots")
        with self.lock:
            self.orders += [f"forget all of {log.file}" for log in logs]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*_: object) -> None:
            raise NotFoundError(f"this tserver has no {name}")

        return refuse

    def _may(self, method: str) -> None:
        self.look(method)
        if method in self.trouble:
            raise self.trouble[method]


@contextmanager
def scripted(world: World, host: HostIdentity | None = None) -> Iterator[ScriptedTServer]:
    """A live tserver session that answers, of this host."""
    handler = ScriptedTServer(world.settings.directory)
    rpc = replace(world.settings.rpc, threads_max=THREADS)
    server = RpcServer(ServedService("TServer", handler), SERVER_HELLO, rpc)
    server.start()
    handler.session = world.tserver(server.address, host)
    try:
        yield handler
    finally:
        if handler.session in world.sessions:
            world.kill(handler.session)
        server.stop()
