"""Tservers without a master: the test writes tables, tablets and locations itself, and recovers logs as a master would.

Arrives: a directory. Leaves: :class:`Ground` (settings, stores, calls) and tservers on it, as processes of their own
(:class:`ProcessNode`) or inside the test (:class:`LocalNode`, which may be given a metadata table that fails).
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import (
    add_target,
    create_table_record,
    next_incarnation,
    set_table_properties,
    set_table_state,
)
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import MUTATION_SCHEMA, Extent, LocalityGroup, StreamKey, Target
from bookkeeper.rpc.contract.messages import (
    PROTOCOL_VERSION,
    Hello,
    ReplicateRequest,
    ScanRequest,
    SourceBlock,
    TabletAssignment,
    WriteBatch,
)
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import process_credentials
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block, decode_batch, encode_batch
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.tserver.process import TServerProcess
from combiners import OPEN, ReplicationStatus
from tests.support.books import books_of
from tests.support.time_limit import TimeLimit
from tests.support.trust import trust_everybody
from tests.support.volumes import MACHINE, path_of

LIMIT_S = 60.0
Cells = dict[tuple[bytes, bytes, bytes], bytes]

LONG_LEASES: dict[str, object] = {"coordination.session_lease_ms": 600_000}
"""No session ends because the machine is busy. The session of a process that is killed is over at once."""
SHORT_LEASES: dict[str, object] = {
    "coordination.session_lease_ms": 6_000,
    "coordination.session_renew_ms": 500,
    "coordination.session_margin_ms": 500,
}
"""Leases short enough to wait for when a process was stopped; a busy machine ends none of them."""


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll until ``condition`` holds; fails the test when it does not in time. A condition that can't be told for now
    does not hold yet.
    """
    limit = TimeLimit(limit_s)
    while True:
        failed: TransientError | None = None
        try:
            if condition():
                return
        except TransientError as error:
            failed = error
        if limit.is_over():
            raise AssertionError(f"not within {limit_s} s: {what}") from failed
        limit.pause()


def records(
    rows: Sequence[tuple[bytes, bytes]],
    family: bytes = b"f",
    qualifier: bytes = b"q",
    timestamp: int | None = None,
    delete: bool = False,
) -> pa.RecordBatch:
    """A batch of one record for each (row, value)."""
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row for row, _ in rows], pa.binary()),
            pa.array([family] * count, pa.binary()),
            pa.array([qualifier] * count, pa.binary()),
            pa.array([b""] * count, pa.binary()),
            pa.array([timestamp] * count, pa.int64()),
            pa.array([delete] * count, pa.bool_()),
            pa.array([value for _, value in rows], pa.binary()),
        ],
        schema=MUTATION_SCHEMA,
    )


def source_block(first: int, batch: pa.RecordBatch, last: int | None = None) -> SourceBlock:
    """A block of a source file that starts at offset ``first``; ``last`` when it stood for more than it holds."""
    rows = batch.column("row").to_pylist()
    return SourceBlock(
        first_offset=first,
        last_offset=first + batch.num_rows - 1 if last is None else last,
        records=encode_batch(batch).to_pybytes(),
        record_count=batch.num_rows,
        min_row=min(rows),
        max_row=max(rows),
    )


def replicate_request(
    token: str, stream: StreamKey, acked: int, after: int, to: int, blocks: Sequence[SourceBlock]
) -> ReplicateRequest:
    """A message as the stream's own cluster would send it."""
    return ReplicateRequest(token, stream, (stream.source_instance_id,), acked, after, to, tuple(blocks))


def cells_of(batch: pa.RecordBatch) -> Cells:
    """Row, family, qualifier to value."""
    columns = [batch.column(name).to_pylist() for name in ("row", "family", "qualifier", "value")]
    return {(row, family, qualifier): value for row, family, qualifier, value in zip(*columns, strict=True)}


