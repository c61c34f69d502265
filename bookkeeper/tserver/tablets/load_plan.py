"""The plan of loading a tablet: its row, the log records that its segments lack, and the state after replaying them.

Pure; ``tablet_opener`` does the reading, and the simulation calls the same functions. All input survives a crash, so
loading again gives the same tablet. Rules: R15, R18 and R24.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from bookkeeper.errors import CorruptionError, NotFoundError, RefusedError
from bookkeeper.metadata import keys, lost_logs, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import FlushState, LogHome, ReplicaCell, SegmentEntry
from bookkeeper.model import Extent, PartialHighWater, StreamKey
from bookkeeper.origins import Root, RootIntervals, root_of
from bookkeeper.replicas.placements import Role, RowReplica
from bookkeeper.replicas.values import Placement
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import block_origins_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.tablets.wal_order import WalPosition

TABLET_FAMILIES = ("tablet", "location", "segment", "log", "replica")
"""The families of a tablet's row that loading reads."""


class TabletRow(Struct, frozen=True):
    """A tablet's row, parsed. ``location_rank`` 0 = it has no location; ``serial`` counts its holders up to now;
    ``logs`` are those that it may still need, given-up ones included; ``replicas`` those on hosts, none for a tablet on
    the cluster's Volume.
    """

    extent: Extent
    directory: str
    session: str | None
    location_rank: int
    serial: int
    flush: FlushState | None
    segments: Mapping[str, SegmentEntry]
    logs: tuple[str, ...]
    replicas: tuple[RowReplica, ...] = ()
    lost: Mapping[str, LogHome] = field(default_factory=dict)
    """Logs that were given up, because the host that has them is away: the tablet is served without them."""


def parse_tablet(row: Row) -> TabletRow:
    """Parse a row read with :data:`TABLET_FAMILIES`. Raises CorruptionError."""
    table_id, end_row = keys.parse_tablet_row(row.key)
    prev_row, directory = row.cells.get(keys.PREV_ROW), row.cells.get(keys.DIR)
    if prev_row is None or directory is None:
        raise CorruptionError(f"tablet {row.key!r} lacks its previous row or its directory in the metadata table")
    location, serial, flush = row.cells.get(keys.LOCATION), row.cells.get(keys.SERIAL), row.cells.get(keys.FLUSH)
    place = None if location is None else values.Location.decode(location.value)
    return TabletRow(
        extent=Extent(table_id, end_row, values.decode_prev_row(prev_row.value)),
        directory=values.decode_dir(directory.value),
        # R7: no session loads a parked tablet, because an operation changes its borders.
        session=None if place is None or place.is_parked else place.session,
        location_rank=keys.location_rank(row) or 0,
        serial=0 if serial is None else serial.rank,
        flush=None if flush is None else FlushState.decode(flush.value),
        segments={
            keys.parse_file(name): SegmentEntry.decode(cell.value) for name, cell in row.family("segment").items()
        },
        logs=tuple(keys.parse_file(wal) for wal in row.family("log")),
        replicas=parse_replicas(row),
        lost={log: LogHome.decode(cell.value) for log, cell in lost_logs.given_up(row).items()},
    )


def parse_replicas(row: Row) -> tuple[RowReplica, ...]:
    """The replicas that a row names, read with the family ``replica``. Raises CorruptionError."""
    found = {keys.parse_replica(host): ReplicaCell.decode(cell.value) for host, cell in row.family("replica").items()}
    return tuple(
        RowReplica(host, Placement(cell.placement, cell.incarnation), Role(cell.role))
        for host, cell in sorted(found.items())
    )


def check_assignment(row: TabletRow | None, extent: Extent, session_id: str) -> TabletRow:
    """The row, when it gives this tablet to this session. Raises NotFoundError or RefusedError.

    The location is written by the leader at a rank of its reign, so an order of a deposed leader finds another
    session here and is refused.
    """
    if row is None or row.extent != extent:
        raise NotFoundError(f"there is no tablet {extent}; the metadata table has {row and row.extent}")
    if row.session != session_id:
        raise RefusedError(
            f"tablet {extent} is assigned to session {row.session}, not to {session_id}: read its location again"
        )
    return row


