"""The tserver's side of the books: the cells that follow from the life of a WAL, and their ranks.

``WalBooks`` gets the events of a WAL (blocks about to be appended, syncs, a seal, flushes) and answers with row puts
and deletes at a rank; it writes nothing and has no thread (``wal_bookkeeper`` has both). The simulation drives the same
class. After a crash a master finds OPEN cells of a sealed file and closes them (R10).

Ranks (rule R1: a rank is never written with two values; ``metadata.keys``): first use 2x - 1, needed 2n, closed above
all. ``n`` is the needed offset. ``x`` is the first offset of the *group* of blocks in which the tablet starts, so all
tablets that start in one group share one call. That is above any delete of their ``log:`` cells (flushes end before the
group) and at or below their own first record: the ranks need no more than that. Rules: R1, R12, R15 and R24.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, RowPut
from bookkeeper.model import Barrier, TargetShare
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import shares_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.tserver.tablets.wal_order import WalPosition, barrier_at
from combiners import ReplicationStatus


class Reach(Struct, frozen=True):
    """The durable part of a WAL: its last record (0 = none) and the byte position behind that record's block."""

    offset: int
    position: int


NOTHING_DURABLE = Reach(0, 0)


class BatchPut(Struct, frozen=True):
    """Rows to put in one call at one rank; to repeat all or some of them is harmless."""

    rows: tuple[RowPut, ...]
    rank: int


class Announced(NamedTuple):
    """Tables with a `repl:` cell of a log, and barriers in such cells, in order."""

    tables: frozenset[str]
    barriers: tuple[Barrier, ...]


class TabletUse(Struct):
    """One tablet's use of one WAL. ``logged``: its ``log:`` cell shows; ``replicated``: it has a ``repl:`` cell."""

    row: bytes
    logged: bool = False
    replicated: bool = False
    barriers: tuple[Barrier, ...] = ()
    """Of its ``repl:`` cell, which names a barrier before the block that waits for it is appended (R24)."""
    unreported: int = 0
    """No record with targets below this offset waits for a needed update (a lower bound); 0 = no record waits."""
    last_offset: int = 0
    """Last offset of the tablet's records with targets."""

    def start(self, block: Block) -> None:
        """The first use for this block goes into the books."""
        self.logged = True
        self.replicated = self.replicated or bool(block.header.block_targets)
        # R24: in the books, the master sees that these records wait for others, in other logs.
        after = (WalPosition(one.file, one.offset) for one in block.header.after)
        self.barriers = (*self.barriers, *(barrier_at(block.first_offset, one) for one in after))

    def undo_start(self, before: TabletUse) -> None:
        """The cells of :meth:`start` are not in the books: restore the state ``before``."""
        self.logged, self.replicated, self.barriers = before.logged, before.replicated, before.barriers

    def append(self, block: Block) -> None:
        """A block with targets goes to the log now; a needed update has to cover it."""
        self.unreported = self.unreported or block.first_offset
        self.last_offset = block.last_offset

    def is_due(self, durable_offset: int) -> bool:
        """Whether a needed update up to ``durable_offset`` would say something new."""
        return 0 < self.unreported <= durable_offset

    def report(self, durable_offset: int) -> None:
        """A needed update covers the tablet's records up to ``durable_offset``."""
        self.unreported = durable_offset + 1 if self.last_offset > durable_offset else 0

    def undo_report(self) -> None:
        """The needed update failed: the tablet is due again."""
        self.unreported = 1

    def release(self) -> None:
        """A flush deletes the ``log:`` cell: the next block is a first use again."""
        self.logged = False


def open_status(
    created_ms: int, reach: Reach, barriers: Iterable[Barrier], shares: Iterable[TargetShare]
) -> ReplicationStatus:
    """OPEN, needed up to ``reach``. Every version of a tablet's cell repeats its barriers, because the newest cell
    wins. ``shares``: each target's share of the file up to there, for the tablet's table.
    """
    opened = ReplicationStatus(
        created_time=created_ms,
        barriers=[
            combiners.Barrier(offset=b.offset, file=b.file, until_offset=b.until_offset) for b in sorted(set(barriers))
        ],
        shares=values.encode_shares(shares),
    )
    return combiners.append(opened, reach.offset, needed_bytes=reach.position)