class LocalNode:
    """A tserver inside the test process. ``died`` holds the reasons for which a real one would have ended."""

    def __init__(
        self,
        ground: Ground,
        metadata: MetadataTable | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.died: list[str] = []
        self.may_die = False
        self._stopped = False
        self._clock = clock or SystemClock()
        self._coordination = open_coordination(ground.settings, self._clock)
        self._process = TServerProcess(
            settings or ground.settings, self._coordination, metadata or ground.metadata, self._clock, self.died.append
        )
        self.session_id = self._process.session_id
        self.address = self._process.address
        self._process.start()

    @property
    def process(self) -> TServerProcess:
        """Its parts."""
        return self._process

    def lose_session(self) -> None:
        """Let its session end under it, as a lost lease would."""
        self.may_die = True
        self._process.session.close()

    def crash(self) -> None:
        """End its session, its calls and its threads without any last work, as a killed process."""
        self.may_die = self._stopped = True
        process, parts = self._process, self._process.parts
        process.session.close()
        process._ended.set()
        process._server.stop()
        parts.worker.stop()
        parts.writing.configuration.close()
        parts.writing.times.close()
        parts.tablets.compactor.close()
        parts.tablets.flusher.close()
        parts.tablets.late_uses.close()
        parts.tablets.leading.close()
        if parts.replicas is not None:
            parts.replicas.receiver.close()
            parts.replicas.collector.close()
        parts.tablets.sorter.close()
        process._master.close()
        if process._host is not None:
            process._host.close()
        process._pool.close()
        self._coordination.close()

    def stop(self) -> None:
        """End cleanly; idempotent."""
        if not self._stopped:
            self._stopped = True
            self._process.stop()
            self._coordination.close()


class ProcessNode:
    """A tserver in a process of its own."""

    def __init__(self, ground: Ground, directory: Path | None = None) -> None:
        """``directory``: of another host that has joined the cluster."""
        known = {session.session_id for session in ground.coordination.sessions("tserver")}
        self._log = (ground.settings.logs_dir / f"tserver-{len(known)}.log").open("wb")
        command = [sys.executable, "-m", "bookkeeper.tserver", str(directory or ground.settings.directory)]
        command = ended_with_parent(command, signal.SIGKILL)
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)
        self.session_id, self.address = self._wait_registered(ground, known)
        wait_until(lambda: self._answers(ground), "an answering tserver")

    def _wait_registered(self, ground: Ground, known: set[str]) -> tuple[str, str]:
        found: list[tuple[str, str]] = []

        def look() -> bool:
            assert self.process.poll() is None, self.log_text()
            found.extend(
                (session.session_id, session.address)
                for session in ground.coordination.sessions("tserver")
                if session.session_id not in known
            )
            return bool(found)

        wait_until(look, "a registered tserver")
        return found[0]

    def _answers(self, ground: Ground) -> bool:
        assert self.process.poll() is None, self.log_text()
        ground.tserver(self).status()
        return True

    def log_text(self) -> str:
        """The log of the process."""
        return Path(self._log.name).read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the tserver itself."""
        os.kill(self.process.pid, number)

    def kill9(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(LIMIT_S)

    def terminate(self) -> int:
        """End it cleanly; returns its exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT_S)

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill9()
        self._log.close()


Node = LocalNode | ProcessNode


