"""Clusters joined any way, in memory: the real functions of sender, door, commit and borders, without threads.

Arrives: writes, edges, shipments in any order and as often as wanted, crashes, splits, merges. Leaves: for each cluster
which records it applied, how often, and which ones it was sent. A record is told by its value, which is a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.master.splits.split_rules import TabletFacts, joined_state, part_state
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import MUTATION_SCHEMA, BlockTarget, Extent, TargetKey
from bookkeeper.peers.bookkeeper import source_block
from bookkeeper.peers.protocol import Acked, Message
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream.block_stream import RangeStream
from bookkeeper.rpc.contract.messages import ReplicateRequest
from bookkeeper.storage.tablet.batch_routing import split_by_tablets
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.commit.submission import AppendPoint
from bookkeeper.tserver.receive.message_decoding import decode_blocks
from bookkeeper.tserver.receive.receiver import SliceApply
from bookkeeper.tserver.receive.slice_delivery import part_by_tablet
from bookkeeper.tserver.receive.tablet_slice import ReceivedRange
from bookkeeper.tserver.tablets.block_targets import ConfigView, TableView
from bookkeeper.tserver.tablets.load_plan import Recovered
from bookkeeper.tserver.tablets.tablet import ServedTablet, Tenure, tablet_records
from bookkeeper.tserver.write.server_times import UnlimitedTimes
from bookkeeper.tserver.write.write_context import WriteContext
from tests.support.volumes import MACHINE, name_at

GROUPS = GroupMap({"g": (b"g",), "h": (b"h",)})
LIMITS = BatchLimits(row_bytes_max=100, column_bytes_max=100, value_bytes_max=100, batch_records_max=10_000)
TABLE = "t"
Record = tuple[bytes, bytes]
"""Row and family."""


def records(what: Sequence[Record], first_value: int) -> pa.RecordBatch:
    """A batch whose values count up."""
    size = len(what)
    columns = [
        pa.array([row for row, _ in what], pa.binary()),
        pa.array([family for _, family in what], pa.binary()),
        pa.array([b"q"] * size, pa.binary()),
        pa.array([b""] * size, pa.binary()),
        pa.array([1] * size, pa.int64()),
        pa.array([False] * size, pa.bool_()),
        pa.array([b"%d" % (first_value + place) for place in range(size)], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MUTATION_SCHEMA)


def values_of(batch: pa.RecordBatch) -> list[int]:
    """The records of a batch."""
    return [int(value) for value in batch.column("value").to_pylist()]


@dataclass(slots=True)
class Log:
    """One file: blocks in order."""

    name: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Offset of the last record."""
        return self.blocks[-1].last_offset if self.blocks else 0

    @property
    def append_point(self) -> AppendPoint:
        """Behind the last record."""
        return AppendPoint(self.name, self.end + 1)


@dataclass(slots=True)
class Edge:
    """From one cluster to another: incarnation, groups (None = all), and how far each log is."""

    to: Cluster
    incarnation: int
    groups: tuple[str, ...] | None
    finished: dict[str, int] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    """The last record of each log that is in quarantine."""

    @property
    def key(self) -> TargetKey:
        """The target."""
        return TargetKey(self.to.name, TABLE, TABLE, self.incarnation)


