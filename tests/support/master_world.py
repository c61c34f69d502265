"""Books without processes: what tservers and workers would have written, and masters that are driven step by step.

Arrives: a directory. Leaves: :class:`World`: the real stores, sessions that a test opens and ends, real logs on disk,
and :class:`Master`: the parts of a leading master without its threads. A master that was deposed and does not know it
is made by :meth:`World.depose`: it was stopped right behind the check of its session.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

import combiners
from bookkeeper.clock import SteadyWall
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import (
    add_target,
    create_table_record,
    define_cluster,
    narrow_targets,
    next_count,
    next_incarnation,
    set_table_state,
)
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster, read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination, Leader, Session
from bookkeeper.coordination.masters import MasterFinder
from bookkeeper.log_homes.opening import open_homes, open_logs
from bookkeeper.master.books.books_cycle import Books, Owners, View
from bookkeeper.master.books.tserver_recovery import TServerRecovery, read_claim
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateEngine, FateLimits
from bookkeeper.master.fate.fate_store import FateStore
from bookkeeper.master.gc.gc_runner import GcRunner
from bookkeeper.master.operation_kinds import all_operations
from bookkeeper.master.operations.context import Context, MasterHooks, OperationSettings
from bookkeeper.master.operations.table_lifecycle import new_tablet_rows
from bookkeeper.master.origins.origin_parts import OriginParts
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.leader import Reign, campaign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.model import Barrier, HostIdentity, Target, TargetKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import peer_credentials
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_pb2 import BlockTarget, FileHeader, Predecessor
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.exchange import EXCHANGE
from tests.support.jumping_clock import TestClock
from tests.support.trust import trust_everybody
from tests.support.volumes import path_of
from tests.support.wal_files import Spec, block

UNHURRIED: dict[str, object] = {
    "coordination.session_lease_ms": 600_000,
    "coordination.session_renew_ms": 1_000,
    "rpc.connect_timeout_ms": 300,
    "rpc.timeout_ms": 30_000,
}
"""Sessions and calls end when a test ends them, not because a machine is busy."""

CREATED_MS = 1_000
"""When logs were made, unless a test says otherwise."""

LATE_MS = 10_000_000
"""Well beyond any grace."""


@dataclass(frozen=True, slots=True)
class StoppedSession:
    """The session of a process that was stopped after it had checked it: to itself it lives."""

    session_id: str

    def is_valid(self) -> bool:
        """So it believes."""
        return True

    def check(self) -> None:
        """It did, a moment ago."""

    def close(self) -> None:
        """Nothing to end."""


@dataclass(slots=True)
class Master:
    """A leading master's parts, each to be driven by hand."""

    world: World
    session: Session
    reign: Reign
    books: Books
    fate: FateEngine
    collector: GcRunner
    recovery: TServerRecovery
    tservers: TServers

    def read_books(self) -> View:
        """The first stage of a full cycle: configuration, then snapshot."""
        return self.books.read()

    def act(self, view: View) -> list[bytes]:
        """The other stages; returns the files whose books were removed."""
        self.books.close(view, self.owners)
        self.books.keep(view)
        removed = self.books.remove(view)
        self.books.publish(view, removed)
        return sorted(removed)

    def cycle(self) -> list[bytes]:
        """A full cycle without placing and assigning."""
        return self.act(self.read_books())

    def owners(self) -> Owners:
        """The live sessions."""
        return Owners(self.tservers.session_of, set(self.tservers.live()))

    def collect(self, runs: int = 2) -> list[str]:
        """Runs of the garbage collector: the first marks, the next deletes."""
        return [name for _ in range(runs) for name in self.collector.run_once()]

    def run_fate(self, steps: int = 100) -> int:
        """Execute steps of operations until none is ready; returns how many."""
        return next((done for done in range(steps) if not self.fate.step_once()), steps)