# ---- flush ids: rule R1 across holders


def next_serial(row: TabletRow) -> int:
    """The serial of the next holder, written at its own rank before the tablet is served."""
    return row.serial + 1


def first_flush_id(serial: int) -> int:
    """The first flush id of a holder: above every rank that an earlier holder may still write, however late.

    Two holders never share a serial: the later one loads when the earlier one's session is over, and the earlier
    one checks its session between writing its serial and serving. So a rank of ``tablet:flush`` has one value.
    """
    return keys.first_flush_id(serial)


def is_live(name: str, state: FlushState | None) -> bool:
    """A segment belongs to its tablet as long as the newest state names it; other cells are dead: of a flush that an
    earlier holder wrote when it was over, or replaced by a compaction.
    """
    return state is not None and name in state.segments


def live_segments(row: TabletRow) -> dict[str, SegmentEntry]:
    """The segments that the tablet consists of. Raises CorruptionError when one that counts has no cell."""
    named = () if row.flush is None else row.flush.segments
    missing = [name for name in named if name not in row.segments]
    if missing:
        raise CorruptionError(f"tablet {row.extent} has segment {missing[0]} in its flush state, and no cell names it")
    return {name: entry for name, entry in row.segments.items() if is_live(name, row.flush)}


# ---- replaying logs


class LogToRead(Struct, frozen=True):
    """One log that the tablet names: read the blocks behind ``after`` (0 = all) up to its seal."""

    name: str
    after: int


def recovery_plan(row: TabletRow) -> list[LogToRead]:
    """Every log of the row but the given-up ones, from where its segments end. The order of replay is that of
    :func:`replay_order`.
    """
    return [_to_read(row, name) for name in row.logs if name not in row.lost]


def tails_to_merge(row: TabletRow) -> list[LogToRead]:
    """The given-up logs whose records the tablet lacks, from where its segments end (N6). Without a ``log:`` cell a
    named state has all of them: the cell goes last.
    """
    return [_to_read(row, name) for name in row.logs if name in row.lost]


def _to_read(row: TabletRow, name: str) -> LogToRead:
    return LogToRead(name, 0 if row.flush is None else row.flush.through.get(name, 0))


def writer_of(header: BlockHeader) -> tuple[str, bytes | None]:
    """The :func:`tablet_key` of the tablet that wrote a block."""
    return header.table_id, header.end_row if header.HasField("end_row") else None


def tablet_key(extent: Extent) -> tuple[str, bytes | None]:
    """A tablet's name in logs: table id and end row. Halves of a tablet that was split have other names than the whole:
    they replay nothing of it, because it was flushed before.
    """
    return extent.table_id, extent.end_row


def is_behind(log: LogToRead, header: BlockHeader) -> bool:
    """Whether the segments of the tablet lack a block of its own. Flushes end between blocks, so no block is halved."""
    return header.first_offset + header.record_count - 1 > log.after


def replay_order(found: Iterable[tuple[str, Block]]) -> list[tuple[str, Block]]:
    """Blocks of all logs in the order in which the tablet wrote them: by its own sequence numbers (R24)."""
    return sorted(found, key=lambda item: item[1].header.first_seq)