class Cluster:
    """One cluster; its instance id is its name."""

    def __init__(self, name: str, directory: Path, borders: Sequence[bytes] = ()) -> None:
        self.name = name
        self.edges: list[Edge] = []
        self.old_edges: list[Edge] = []
        self.logs: list[Log] = []
        self.applied: Counter[int] = Counter()
        self.sent_here: set[int] = set()
        self._directory = directory
        self._serial = 0
        self._incarnations = 0
        self._context = WriteContext(SystemClock(), ConfigView(1, {}), UnlimitedTimes(SystemClock()))
        self._states: dict[Extent, FlushState | None] = {}
        self._since_flush: dict[Extent, list[tuple[str, Block]]] = {}
        self.tablets: dict[Extent, ServedTablet] = {}
        starts, ends = [None, *sorted(borders)], [*sorted(borders), None]
        for prev_row, end_row in zip(starts, ends, strict=True):
            self._serve(Extent(TABLE, end_row, prev_row), None)
        self._configure()
        self.roll()

    # ---- configuration

    def enable(self, to: Cluster, groups: tuple[str, ...] | None = None) -> Edge:
        """From now on, in a new incarnation."""
        self._incarnations += 1
        edge = Edge(to, self._incarnations, groups)
        self.edges.append(edge)
        self._configure()
        return edge

    def disable(self, edge: Edge) -> None:
        """From now on; what is outstanding may still go (a zombie ships it)."""
        self.edges.remove(edge)
        self.old_edges.append(edge)
        self._configure()

    def _configure(self) -> None:
        block_targets = tuple(block_target_to_pb(BlockTarget(edge.key, edge.groups)) for edge in self.edges)
        view = TableView(TABLE, TABLE, True, GROUPS, block_targets, tuple(edge.to.name for edge in self.edges))
        self._context.put_in_force(ConfigView(self._context.view.generation + 1, {TABLE: view}))

    def roll(self) -> None:
        """Go on in another log."""
        self.logs.append(Log(f"{self.name}/{len(self.logs)}.wal"))

    # ---- writing and receiving

    def write(self, what: Sequence[Record], first_value: int) -> None:
        """A user's write; a block for each tablet."""
        for extent, batch in split_by_tablets(records(what, first_value), list(self.tablets)):
            moment = self._context.moment(TABLE, self.logs[-1].append_point)
            self._append(self.tablets[extent], self.tablets[extent].stage(tablet_records(batch), moment)[0])

    def receive(self, edge: Edge, stream: Range, message: Message) -> Acked:
        """One message, as a tserver takes it."""
        request = ReplicateRequest(
            "", stream.stream, message.provenance, message.acked_offset, message.after_offset, message.to_offset,
            tuple(map(source_block, message.blocks)),
        )  # fmt: skip
        blocks = decode_blocks(request, LIMITS)
        for extent, part in part_by_tablet(blocks, list(self.tablets)).items():
            span = (message.acked_offset, message.after_offset, message.to_offset)
            self._take(self.tablets[extent], ReceivedRange(stream.stream, message.provenance, *span, part))
        for block in blocks:
            self.sent_here.update(values_of(block.records.batch))
        edge.finished[stream.file] = message.to_offset
        return Acked(message.to_offset, 0, 0)

    def _take(self, tablet: ServedTablet, received: ReceivedRange) -> None:
        submission = SliceApply(self._context, tablet, received, tablet.received.forgotten_count)
        drafts = submission.prepare(self.logs[-1].append_point)
        submission.applied([self._append(tablet, draft, apply=False) for draft in drafts])

    def _append(self, tablet: ServedTablet, draft: DraftBlock, apply: bool = True) -> PlacedBlock:
        log = self.logs[-1]
        placed = PlacedBlock(log.name, log.end + 1, draft)
        header = BlockHeader()
        header.CopyFrom(draft.header)
        header.first_offset, header.record_count = placed.first_offset, draft.batch.num_rows
        block = Block(header, encode_batch(draft.batch), 1)
        log.blocks.append(block)
        self._since_flush[tablet.extent].append((log.name, block))
        self.applied.update(values_of(draft.batch))
        if apply:
            tablet.apply(placed)
        return placed

    # ---- shipping

    def ship(self, edge: Edge, file: str, blocks: int, again: int = 0, message_bytes: int = 1_000) -> None:
        """Up to so many blocks of a log, the last ``again`` of what is finished before, as after a lost answer."""
        (log,) = (log for log in self.logs if log.name == file)
        start = max(0, sum(block.last_offset <= edge.finished.get(file, 0) for block in log.blocks) - again)
        todo = log.blocks[start : start + again + blocks]
        if not todo:
            return
        after = todo[0].first_offset - 1
        one = Range(
            range_id=1,
            file=file,
            first=after + 1,
            last=todo[-1].last_offset,
            position_hint=0,
            target=edge.key,
            peer_quorum="-",
            peer_instance_id=edge.to.name,
            own_instance_id=self.name,
            finished=after,
            order_key=0,
            passed_to=edge.set_aside.get(file, 0),
        )
        stream = RangeStream([one], _OneSession(_Session(edge, one)), message_bytes, SystemClock())
        before = dict(edge.finished)
        for block in todo:
            stream.take(block)
        (result,) = stream.results()
        assert result.error is None, result.error
        edge.finished[file] = max(result.acked_offset, before.get(file, 0))

    def drain(self) -> bool:
        """Everything that is outstanding; whether there was any."""
        begun = sum(edge.finished.get(log.name, 0) for edge in self.edges for log in self.logs)
        for edge in self.edges:
            for log in self.logs:
                self.ship(edge, log.name, len(log.blocks))
        return begun != sum(edge.finished.get(log.name, 0) for edge in self.edges for log in self.logs)

    def pass_over(self, edge: Edge, file: str) -> None:
        """The next block of a log is set aside."""
        (log,) = (log for log in self.logs if log.name == file)
        done = edge.finished.get(file, 0)
        edge.finished[file] = edge.set_aside[file] = next(b.last_offset for b in log.blocks if b.first_offset > done)

    # ---- tablets: crashes, flushes, borders

    def crash(self) -> None:
        """Every tablet is loaded again, from its last flush and the log behind it."""
        for extent in list(self.tablets):
            recovered = Recovered.start(self._states[extent])
            for name, block in self._since_flush[extent]:
                recovered.absorb(name, block)
                recovered.log_uses[name] = block.last_offset
            self.tablets[extent] = self._served(extent, recovered)

    def flush(self) -> None:
        """Write the state of every tablet into its row."""
        for extent, tablet in list(self.tablets.items()):
            point = tablet.begin_flush(self.logs[-1].name, 0)
            if point is not None:
                self._serve(extent, replace(point.state, flush_id=1))

    def end_streams(self) -> None:
        """The sources say that all of it has arrived (R20)."""
        for tablet in self.tablets.values():
            for stream in list(tablet.received.high_water):
                tablet.received.forget_stream(stream)

    def split(self, row: bytes) -> None:
        """A tablet ends at this row, too."""
        (extent,) = (extent for extent in self.tablets if extent.contains(row))
        if extent.end_row == row:
            return
        self.flush()
        facts = TabletFacts(extent, self._states[extent], {}, ())
        self._leave(extent)
        for part in (replace(extent, end_row=row), replace(extent, prev_row=row)):
            self._serve(part, part_state(facts, part, 1))

    def merge(self) -> None:
        """All tablets become one."""
        self.flush()
        parts = [TabletFacts(extent, self._states[extent], {}, ()) for extent in self.tablets]
        for extent in list(self.tablets):
            self._leave(extent)
        self._serve(Extent(TABLE, None, None), joined_state(parts, (), 1))

    def _leave(self, extent: Extent) -> None:
        del self.tablets[extent], self._states[extent], self._since_flush[extent]

    def _serve(self, extent: Extent, state: FlushState | None) -> None:
        state = None if state is None else FlushState.decode(state.encode())
        self._states[extent], self._since_flush[extent] = state, []
        self.tablets[extent] = self._served(extent, Recovered.start(state))

    def _served(self, extent: Extent, recovered: Recovered) -> ServedTablet:
        self._serial += 1
        data = TabletData(extent, GROUPS, MACHINE, name_at(self._directory), [])
        return ServedTablet(extent, data, recovered, Tenure(1, self._serial), 0)