class Ground:
    """The stores of a cluster without its processes, and the acts of a master that a test does itself."""

    def __init__(
        self,
        directory: Path,
        name: str = "west",
        overrides: Mapping[str, object] | None = None,
        metadata_url: str | None = None,
    ) -> None:
        """``metadata_url``: where its books are, None = in a SQLite file of its own."""
        merged = {**LONG_LEASES, **(overrides or {})}
        self.settings: Settings = init_cluster(directory, name, metadata_url=metadata_url, overrides=merged)
        trust_everybody(self.settings)
        self.settings.logs_dir.mkdir(exist_ok=True)
        self.coordination = open_coordination(self.settings)
        self.metadata = books_of(self.settings)
        own = self.settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "master")
        self.pool = RpcPool(hello, self.settings.rpc, None, process_credentials(self.settings))
        self._ranks = itertools.count(1)
        self._nodes: list[Node] = []

    # ---- nodes

    def process(self, directory: Path | None = None) -> ProcessNode:
        """Start a tserver process and wait until it answers. ``directory``: of another host of the cluster."""
        node = ProcessNode(self, directory)
        self._nodes.append(node)
        return node

    def local(
        self, metadata: MetadataTable | None = None, clock: Clock | None = None, settings: Settings | None = None
    ) -> LocalNode:
        """Start a tserver in this process. ``settings``: of another host of the cluster."""
        node = LocalNode(self, metadata, clock, settings)
        self._nodes.append(node)
        return node

    def tserver(self, node: Node, timeout_ms: float | None = None) -> TServer:
        """Calls to a node."""
        return self.pool.tserver(node.address, timeout_ms)

    def close(self) -> None:
        """End everything."""
        for node in self._nodes:
            if isinstance(node, ProcessNode):
                node.end()
            else:
                node.stop()
                assert node.may_die or not node.died, f"{node.session_id} would have ended: {node.died}"
        self.pool.close()
        self.metadata.close()
        self.coordination.close()

    # ---- a master's part

    def create_table(
        self, table_id: str, splits: Sequence[bytes] = (), groups: Sequence[LocalityGroup] = ()
    ) -> list[Extent]:
        """Make an online table, whose tablets no tserver serves yet."""
        create_table_record(self.coordination, table_id, f"table{table_id}", groups, {})
        set_table_state(self.coordination, table_id, "online")
        borders: list[bytes | None] = [None, *splits, None]
        extents = [Extent(table_id, end, start) for start, end in itertools.pairwise(borders)]
        for number, extent in enumerate(extents):
            row = RowPut(
                keys.tablet_row(table_id, extent.end_row),
                {
                    keys.PREV_ROW: values.encode_prev_row(extent.prev_row),
                    keys.DIR: values.encode_dir(f"t-{number:05d}"),
                },
            )
            self.metadata.put([row], keys.ONCE_RANK)
        return extents

    def set_properties(self, table_id: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a table; tservers have not confirmed them yet."""
        set_table_properties(self.coordination, table_id, properties)

    def enable(self, table_id: str, groups: Sequence[str] | None = None, remote_table_id: str = "r1") -> Target:
        """A new target of the table; tservers have not confirmed it yet."""
        peer = PeerCluster("east", "localhost:1", "east-instance", "east")
        incarnation = next_incarnation(self.coordination)
        return add_target(self.coordination, table_id, peer, remote_table_id, "remote", groups, incarnation)

    def assign(self, node: Node, *extents: Extent) -> None:
        """Give tablets to a node and let it load them."""
        for extent in extents:
            location = values.Location(node.session_id, node.address).encode()
            row = RowPut(keys.tablet_row(extent.table_id, extent.end_row), {keys.LOCATION: location})
            self.metadata.put([row], keys.master_rank(1, next(self._ranks)))
            self.tserver(node).load_tablet(TabletAssignment(extent, "", 1))

    def recover_logs(self, node: Node) -> list[str]:
        """Wait until the node's session is over and seal its logs; returns them in order."""
        wait_until(lambda: not self.is_alive(node), "the end of a session")
        logs = self.logs_of(node)
        for log in logs:
            recover(self.volume, log)
        return logs

    def is_alive(self, node: Node) -> bool:
        """Whether the node's session counts as alive."""
        return any(
            session.alive for session in self.coordination.sessions("tserver") if session.session_id == node.session_id
        )

    def logs_of(self, node: Node) -> list[str]:
        """A node's logs, in order."""
        return [name for name in self.volume.list_names(f"{log_directory(node.session_id)}/") if name.endswith(".wal")]

    @property
    def volume(self) -> Volume:
        """The cluster's files."""
        return open_volume(self.settings)

    def path(self, file: str) -> Path:
        """Where a file of the cluster lies."""
        return path_of(file, self.settings.directory)

    def blocks_of(self, log: str) -> list[Block]:
        """Every whole block of a log."""
        return blocks_of(log, self.volume)

    # ---- a client's part

    def write(self, node: Node, extent: Extent, batch: pa.RecordBatch, durability: str = "sync") -> tuple[Extent, ...]:
        """Write one batch; returns the extents that were not served."""
        batches = [WriteBatch(extent, encode_batch(batch).to_pybytes())]
        return tuple(self.tserver(node).write(batches, durability, "", 0).not_serving)

    def scan(self, node: Node, extent: Extent, page_bytes: int = 1 << 20) -> Cells:
        """Everything in a tablet."""
        found: Cells = {}
        resume: bytes | None = None
        while True:
            request = ScanRequest(extent, None, None, (), (), resume, page_bytes)
            page = self.tserver(node).scan(request)
            batch = decode_batch(page.records)
            cells = cells_of(batch)
            assert len(cells) == batch.num_rows, "a cell came twice in one page"
            assert not cells.keys() & found.keys(), "a cell came in two pages"
            found |= cells
            if page.resume is None:
                return found
            resume = page.resume


def blocks_of(log: str, volume: Volume = MACHINE) -> list[Block]:
    """Every whole block of a log."""
    return [at.load() for at in read_headers(volume, log)]


def status_of(west: Ground, extent: Extent, wal: str) -> ReplicationStatus | None:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("repl",))
    cell = None if row is None else row.cells.get(keys.repl_column(wal))
    return None if cell is None else values.decode_status(cell.value)


def logs_in_row(west: Ground, extent: Extent) -> set[str]:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("log",))
    return set() if row is None else {keys.parse_file(wal) for wal in row.family("log")}


def flush_of(west: Ground, extent: Extent) -> FlushState:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("tablet",))
    assert row is not None
    return FlushState.decode(row.cells[keys.FLUSH].value)


def own_blocks(west: Ground, node: Node) -> list[Block]:
    return [block for log in west.logs_of(node) for block in west.blocks_of(log)]


def needed_of(west: Ground, extent: Extent, wal: str) -> int:
    """Needed offset in the books; -1 without a cell."""
    status = status_of(west, extent, wal)
    return -1 if status is None else status.replication_needed_offset


def state_of(west: Ground, extent: Extent, wal: str) -> int:
    """State in the books; OPEN without a cell."""
    status = status_of(west, extent, wal)
    return OPEN if status is None else status.state


@contextmanager
def ground(
    directory: Path, overrides: Mapping[str, object] | None = None, metadata_url: str | None = None
) -> Iterator[Ground]:
    """A :class:`Ground` that is closed afterwards."""
    made = Ground(directory, overrides=overrides, metadata_url=metadata_url)
    try:
        yield made
    finally:
        made.close()