def needs_first_use(use: TabletUse | None, header: BlockHeader) -> bool:
    """Whether a put must come before the block (R12): the tablet has no ``log:`` cell of this WAL; or the block has
    targets, and the tablet has no ``repl:`` cell, or the block waits for files that the cell must name first (R24).
    """
    if use is None or not use.logged:
        return True
    return bool(header.block_targets) and (not use.replicated or bool(header.after))


def first_use_values(wal: str, use: TabletUse, replicated: bool, status: ReplicationStatus) -> dict[Column, bytes]:
    """Rule R12: ``log:`` and, when the block has targets, ``repl:`` go together in one row put."""
    cells = {keys.log_column(wal): values.LOG}
    if replicated or use.replicated:
        cells[keys.repl_column(wal)] = values.encode_status(status)
    return cells


class TableShares(Struct):
    """Each target's share of a log, for one table: in the header of the last block with targets up to an offset
    (``wal.blocks.target_shares``). No reader requests an offset below the durable one, so one sync's blocks are enough
    to remember.
    """

    _headers: deque[BlockHeader] = field(default_factory=deque)

    def appended(self, block: Block, durable: int) -> None:
        """A block of the table with targets goes to the log now. ``durable``: the log's durable offset."""
        self._headers.append(block.header)
        self._forget_before(durable)

    def up_to(self, offset: int) -> tuple[TargetShare, ...]:
        """The shares of the log's records up to ``offset``, at which a block ends."""
        self._forget_before(offset)
        headers = self._headers
        return shares_from_pb(headers[0]) if headers and headers[0].first_offset <= offset else ()

    def _forget_before(self, offset: int) -> None:
        headers = self._headers
        while len(headers) > 1 and headers[1].first_offset <= offset:
            headers.popleft()