@dataclass(slots=True)
class World:
    """One cluster's books."""

    settings: Settings
    clock: TestClock
    coordination: Coordination
    table: MetadataTable
    pool: RpcPool
    sessions: dict[str, Session] = field(default_factory=dict)
    incarnations: int = 0
    wakes: list[int] = field(default_factory=list)
    """Wall clock of each time that an operation asked for a cycle."""

    @classmethod
    def at(cls, directory: Path, overrides: Mapping[str, object] | None = None) -> World:
        """A new cluster in ``directory`` with a peer named ``east``."""
        settings = init_cluster(directory, directory.name, overrides={**UNHURRIED, **EXCHANGE, **(overrides or {})})
        clock = TestClock()
        coordination = open_coordination(settings)  # its clock does not jump: sessions live
        own = settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "master")
        trust_everybody(settings)
        pool = RpcPool(hello, settings.rpc, None, peer_credentials(settings))  # scripted tservers ask for nothing
        settings.wal_dir.mkdir(exist_ok=True)
        books = open_metadata(settings.metadata_url, own.instance_id)
        world = cls(settings, clock, coordination, books, pool)
        world.define("east")
        return world

    def close(self) -> None:
        """Let go of everything."""
        self.pool.close()
        self.table.close()
        self.coordination.close()

    # ---- configuration

    def config(self) -> ClusterConfig:
        """The configuration now."""
        return read_config(self.coordination)

    def define(self, cluster: str) -> PeerCluster:
        """A peer whose address no server has."""
        peer = PeerCluster(cluster, "127.0.0.1:1", f"{cluster}-instance", cluster)
        define_cluster(self.coordination, peer)
        return peer

    def create_table(self, table_id: str, splits: Sequence[bytes] = ()) -> list[bytes]:
        """An online table; returns the rows of its tablets."""
        while next_count(self.coordination, "table") < int(table_id, 36):
            continue  # ids that masters give begin behind this one
        create_table_record(self.coordination, table_id, f"table-{table_id}", (), {})
        rows = new_tablet_rows(table_id, splits)
        self.table.put(rows, keys.ONCE_RANK)
        set_table_state(self.coordination, table_id, "online")
        return [row.key for row in rows]

    def enable(self, table_id: str, cluster: str = "east", remote_table_id: str = "r1") -> TargetKey:
        """A new target of the table."""
        peer = self.config().cluster(cluster)
        number = next_incarnation(self.coordination)
        return add_target(self.coordination, table_id, peer, remote_table_id, "remote", None, number).key

    def disable(self, table_id: str, cluster: str = "east") -> None:
        """No target of the table at that cluster any more."""
        narrow_targets(self.coordination, table_id, cluster, None)

    def target(self, key: TargetKey) -> Target:
        """The configured target of a key."""
        return next(t for t in self.config().targets_of(key.source_table_id) if t.key == key)

    # ---- tservers

    def tserver(self, address: str = "127.0.0.1:1", host: HostIdentity | None = None) -> str:
        """A live tserver session without a process: calls fail unless ``address`` is that of a server."""
        session = self.coordination.open_session("tserver", address, host)
        self.sessions[session.session_id] = session
        return session.session_id

    def kill(self, session_id: str) -> None:
        """End a session for good."""
        self.sessions.pop(session_id).close()

    def name(self, session_id: str, number: int = 1) -> str:
        """The name of a session's log."""
        return f"{log_directory(session_id)}/{number:06d}.wal"

    def locate(self, row: bytes, session_id: str, rank: int = 1) -> None:
        """The tablet is assigned to a session."""
        location = values.Location(session_id, "127.0.0.1:1").encode()
        self.table.put([RowPut(row, {keys.LOCATION: location})], rank)

    def log(
        self,
        session_id: str,
        records: int,
        number: int = 1,
        *,
        tablets: Sequence[bytes] = (b"1<",),
        stamped: bool = True,
        after: Sequence[tuple[int, str, int]] = (),
        seal: bool = False,
        prefix: str = "",
    ) -> str:
        """A real log with one record a block, tablets in turn; ``after``: (block number from 1, file, offset)."""
        header = FileHeader(
            instance_id=self.settings.instance.instance_id, session_id=session_id, created_time_ms=CREATED_MS
        )
        name = f"{log_directory(session_id)}/{prefix}{number:06d}.wal"
        writer = WalWriter.create(self.volume, name, header)
        predecessors = {place: Predecessor(file=file, offset=offset) for place, file, offset in after}
        for offset in range(1, records + 1):
            table_id, end_row = keys.parse_tablet_row(tablets[(offset - 1) % len(tablets)])
            made = block(Spec([b"row"], table_id=table_id), offset)
            if end_row is not None:
                made.header.end_row = end_row
            del made.header.block_targets[:]
            if stamped:
                block_target = BlockTarget(
                    cluster="east", remote_table_id="r1", source_table_id=table_id, incarnation=1
                )
                made.header.block_targets.append(block_target)
            if offset in predecessors:
                made.header.after.append(predecessors[offset])
            writer.append([made])
        writer.sync()
        if seal:
            writer.seal()
        else:
            writer.abandon()
        return writer.name

    # ---- what a tserver writes to the books

    def use(
        self,
        row: bytes,
        file: str,
        needed: int,
        barriers: Sequence[Barrier] = (),
        *,
        log: bool = True,
        created: int = CREATED_MS,
    ) -> None:
        """OPEN, needed up to ``needed``; with the `log:` cell, as at a first use."""
        cells = {keys.repl_column(file): values.encode_status(open_status(needed, barriers, created))}
        if log:
            self.table.put([RowPut(row, {keys.log_column(file): values.LOG})], 1)
        self.table.put([RowPut(row, cells)], keys.needed_rank(needed) if needed else keys.first_use_rank(1))

    def closed(
        self, row: bytes, file: str, final: int, barriers: Sequence[Barrier] = (), created: int = CREATED_MS
    ) -> None:
        """CLOSED with the final offset."""
        status = combiners.close(open_status(final, barriers, created))
        put = RowPut(row, {keys.repl_column(file): values.encode_status(status)})
        self.table.put([put], keys.closed_rank(final))

    def flushed(self, row: bytes, file: str, through: int = 10_000) -> None:
        """The tablet's records of the file are in segments: no `log:` cell any more."""
        self.table.delete([CellKey(row, keys.log_column(file))], keys.log_delete_rank(through))

    def ship(self, file: str, target: TargetKey, finished: int) -> None:
        """A worker finished this much."""
        done = combiners.ReplicationStatus(replication_finished_offset=finished, finished_bytes=finished * 100)
        put = RowPut(keys.repl_row(file), {keys.done_column(target): values.encode_status(done)})
        self.table.put([put], keys.done_rank(finished))

    # ---- what is in the books

    def needed(self, file: str) -> dict[TargetKey, combiners.ReplicationStatus]:
        """The needed cells of a file."""
        row = self.table.get(keys.repl_row(file), ("repl",))
        cells = {} if row is None else row.family("repl")
        return {keys.parse_target(raw): values.decode_status(cell.value) for raw, cell in cells.items()}

    def done(self, file: str) -> dict[TargetKey, int]:
        """The done cells of a file: finished offsets."""
        row = self.table.get(keys.repl_row(file), ("done",))
        cells = {} if row is None else row.family("done")
        found = {keys.parse_target(raw): values.decode_status(cell.value) for raw, cell in cells.items()}
        return {target: status.replication_finished_offset for target, status in found.items()}

    def repl(self, file: str) -> dict[bytes, combiners.ReplicationStatus]:
        """The `repl:` cells of a file, by tablet row."""
        column = keys.repl_column(file)
        rows = self.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("repl",))
        return {row.key: values.decode_status(row.cells[column].value) for row in rows if column in row.cells}

    @property
    def volume(self) -> Volume:
        """The cluster's files."""
        return open_volume(self.settings)

    def path(self, file: str) -> Path:
        """Where a file of the cluster lies."""
        return path_of(file, self.settings.directory)

    def exists(self, file: str) -> bool:
        """Whether the log is on disk."""
        return any(log.name == file for log in self.tservers().logs())

    # ---- masters

    def tservers(self) -> TServers:
        """Calls to tservers."""
        homes = open_homes(self.table, self.volume)
        logs = open_logs(self.volume, homes, self.coordination, self.pool.tserver, self.clock)
        return TServers(self.coordination, self.pool, logs, homes)

    def rounds(self, reign: Reign) -> Rounds:
        """The rounds of a reign."""
        own = self.settings.instance
        return Rounds(self.table, self.coordination, reign, own.instance_id, self.settings.metadata_url)

    def master(self) -> Master:
        """A new leader. Raises AssertionError while another one leads."""
        session = self.coordination.open_session("master", "127.0.0.1:1")
        reign = campaign(self.coordination, session)
        assert reign is not None, "another master leads"
        return self._assemble(session, reign)

    def depose(self, master: Master) -> Master:
        """The master's session ends, and it does not know: its next calls come from behind the check. Returns the next
        leader.
        """
        master.session.close()
        leader = Leader(master.session.session_id, "127.0.0.1:1", master.reign.epoch)
        stopped = Reign(self.coordination, StoppedSession(leader.session_id), leader)
        master.reign.__dict__.update({**stopped.__dict__, "_number": 1_000})
        return self.master()

    def _assemble(self, session: Session, reign: Reign) -> Master:
        tservers = self.tservers()
        stores = ReignStores(self.table, reign, self.coordination)
        peers = PeerMasters(
            self.pool, self.settings.instance.instance_id, FileRoots.of(self.settings), MasterFinder(self.clock)
        )
        age_clock = SteadyWall(self.clock)
        settings = replace(OperationSettings.of(self.settings), stream_grace_ms=60_000)
        hooks = MasterHooks(
            wake=lambda: self.wakes.append(self.clock.wall_ms()),
            repair=lambda: None,
            tablets_changed=lambda start, stop: self.wakes.append(self.clock.wall_ms()),  # noqa: ARG005
            let_go=lambda rows: None,  # noqa: ARG005
            begin=lambda kind, args: fate.submit(kind, args),
        )
        context = Context(stores, tservers, peers, self.clock, age_clock, settings, hooks)
        store = FateStore(self.table, reign)
        limits = FateLimits(retry_base_ms=1, retry_max_ms=2)
        fate = FateEngine(store, all_operations(context), self.clock, random.Random(1), limits)
        fate.resume(record for record in store.load() if record.op.type != "replicate_file")
        origins = OriginParts.of(
            stores, self.clock, age_clock, tservers, peers, fate, settings.own_instance_id, settings.paths_apart_ms
        )
        collector = GcRunner(stores, self.rounds(reign), self.clock, tservers, fate, origins.gc, 60_000)
        return Master(
            self, session, reign, Books(stores, tservers.volume, open_homes(self.table, self.volume)), fate, collector,
            TServerRecovery(tservers, reign, partial(read_claim, self.table, self.config), self.clock), tservers,
        )  # fmt: skip


def open_status(
    needed: int, barriers: Sequence[Barrier] = (), created: int = CREATED_MS
) -> combiners.ReplicationStatus:
    """OPEN, as a tserver writes it."""
    opened = combiners.ReplicationStatus(
        created_time=created,
        barriers=[
            combiners.Barrier(offset=b.offset, file=b.file, until_offset=b.until_offset) for b in sorted(barriers)
        ],
    )
    return combiners.append(opened, needed, needed_bytes=needed * 100)
