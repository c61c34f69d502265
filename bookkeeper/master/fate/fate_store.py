"""FATE operations as rows of the metadata table: their arguments and their current steps.

An operation is a `~fate_<txid>` row. An operation without a step is at its first one. The store writes steps at the
leader's rank, so the steps of a deposed leader are older (rule R1). The end of an operation purges its row; its id is
unique.

A put may be in doubt: the answer is lost, or the write arrives long after the end of its reign. So a reign that begins
takes over all present operations (it writes every step again, at its own rank), then it writes `~fate`. A row of an
earlier reign that no later reign took over arrived after that. Its caller got an error for a doubtful beginning, and
may have asked the next master for the same operation. Such a row is void.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bookkeeper.errors import CorruptionError, TransientError
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import EMPTY, FateOp, FateStep, Json

LOG = logging.getLogger(__name__)

FIRST_STEP = ""
"""Step of an operation without a written step; it stands for the first step of its kind."""

_TXID = re.compile(r"[0-9a-f]{16}")


class FateRecord(Struct, frozen=True):
    """One operation in the books."""

    txid: str
    op: FateOp
    step: str
    state: Mapping[str, Json]
    epoch: int
    """The last reign that began the operation, took it over, or wrote a step of it."""


def format_txid(rank: int) -> str:
    """A transaction id from a rank of the reign that begins it: unique, and in order of beginning."""
    return f"{rank:016x}"


def parse_record(row: Row) -> FateRecord | None:
    """The operation of a `~fate_` row; None for the remains of an ended operation (a late step). Raises
    CorruptionError.
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


class FateStore:
    """Reads and writes the operations of one reign. Calls may be repeated; they raise TransientError."""

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
        """Write new operations, by their ids, in one call. Afterwards every later reign finds them. If the call fails,
        the operations are in doubt; the caller may repeat the call.
        """
        puts = [RowPut(keys.fate_row(txid), {keys.FATE_OP: op.encode()}) for txid, op in ops.items()]
        self._table.put(puts, keys.ONCE_RANK)
        self._reign.check()

    def begin(self, ops: Sequence[FateOp]) -> list[str]:
        """:meth:`write` operations without waiting callers, and return their ids. If the write fails, the next
        :meth:`end` purges the operations in doubt.
        """
        started = {self.new_txid(): op for op in ops}
        try:
            self.write(started)
        except TransientError:
            self._doubtful.update(started)
            raise
        return list(started)

    def reach(self, steps: Mapping[str, FateStep]) -> None:
        """Write the steps that operations have reached, in one call."""
        if steps:
            rank = self._reign.next_rank()
            puts = [RowPut(keys.fate_row(txid), {keys.FATE_STEP: step.encode()}) for txid, step in steps.items()]
            self._table.put(puts, rank)

    def end(self, txids: Iterable[str]) -> None:
        """Purge operations; after a crash in between, the next :meth:`load` finds the remaining ones."""
        doubtful = tuple(self._doubtful)
        rows = map(keys.fate_row, (*txids, *doubtful))
        self._purge([CellKey(row, column) for row in rows for column in (keys.FATE_OP, keys.FATE_STEP)])
        self._doubtful.difference_update(doubtful)

    def _purge(self, cells: Sequence[CellKey]) -> None:
        self._reign.check()
        if cells:
            self._table.purge(cells)

    def load(self) -> list[FateRecord]:
        """Take over all operations, in order of beginning: once, as a reign begins. The reign observes the ranks of
        their rows (rule R8). Purges void rows. Logs a malformed row and leaves it alone, so that the master can lead.
        """
        records = self._valid_records()
        rank = self._reign.next_rank()
        steps = {record.txid: FateStep(record.step, record.state).encode() for record in records}
        if steps:
            self._table.put([RowPut(keys.fate_row(txid), {keys.FATE_STEP: raw}) for txid, raw in steps.items()], rank)
        self._reign.check()
        self._table.put([RowPut(keys.FATE_REIGN_ROW, {keys.FATE_REIGN: EMPTY})], rank)
        return records

    def sweep(self) -> None:
        """Purge void rows: late records, and remains of ended operations."""
        self._valid_records()

    def _valid_records(self) -> list[FateRecord]:
        """All valid operations; purges void ones. The books have an operation before its first step, so a step without
        an operation remains of an ended one.
        """
        taken_over = self._takeover_epoch()
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
                LOG.error("row %r is not a valid operation; this master leaves it alone: %s", row.key, error.message)
                continue
            # Its caller has long been told that nobody knows: the reign that took over all operations did not find it.
            if record is None or record.epoch < taken_over:
                void += [CellKey(row.key, column) for column in row.cells]
            else:
                records.append(record)
        self._purge(void)
        return records

    def _takeover_epoch(self) -> int:
        """The epoch of the last reign that has taken over all operations."""
        row = self._table.get(keys.FATE_REIGN_ROW, ("fate",))
        cell = None if row is None else row.cells.get(keys.FATE_REIGN)
        if cell is None:
            return 0
        self._reign.observe(cell.rank)
        return keys.split_master_rank(cell.rank)[0]
