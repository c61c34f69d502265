"""FATE operations as rows of the metadata table: their arguments and their current steps.

Arrives: new operations, steps reached, ends. Leaves: `~fate_<txid>` rows. Survives a crash: everything, cut after any
call: an operation without a step is at its first one; steps are written at the leader's rank, so those of a deposed
leader are older; an ended operation is purged, its id is never used again. Rule: R1.

A put may be in doubt: the answer is lost, or the write arrives long after the end of its reign. So a reign that begins
takes over all present operations (it writes every step again, at its own rank), then it writes `~fate`. A row of an
earlier reign that no later reign took over arrived after that. Its caller was told that the beginning is in doubt, and
may have asked the next master for the same operation. Such a row is void.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.errors import CorruptionError, TransientError
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import EMPTY, FateOp, FateStep, Json

LOG = logging.getLogger(__name__)

FIRST_STEP = ""
"""Step of an operation that has none written yet; it stands for the first step of its kind."""

_TXID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class FateRecord:
    """One operation as the books have it."""

    txid: str
    op: FateOp
    step: str
    state: Mapping[str, Json]
    epoch: int
    """The last reign that began it, took it over, or wrote a step of it."""


def format_txid(rank: int) -> str:
    """A transaction id from a rank of the reign that begins it: unique, and in order of beginning."""
    return f"{rank:016x}"


def parse_record(row: Row) -> FateRecord | None:
    """The operation of a `~fate_` row; None for the remains of one that was ended (a step written late).

    Raises CorruptionError.
    """
    txid = keys.parse_fate_row(row.key)
    if _TXID.fullmatch(txid) is None:
        raise CorruptionError(f"not a FATE transaction: {txid!r}")
    op = row.cells.get(keys.FATE_OP)
    if op is None:
        return None
    step = row.cells.get(keys.FATE_STEP)
    decoded = FateStep(FIRST_STEP, {}) if step is None else FateStep.decode(step.value)
    epoch, _ = keys.split_master_rank(max(int(txid, 16), 0 if step is None else step.rank))
    return FateRecord(txid, FateOp.decode(op.value), decoded.step, decoded.state, epoch)


def came_late(record: FateRecord, taken_over: int) -> bool:
    """Whether an operation came into the books after the reign of epoch ``taken_over`` took over all operations."""
    return record.epoch < taken_over


class FateStore:
    """Reads and writes operations for one reign. Every call may be repeated; raises TransientError."""

    def __init__(self, table: MetadataTable, reign: Reign) -> None:
        self._table = table
        self._reign = reign
        self._doubtful: set[str] = set()

    def check(self) -> None:
        """Raise LeaseLostError unless this process may still lead."""
        self._reign.check()

    def new_txid(self) -> str:
        """An id that no operation has. Raises LeaseLostError."""
        return format_txid(self._reign.next_rank())

    def write(self, ops: Mapping[str, FateOp]) -> None:
        """Write new operations, by their ids, in one call. When this returns, every later reign finds them. When it
        fails they are in doubt; the caller may repeat it.
        """
        puts = [RowPut(keys.fate_row(txid), {keys.FATE_OP: op.encode()}) for txid, op in ops.items()]
        self._table.put(puts, keys.ONCE_RANK)
        self._reign.check()

    def begin(self, ops: Sequence[FateOp]) -> list[str]:
        """:meth:`write` operations without waiting callers, and return their ids. When that fails, those in doubt are
        purged when another one ends.
        """
        begun = {self.new_txid(): op for op in ops}
        try:
            self.write(begun)
        except TransientError:
            self._doubtful.update(begun)
            raise
        return list(begun)

    def reach(self, steps: Mapping[str, FateStep]) -> None:
        """Write the steps that operations have reached, in one call."""
        if steps:
            rank = self._reign.next_rank()
            puts = [RowPut(keys.fate_row(txid), {keys.FATE_STEP: step.encode()}) for txid, step in steps.items()]
            self._table.put(puts, rank)

    def end(self, txids: Iterable[str]) -> None:
        """Forget operations for good; the next :meth:`load` finds any that a crash leaves."""
        doubtful = tuple(self._doubtful)
        rows = map(keys.fate_row, (*txids, *doubtful))
        self._purge([CellKey(row, column) for row in rows for column in (keys.FATE_OP, keys.FATE_STEP)])
        self._doubtful.difference_update(doubtful)

    def _purge(self, cells: Sequence[CellKey]) -> None:
        self._reign.check()
        if cells:
            self._table.purge(cells)

    def load(self) -> list[FateRecord]:
        """Take over all operations, in order of beginning: once, as a reign begins. Tells the reign the ranks that it
        meets (rule R8). Purges void rows.

        A row that does not parse is logged and left alone: it must not keep a master from leading.
        """
        records = self._sound()
        rank = self._reign.next_rank()
        steps = {record.txid: FateStep(record.step, record.state).encode() for record in records}
        if steps:
            self._table.put([RowPut(keys.fate_row(txid), {keys.FATE_STEP: raw}) for txid, raw in steps.items()], rank)
        self._reign.check()
        self._table.put([RowPut(keys.FATE_REIGN_ROW, {keys.FATE_REIGN: EMPTY})], rank)
        return records

    def sweep(self) -> None:
        """Purge void rows: those that came late, and remains of operations that were ended."""
        self._sound()

    def _sound(self) -> list[FateRecord]:
        """All operations that are not void; all others are purged. An operation is in the books before its first step
        is, so a step without its operation is a remain of an ended one.
        """
        taken_over = self._taken_over()
        records: list[FateRecord] = []
        void: list[CellKey] = []
        start, stop = keys.section(keys.FATE_PREFIX)
        for row in self._table.scan(start, stop, ("fate",)):
            step = row.cells.get(keys.FATE_STEP)
            if step is not None:
                self._reign.observe(step.rank)
            try:
                record = parse_record(row)
            except CorruptionError as error:
                LOG.error("row %r is no operation and is left alone: %s", row.key, error.message)
                continue
            if record is None or came_late(record, taken_over):
                void += [CellKey(row.key, column) for column in row.cells]
            else:
                records.append(record)
        self._purge(void)
        return records

    def _taken_over(self) -> int:
        """The epoch of the last reign that has taken over all operations."""
        row = self._table.get(keys.FATE_REIGN_ROW, ("fate",))
        cell = None if row is None else row.cells.get(keys.FATE_REIGN)
        if cell is None:
            return 0
        self._reign.observe(cell.rank)
        return keys.split_master_rank(cell.rank)[0]
