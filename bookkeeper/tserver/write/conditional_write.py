"""Conditional writes: one row is written if some of its cells are as the client says, all of it or nothing.

Arrives: a row's records and conditions on its cells. Leaves: whether they were written. The conditions are judged in
the commit thread, at the head of a group: all that was submitted before is applied by then, and nothing comes between
the judgement and the write. They are judged in the calling thread first: what does not hold then needs no commit, and
what is read once is in memory the second time. Survives a crash: what was answered, as durable as asked.
Source: Accumulo's ConditionalWriter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bookkeeper.errors import BookkeeperError, InvalidInputError, NotServingError, UnavailableError
from bookkeeper.rpc.contract.messages import Condition
from bookkeeper.storage.tablet import Asked, TabletData
from bookkeeper.storage.wal import DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet, Share
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.client_write import ClientWrite
from bookkeeper.tserver.write.write_context import WriteContext

CONDITIONS_MAX = 100
PAGE_BYTES = 1024 * 1024
PAGES_MAX = 200
"""Pages that one judgement reads at most: the commit thread waits for it."""

NEWEST = Asked(versions=1)
Key = tuple[bytes, bytes, bytes]
"""Family, qualifier, visibility."""


def check_conditional(conditions: Collection[Condition], share: Share) -> None:
    """Raise InvalidInputError unless there are conditions, not too many, and records of one row."""
    if not 1 <= len(conditions) <= CONDITIONS_MAX:
        raise InvalidInputError(f"a conditional write has 1 to {CONDITIONS_MAX} conditions, not {len(conditions)}")
    if share.min_row != share.max_row:
        raise InvalidInputError(
            f"a conditional write is of one row, not of {share.min_row!r} to {share.max_row!r}: send one a row"
        )


def all_hold(conditions: Collection[Condition], cells: Mapping[Key, bytes]) -> bool:
    """Each cell has the value that its condition names, or is not there when it names none."""
    return all(cells.get((c.family, c.qualifier, c.visibility)) == c.value for c in conditions)


def read_cells(data: TabletData, row: bytes, conditions: Collection[Condition], now_ms: int) -> dict[Key, bytes]:
    """The newest versions of the cells of a row that conditions may ask for; absent ones are left out.

    Raises CorruptionError, UnavailableError, InvalidInputError when the columns hold too much to be judged.
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
    raise InvalidInputError(
        f"the conditions on row {row!r} look at more than {PAGES_MAX} MiB: too much for one judgement"
    )


def refuse_conditional_write(view: TableView) -> None:
    """Raise ReadOnlyError or ConditionalRefusedError when the table takes none."""
    write_guards.refuse_read_only(view)
    write_guards.refuse_conditional(view)


class ConditionalWrite:
    """A user's write of one row, if its conditions hold. Answers whether it was written."""

    def __init__(
        self,
        context: WriteContext,
        tablet: ServedTablet,
        share: Share,
        conditions: Sequence[Condition],
        durability: Durability | None,
    ) -> None:
        """See :func:`check_conditional`; to be submitted so that it begins a group."""
        self._write = ClientWrite(context, [(tablet, share)], durability)
        self.approx_bytes = self._write.approx_bytes
        self._context = context
        self._tablet = tablet
        self._row = share.min_row
        self._conditions = conditions
        self._holds = False

    @property
    def durability(self) -> Durability:
        """See :class:`Submission`; nothing waits for the disk when nothing is written."""
        return self._write.durability if self._holds else Durability.LOG

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`. Raises NotServingError, NotFoundError, ReadOnlyError, ConditionalRefusedError, and
        what :func:`holds_now` raises.
        """
        tablet = self._tablet
        if not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server: locate it again")
        moment = self._context.moment(tablet.extent.table_id, point)
        refuse_conditional_write(moment.view)
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
    """Whether the conditions hold by what is applied; only the commit thread may write by it. Raises as
    :func:`read_cells` does.
    """
    return all_hold(conditions, read_cells(data, row, conditions, now_ms))
