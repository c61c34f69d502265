"""Conditional writes: all records of one row, if some of its cells are as the client says, or none.

The commit thread judges the conditions at the head of a group: everything submitted before is applied by then, and no
write comes between the judgement and this one. The calling thread judges them first: a condition that does not hold
then needs no commit, and the second judgement finds its data in memory. An answered write survives a crash as its
durability says. Source: Accumulo's ConditionalWriter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.errors import BookkeeperError, InvalidInputError, NotServingError, UnavailableError
from bookkeeper.rpc.contract.messages import Condition
from bookkeeper.storage.tablet.scans.cell_versions import VersionFilter
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet, TabletRecords
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.client_write import ClientWrite
from bookkeeper.tserver.write.write_context import WriteContext

CONDITIONS_MAX = 100
PAGE_BYTES = 1024 * 1024
PAGES_MAX = 200
"""Pages that one judgement reads at most, because the commit thread waits for it."""

NEWEST = VersionFilter(versions=1)
Key = tuple[bytes, bytes, bytes]
"""Family, qualifier, visibility."""


def check_conditional(conditions: Collection[Condition], records: TabletRecords) -> None:
    """Raise InvalidInputError unless there are conditions, not too many, and records of one row."""
    if not 1 <= len(conditions) <= CONDITIONS_MAX:
        raise InvalidInputError(f"a conditional write has 1 to {CONDITIONS_MAX} conditions, not {len(conditions)}")
    if records.min_row != records.max_row:
        raise InvalidInputError(
            f"a conditional write is of one row, not of {records.min_row!r} to {records.max_row!r}: send one a row"
        )


def read_cells(data: TabletData, row: bytes, conditions: Collection[Condition], now_ms: int) -> dict[Key, bytes]:
    """The newest versions of the cells of a row that the conditions name; absent cells are left out.

    Raises CorruptionError, UnavailableError, and InvalidInputError when the columns hold too much for one judgement.
    """
    columns = {(condition.family, condition.qualifier) for condition in conditions}
    found: dict[Key, bytes] = {}
    resume: bytes | None = None
    for _ in range(PAGES_MAX):
        try:
            page = data.scan_page(row, row + b"\x00", (), columns, resume, PAGE_BYTES, NEWEST, now_ms)
        except OSError as error:
            raise UnavailableError(f"a segment can't be read: {error}") from error
        names = ("family", "qualifier", "visibility", "value")
        for family, qualifier, visibility, value in zip(
            *(page.records.column(name).to_pylist() for name in names), strict=True
        ):
            found[family, qualifier, visibility] = value
        if page.next is None:
            return found
        resume = page.next
    raise InvalidInputError(f"the conditions on row {row!r} read more than {PAGES_MAX} MiB: too much for one judgement")


def refuse_conditional_write(view: TableView, tablet: ServedTablet) -> None:
    """Raise ReadOnlyError or ConditionalRefusedError when the tablet accepts no conditional writes."""
    write_guards.refuse_read_only(view)
    write_guards.refuse_conditional(view, tablet.received.senders())


class ConditionalWrite:
    """A submission: a user's write of one row, if its conditions hold. Answers whether it was written."""

    def __init__(
        self,
        context: WriteContext,
        tablet: ServedTablet,
        records: TabletRecords,
        conditions: Sequence[Condition],
        durability: Durability | None,
    ) -> None:
        """See :func:`check_conditional`. Has to begin a group."""
        self._write = ClientWrite(context, [(tablet, records)], durability)
        self.approx_bytes = self._write.approx_bytes
        self._context = context
        self._tablet = tablet
        self._row = records.min_row
        self._conditions = conditions
        self._holds = False

    @property
    def durability(self) -> Durability:
        """See :class:`Submission`; a write whose conditions fail does not wait for the disk."""
        return self._write.durability if self._holds else Durability.LOG

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`. Raises NotServingError, NotFoundError, ReadOnlyError, ConditionalRefusedError, and
        the errors of :func:`holds_now`.
        """
        tablet = self._tablet
        if not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server: locate it again")
        moment = self._context.moment(tablet.extent.table_id, point)
        refuse_conditional_write(moment.view, tablet)
        self._holds = holds_now(tablet.data, self._row, self._conditions, moment.now_ms)
        return self._write.prepare(point) if self._holds else []

    def applied(self, blocks: list[PlacedBlock]) -> bool:
        """See :class:`Submission`."""
        if self._holds:
            self._write.applied(blocks)
        return self._holds

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`."""
        if self._holds:
            self._write.failed(error)


def holds_now(data: TabletData, row: bytes, conditions: Collection[Condition], now_ms: int) -> bool:
    """Whether the conditions hold for the applied records; only the commit thread may write because of it. Raises the
    errors of :func:`read_cells`.
    """
    cells = read_cells(data, row, conditions, now_ms)
    return all(cells.get((c.family, c.qualifier, c.visibility)) == c.value for c in conditions)
