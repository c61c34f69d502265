"""Recovery of a log whose owner is gone: its end, and a summary of each tablet's records in it.

For a local log of a dead session: its lease and margin have passed, or its process is known to be gone. A recovery
may repeat any step before the seal, and two recoveries may run at once. Recovery never shortens the file. Rules: R10,
R15 and R24.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.errors import NotFoundError, TransientError, UnavailableError, unavailable
from bookkeeper.model import Barrier, BlockTarget, TargetShare
from bookkeeper.storage.volume.names import FENCE_SUFFIX
from bookkeeper.storage.volume.volume_protocol import ReadableVolume, Source, Volume
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb, shares_from_pb
from bookkeeper.storage.wal.blocks.frame import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    HEADER_BYTES_MAX,
    FrameError,
    find_prefixes,
    read_frame,
    read_payload,
)
from bookkeeper.storage.wal.reading.log_formats import (
    BlockAt,
    check_own,
    corrupt,
    only_zeros,
    open_own,
    parse_block_header,
    parse_file_header,
)
from bookkeeper.storage.wal.reading.seal_proof import BlockCount, seal_proven
from bookkeeper.storage.wal.writing.seal import COPY_SUFFIX, SEAL_SUFFIX, Seal, read_seal

SEGMENT_SUFFIX = ".segment"
"""Files with the log's records as segments have the log's name, then this, then more."""

_COMPANION = re.compile(
    rf"{re.escape(FENCE_SUFFIX)}|{re.escape(SEAL_SUFFIX)}(\..*\.tmp)?|\..*{re.escape(COPY_SUFFIX)}|{re.escape(SEGMENT_SUFFIX)}.*"
)


class BooksClaim(Struct, frozen=True):
    """The books' entries on a log: whether a tablet uses it, and its durable offset."""

    is_used: bool = False
    durable_offset: int = 0


def recover(
    volume: Volume,
    name: str,
    *,
    give_up_unproven: bool = False,
    books_claim: Callable[[], BooksClaim] = BooksClaim,
) -> Seal:
    """Seal a dead owner's log behind its last complete block, and return the seal that holds. The seal and every byte
    before it are durable on return, also when syncs of the owner failed.

    A torn tail, as a crash leaves it, stays unread. Idempotent; concurrent callers, and an owner that is still alive,
    agree on the first seal. Raises NotFoundError; CorruptionError when the file is no log, a valid block lies behind
    damage, or the file holds less than ``books_claim`` says (the file is unchanged then, and an operator decides);
    UnavailableError.

    ``give_up_unproven`` is such a decision. A machine that lost its power may have written the last, unsynced blocks in
    any order. Then recovery gives up complete blocks behind damage, unless one proves that the damaged bytes were
    durable, and does not ask ``books_claim``.
    """
    try:
        seal = read_seal(volume, name)
        if seal is not None:
            return seal
        volume.fence(name)
        source = volume.open(name)
        count = count_blocks(name, source, give_up_unproven)
        if count.end.position:
            check_own(name, parse_file_header(name, read_frame(source, FILE_MAGIC, 0, source.size, 0)))
        if not give_up_unproven:
            refuse_less(name, count.end, books_claim())
        return seal_proven(volume, name, source, count)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no log {name}") from error
    except OSError as error:
        raise unavailable(f"{name} can't be recovered", error) from error


def refuse_less(name: str, end: Seal, claim: BooksClaim) -> None:
    """Raise CorruptionError when a file ends before an offset that the books know. Such a file looks like one that a
    crash left, but the books show the difference: the header is durable before they name a tablet's use, and they name
    durable offsets only (R12, R15).
    """
    if claim.is_used and end.position == 0:
        raise corrupt(name, 0, "it is empty, and the books say that tablets use it")
    if end.offset < claim.durable_offset:
        durable = claim.durable_offset
        raise corrupt(
            name, end.position, f"it ends after record {end.offset}, and the books know of {durable} durable ones"
        )


def find_end(name: str, source: Source, give_up_unproven: bool = False) -> Seal:
    """The offset of the last record in a complete block, and the position after that block. Raises CorruptionError."""
    return count_blocks(name, source, give_up_unproven).end


def count_blocks(name: str, source: Source, give_up_unproven: bool = False) -> BlockCount:
    """The end as in :func:`find_end`, and the position up to which the writer had synced. Raises CorruptionError."""
    try:
        file_header = read_frame(source, FILE_MAGIC, 0, source.size, 0)
    except FrameError as error:
        return BlockCount(_without_header(name, source, error))
    offset, position, salt = 0, file_header.end_position, file_header.prefix.prefix_crc
    synced = 0
    while position < source.size:
        try:
            frame = read_frame(source, BLOCK_MAGIC, position, source.size, salt)
            read_payload(source, frame)
        except FrameError as error:
            refuse_blocks_behind(name, source, position, salt, error, give_up_unproven)
            break
        header = parse_block_header(name, frame)
        if header.first_offset != offset + 1:
            raise corrupt(name, position, f"a block starts at offset {header.first_offset}, expected {offset + 1}")
        offset += header.record_count
        position = frame.end_position
        synced = max(synced, frame.prefix.synced_position)
    return BlockCount(Seal(offset, position), synced, salt)