@dataclass(slots=True)
class _OneSession:
    """One session for all ranges."""

    inner: _Session

    def session(self, wanted: Range) -> _Session:
        del wanted
        return self.inner

    def forget(self, wanted: Range) -> None:
        del wanted

    def waiting(self, calls: int = 1, more_ms: float = 0) -> AbstractContextManager[None]:
        del calls, more_ms
        return nullcontext()


@dataclass(slots=True)
class _Session:
    edge: Edge
    stream: Range
    sends: int = 0

    def ship(self, message: Message) -> Acked:
        """Straight into the other cluster."""
        self.sends += 1
        return self.edge.to.receive(self.edge, self.stream, message)

    def close(self) -> None:
        """Nothing to let go."""


def settle(clusters: Sequence[Cluster]) -> None:
    """Ship until no cluster has anything left."""
    while sum(cluster.drain() for cluster in clusters):
        pass


def check_once(cluster: Cluster, written: Sequence[int] = ()) -> None:
    """Check that a cluster has each record once that was sent to it or written by its users, and no other one."""
    twice = sorted(value for value, times in cluster.applied.items() if times > 1)
    lost = sorted((cluster.sent_here | set(written)) - cluster.applied.keys())
    assert not twice, f"{cluster.name} applied {twice} twice"
    assert not lost, f"{cluster.name} lost {lost}"


def runs_held(cluster: Cluster) -> int:
    """Stretches that the tablets of a cluster remember."""
    return sum(
        intervals.size
        for tablet in cluster.tablets.values()
        for intervals in tablet.received.origin_intervals.applied().values()
    )  # fmt: skip