class Recovered(Struct):
    """The recovered state of a tablet: from its flush state, and then from each replayed block."""

    next_seq: int = 1
    last_time_ms: int = 0
    high_water: dict[StreamKey, int] = field(default_factory=dict)
    last_wals: tuple[WalPosition, ...] = ()
    log_uses: dict[str, int] = field(default_factory=dict)
    """Log to the offset that a flush of everything replayed covers."""
    flush: FlushState | None = None
    """The newest state in the books."""
    partial_high_waters: dict[StreamKey, tuple[PartialHighWater, ...]] = field(default_factory=dict)
    origin_intervals: dict[Root, RootIntervals] = field(default_factory=dict)
    tails: dict[str, int] = field(default_factory=dict)
    """Given-up log to the offset after which the tablet lacks its records."""
    lost: frozenset[str] = frozenset()
    """All given-up logs, also those of which the tablet lacks nothing."""

    @classmethod
    def start(cls, flush: FlushState | None) -> Recovered:
        """The state at the tablet's last flush."""
        if flush is None:
            return cls()
        return cls(
            flush.last_seq + 1,
            flush.last_time_ms,
            dict(flush.high_water),
            tuple(WalPosition(*last) for last in flush.last_wals),
            flush=flush,
            partial_high_waters=dict(flush.partial_high_waters),
            origin_intervals=dict(flush.origin_intervals),
        )

    def go_without(self, row: TabletRow, latest_ms: int) -> None:
        """Go on without the given-up logs of the row, once all others are replayed. ``latest_ms``: no record of these
        logs has a later server time (N7).
        """
        if not row.lost:
            return
        self.lost = frozenset(row.lost)
        self.tails = {log.name: log.after for log in tails_to_merge(row)}
        # Above all numbers that earlier holders gave: the records of a tail keep theirs, and stay older than all that
        # this holder writes.
        self.next_seq = max(self.next_seq, keys.first_flush_id(next_serial(row)))
        # At a peer the tail comes later, and wins against an equal time.
        self.last_time_ms = max(self.last_time_ms, latest_ms + 1)

    def absorb(self, name: str, block: Block) -> int:
        """One replayed block, in order; returns the sequence number of its first record.

        That is the one in its header, unless records that never reached a log had taken it and a flush made them
        last: then the next free one, because the log's records were written later.
        """
        header = block.header
        first_seq = max(self.next_seq, header.first_seq)
        self.next_seq = first_seq + header.record_count
        self.last_time_ms = max(self.last_time_ms, header.write_time_ms)
        self.last_wals = (WalPosition(name, block.last_offset),)
        if header.HasField("origin"):
            stream = stream_from_pb(header.origin.stream)
            raise_high_water(self.high_water, stream, header.origin.to_offset)
            drop_reached(self.partial_high_waters, stream, header.origin.to_offset)
            add_claims(self.origin_intervals, header, root_of(stream))
        return first_seq


def add_claims(intervals: dict[Root, RootIntervals], header: BlockHeader, own: Root) -> None:
    """Rule R22: a block header also has the records of each root that its tablet has."""
    for claim in block_origins_from_pb(header.block_origins, own).claims:
        intervals[claim.root] = intervals.get(claim.root, RootIntervals()).taking(claim.part, header.write_time_ms)


def raise_high_water(high_water: dict[StreamKey, int], stream: StreamKey, to_offset: int) -> None:
    """Rule R18: a block header decides up to which offset its tablet has a stream."""
    high_water[stream] = max(high_water.get(stream, 0), to_offset)


def drop_reached(partial: dict[StreamKey, tuple[PartialHighWater, ...]], stream: StreamKey, high_water: int) -> None:
    """Drop the partial high-waters that the high-water has reached."""
    left = tuple(part for part in partial.get(stream, ()) if part.offset > high_water)
    if left:
        partial[stream] = left
    else:
        partial.pop(stream, None)


def forgotten_streams(high_water: Iterable[StreamKey], indexed: Collection[StreamKey]) -> list[StreamKey]:
    """Rule R20: high-waters of streams that have ended, because their ``~recv_`` cells are gone. No tserver served the
    tablet when they ended, or it died before the next flush. ``indexed`` was read after the high-waters.
    """
    return [stream for stream in high_water if stream not in indexed]


def all_uses(logs: Iterable[str]) -> dict[str, int]:
    """Sealed logs, each with an offset that covers every use of it that its owner announced (R12).

    The seal bounds no use: the owner announces a use before the group in front of it is durable, so after a power loss
    several groups and their uses may lie behind the seal. A sealed log gets no further use that counts, so nothing is
    hidden that a tablet needs.
    """
    return dict.fromkeys(logs, keys.OFFSET_MAX)


def unneeded_logs(row: TabletRow, replayed: Collection[str]) -> list[str]:
    """Logs without a record that the tablet needs. A given-up log is not read, so it may have some."""
    return [name for name in row.logs if name not in replayed and name not in row.lost]