def _without_header(name: str, source: Source, error: FrameError) -> Seal:
    """The end of a file without a header: its start. The header is durable before the first block is written, so any
    other content is damage. Raises CorruptionError.
    """
    head = source.read(0, min(source.size, HEADER_BYTES_MAX)).to_pybytes()
    torn = error.short and FILE_MAGIC.startswith(head[: len(FILE_MAGIC)])
    if (torn and BLOCK_MAGIC not in head and source.size < HEADER_BYTES_MAX) or only_zeros(source, 0):
        return Seal(0, 0)
    raise corrupt(name, 0, f"its file header is no header: {error}")


def refuse_blocks_behind(
    name: str, source: Source, position: int, salt: int, error: FrameError, give_up_unproven: bool
) -> None:
    """Raise CorruptionError unless the bytes at ``position`` are a torn tail. Behind a torn tail no block
    proves that the tail was durable, and no block is complete. ``give_up_unproven`` allows complete ones.
    """
    for at, prefix in find_prefixes(source, position + 1, salt):
        if prefix.synced_position > position:
            raise corrupt(name, position, f"{error}; a block at byte {at} proves that this was durable")
        if not give_up_unproven and _is_complete(source, at, salt):
            raise corrupt(name, position, f"{error}; a whole block follows at byte {at}, perhaps never synced")


def _is_complete(source: Source, position: int, salt: int) -> bool:
    try:
        read_payload(source, read_frame(source, BLOCK_MAGIC, position, source.size, salt))
    except FrameError:
        return False
    return True


class TabletSummary(Struct, frozen=True):
    """One tablet's records in a log. ``barriers`` are in order of offset; ``block_targets`` are the targets of all its
    blocks together, none when no peer gets a record of it.
    """

    first_offset: int
    last_offset: int
    barriers: tuple[Barrier, ...]
    block_targets: frozenset[BlockTarget]


class FileSummary(Struct, frozen=True):
    """A sealed log: its creation time, its end, its tablets by (table id, end row; None = the last tablet), and by
    table id each target's share.
    """

    created_time_ms: int
    seal: Seal
    tablets: Mapping[tuple[str, bytes | None], TabletSummary]
    shares: Mapping[str, tuple[TargetShare, ...]] = field(default_factory=dict)


def file_summary(volume: ReadableVolume, name: str) -> FileSummary:
    """Read the headers of a sealed log; the master closes cells (R10) and rebuilds barriers (R24) from the summary.

    Raises TransientError while there is no seal, and the errors of :func:`read_headers`.
    """
    log = open_own(volume, name)
    if log.seal is None:
        raise TransientError(f"{name} has no seal yet, so its records can't be counted: recover it first")
    tallies: dict[tuple[str, bytes | None], _Tally] = {}
    last_headers: dict[str, pb.BlockHeader] = {}
    for at in log.headers(log.start(None, 1)):
        key = (at.header.table_id, at.header.end_row if at.header.HasField("end_row") else None)
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _Tally(at.header.first_offset)
        tally.add(at)
        if at.header.block_targets:
            last_headers[at.header.table_id] = at.header
    return FileSummary(
        log.created_time_ms,
        log.seal,
        {key: tally.summary() for key, tally in tallies.items()},
        {table_id: shares_from_pb(header) for table_id, header in last_headers.items()},
    )


class _Tally(Struct):
    """A summary that grows; a log of many small blocks repeats the same targets again and again."""

    first_offset: int
    last_offset: int = 0
    barriers: list[Barrier] = field(default_factory=list)
    block_targets: set[BlockTarget] = field(default_factory=set)
    previous_block_targets: Sequence[pb.BlockTarget] = ()

    def add(self, at: BlockAt) -> None:
        header = at.header
        self.last_offset = at.last_offset
        self.barriers += [Barrier(header.first_offset, after.file, after.offset) for after in header.after]
        if header.block_targets != self.previous_block_targets:
            self.previous_block_targets = header.block_targets
            self.block_targets.update(map(block_target_from_pb, header.block_targets))

    def summary(self) -> TabletSummary:
        return TabletSummary(self.first_offset, self.last_offset, tuple(self.barriers), frozenset(self.block_targets))


def delete_log(volume: Volume, name: str) -> None:
    """Remove a log and its companions, the log first; durable on return, idempotent. Raises UnavailableError.

    Companions are its fence, its seal, a temporary file of a crash while sealing, a copy of the log, and segments with
    the same records.
    """
    try:
        beside = [other for other in volume.list_names(name + ".") if _COMPANION.fullmatch(other.removeprefix(name))]
        volume.delete([name, *beside])
    except OSError as error:
        raise UnavailableError(f"{name} can't be deleted: {error}") from error


def last_shares(volume: ReadableVolume, name: str, table_id: str) -> tuple[TargetShare, ...]:
    """Each target's share of a log for one table, by its block headers. Raises the errors of :func:`read_headers`."""
    log = open_own(volume, name)
    last = pb.BlockHeader()
    for at in log.headers(log.start(None, 1)):
        if at.header.table_id == table_id and at.header.block_targets:
            last = at.header
    return shares_from_pb(last)
