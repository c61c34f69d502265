"""FATE operations as they lie in the metadata table: what is to be done, and how far it is.

Arrives: new operations, steps reached, ends. Leaves: `~fate_<txid>` rows. Survives a crash: everything, cut after any
call: an operation without a step is at its first one; steps are written at the leader's rank, so those of a deposed
leader are older; an ended operation is purged, its id is never used again. Sources: design section 6; R1.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.errors import CorruptionError, TransientError
from bookkeeper.master.leader import Reign
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.metadata.values import FateOp, FateStep, Json

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
    return FateRecord(txid, FateOp.decode(op.value), decoded.step, decoded.state)


class FateStore:
    """Reads and writes operations for one reign. Every call may be repeated; raises TransientError."""

    def __init__(self, table: MetadataTable, reign: Reign) -> None:
        self._table = table
        self._reign = reign
        self._doubtful: set[str] = set()

    def check(self) -> None:
        """Raise LeaseLostError unless this process may still lead."""
        self._reign.check()

    def begin(self, ops: Sequence[FateOp]) -> list[str]:
        """Write new operations in one call and return their ids. Where that fails, some may be there all the same:
        their caller was told otherwise, so they go with whatever ends next.
        """
        txids = [format_txid(self._reign.next_rank()) for _ in ops]
        puts = [RowPut(keys.fate_row(txid), {keys.FATE_OP: op.encode()}) for txid, op in zip(txids, ops, strict=True)]
        try:
            self._table.put(puts, keys.ONCE_RANK)
        except TransientError:
            self._doubtful.update(txids)
            raise
        return txids

    def reach(self, steps: Mapping[str, FateStep]) -> None:
        """Write the steps that operations have reached, in one call."""
        if steps:
            rank = self._reign.next_rank()
            puts = [RowPut(keys.fate_row(txid), {keys.FATE_STEP: step.encode()}) for txid, step in steps.items()]
            self._table.put(puts, rank)

    def end(self, txids: Iterable[str]) -> None:
        """Forget operations for good; what a cut leaves, the next :meth:`load` finds."""
        doubtful = tuple(self._doubtful)
        rows = map(keys.fate_row, (*txids, *doubtful))
        self._purge([CellKey(row, column) for row in rows for column in (keys.FATE_OP, keys.FATE_STEP)])
        self._doubtful.difference_update(doubtful)

    def _purge(self, cells: Sequence[CellKey]) -> None:
        self._reign.check()
        if cells:
            self._table.purge(cells)

    def load(self) -> list[FateRecord]:
        """All operations there are, in order of beginning. Tells the reign what ranks it meets (rule R8). Purges what
        is left of those that were ended: an operation is in the books before its first step is.

        A row that does not parse is left alone and said: it must not keep a master from leading.
        """
        records: list[FateRecord] = []
        remains: list[CellKey] = []
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
            if record is None:
                remains += [CellKey(row.key, column) for column in row.cells]
            else:
                records.append(record)
        self._purge(remains)
        return records