class WalBooks(Struct):
    """The books of one WAL: the cells that are there, or have to come. Not thread-safe.

    Order of calls: :meth:`first_uses` and, once they are in the books, :meth:`appended` for each group of blocks;
    :meth:`synced` as syncs happen; :meth:`needed_update` whenever; :meth:`closing` after the seal.
    """

    name: str
    created_ms: int
    durable: Reach = NOTHING_DURABLE
    written: int = 0
    uses: dict[tuple[str, bytes | None], TabletUse] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    """Table id to the last offset of its records."""
    unsynced: dict[str, int] = field(default_factory=dict)
    """Table id to an offset at or before its first record that is not durable."""
    shares: dict[str, TableShares] = field(default_factory=dict)
    """Table id to its targets' shares of the log."""
    _previous_uses: dict[tuple[str, bytes | None], TabletUse | None] = field(default_factory=dict)
    """Tablets that the latest :meth:`first_uses` changed, each with its use before."""

    def first_uses(self, blocks: Sequence[Block]) -> BatchPut | None:
        """The put that must be in the books before ``blocks`` are acknowledged; None: no put is needed.

        Marks the uses as written: the caller repeats the put until it succeeds, or ends the process. So a group whose
        first uses may be in the books is never given up, and no other group is announced at its rank (R1). If the first
        uses are certainly not there, :meth:`give_up` removes the marks.
        """
        self._previous_uses = {}
        starting: dict[bytes, tuple[TabletUse, bool]] = {}
        for block in blocks:
            key = tablet_of(block.header)
            use = self.uses.get(key)
            if not needs_first_use(use, block.header):
                continue
            self._previous_uses.setdefault(key, None if use is None else replace(use))
            if use is None:
                use = self.uses[key] = TabletUse(keys.tablet_row(*key))
            use.start(block)
            starting[use.row] = (use, use.replicated)
        if not starting:
            return None
        rows = tuple(
            RowPut(row, first_use_values(self.name, use, replicated, self._status(use, self.durable)))
            for row, (use, replicated) in sorted(starting.items())
        )
        return BatchPut(rows, keys.first_use_rank(blocks[0].first_offset))

    def give_up(self) -> None:
        """The put of the latest :meth:`first_uses` did not happen, and its blocks will not be appended."""
        for key, before in self._previous_uses.items():
            use = self.uses.get(key)
            if use is not None and before is None:
                del self.uses[key]
            elif use is not None and before is not None:
                use.undo_start(before)
        self._previous_uses = {}

    def appended(self, blocks: Sequence[Block]) -> None:
        """These blocks go to the log now; those with targets need a needed update later."""
        for block in blocks:
            use = self.uses[tablet_of(block.header)]
            if block.header.block_targets:
                use.append(block)
                self.shares.setdefault(block.header.table_id, TableShares()).appended(block, self.durable.offset)
            self.unsynced.setdefault(block.header.table_id, block.first_offset)
            self.written = self.tables[block.header.table_id] = block.last_offset

    def synced(self, reach: Reach) -> frozenset[str]:
        """Everything up to ``reach`` is durable. The tables with more durable records."""
        if reach.offset > self.durable.offset:
            self.durable = reach
        grown = frozenset(table for table, first in self.unsynced.items() if first <= reach.offset)
        for table in grown:
            if self.tables[table] > reach.offset:
                self.unsynced[table] = reach.offset + 1
            else:
                del self.unsynced[table]
        return grown

    def is_due(self) -> bool:
        """Whether :meth:`needed_update` would write something."""
        return any(use.is_due(self.durable.offset) for use in self.uses.values())

    def needed_update(self) -> BatchPut | None:
        """The needed offset for each tablet that wrote records with targets since the last update; None: no tablet did.
        Rule R15: it never passes the durable offset, and ends with a block.

        A lost update costs latency only; call :meth:`take_back` when it could not be written.
        """
        reach = self.durable
        due = [use for use in self.uses.values() if use.is_due(reach.offset)]
        if not due:
            return None
        for use in due:
            use.report(reach.offset)
        rows = tuple(self._repl_put(use, self._status(use, reach)) for use in due)
        return BatchPut(rows, keys.needed_rank(reach.offset))

    def take_back(self, update: BatchPut) -> None:
        """The update failed: its tablets are due again."""
        rows = {put.key for put in update.rows}
        for use in self.uses.values():
            if use.row in rows:
                use.undo_report()

    def closing(self, seal: Seal) -> BatchPut | None:
        """CLOSED with the exact final offset for every tablet with a ``repl:`` cell; None when there is none.

        A fact about the file: a master that closes it from the file (R10) writes the same.
        """
        replicated = [use for use in self.uses.values() if use.replicated]
        if not replicated:
            return None
        end = Reach(seal.offset, seal.position)
        rows = tuple(self._repl_put(use, combiners.close(self._status(use, end))) for use in replicated)
        return BatchPut(rows, keys.closed_rank(seal.offset))

    def release(self, tablet: tuple[str, bytes | None]) -> None:
        """A flush of the tablet begins: its next block is a first use again, at a rank above the flush's delete."""
        use = self.uses.get(tablet)
        if use is not None:
            use.release()

    def forget(self, tablet: tuple[str, bytes | None]) -> None:
        """The tablet's row goes (its table is deleted): nothing more is written to it."""
        self.uses.pop(tablet, None)

    def announced(self) -> Announced:
        """The tables and barriers that the latest :meth:`first_uses` brought into `repl:` cells."""
        tables, barriers = set(), set[Barrier]()
        for key, before in self._previous_uses.items():
            use = self.uses.get(key)
            if use is not None and use.replicated:
                tables.add(key[0])
                known = before.barriers if before is not None and before.replicated else ()
                barriers.update(use.barriers[len(known) :])
        return Announced(frozenset(tables), tuple(sorted(barriers)))

    def has_used(self, tablet: tuple[str, bytes | None]) -> bool:
        """Whether this WAL holds, or was about to hold, records of the tablet."""
        return tablet in self.uses

    def _status(self, use: TabletUse, reach: Reach) -> ReplicationStatus:
        table_id, _ = keys.parse_tablet_row(use.row)
        table_shares = self.shares.get(table_id)
        shares = () if table_shares is None else table_shares.up_to(reach.offset)
        return open_status(self.created_ms, reach, use.barriers, shares)

    def _repl_put(self, use: TabletUse, status: ReplicationStatus) -> RowPut:
        return RowPut(use.row, {keys.repl_column(self.name): values.encode_status(status)})


def tablet_of(header: BlockHeader) -> tuple[str, bytes | None]:
    """Table id and end row of the tablet that a block belongs to."""
    return header.table_id, header.end_row if header.HasField("end_row") else None


def log_deletes(row: bytes, through: Mapping[str, int]) -> list[tuple[CellKey, int]]:
    """After a flush is in the books: hide ``log:`` of each WAL at or below the flushed offset, each at its own rank.

    A first use behind the flush has a higher rank and stays.
    """
    return [
        (CellKey(row, keys.log_column(wal)), keys.log_delete_rank(offset))
        for wal, offset in sorted(through.items())
        if offset > 0
    ]
