"""A user's write in the commit threads: judged, numbered, given its targets, and made visible once it is durable.

The commit thread does only the steps that depend on the order of writes; the steps before run in the caller's thread.
Rules: R13 and R14.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.errors import BookkeeperError, ConflictError
from bookkeeper.model import Extent
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.tablets.tablet import ServedTablet, TabletRecords, Undo
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.request_dedup import NO_ATTEMPT, Attempt
from bookkeeper.tserver.write.write_context import WriteContext


class ClientWrite:
    """A submission: a user's write to one or several tablets. Answers the extents that are not served any more."""

    def __init__(
        self,
        context: WriteContext,
        writes: Sequence[tuple[ServedTablet, TabletRecords]],
        durability: Durability | None,
        attempt: Attempt = NO_ATTEMPT,
    ) -> None:
        """``durability`` None: the strongest one in the properties of the tables."""
        self._attempt = attempt
        self.durability = durability or Durability.NONE
        self._requested = durability
        self.approx_bytes = sum(int(records.batch.nbytes) for _, records in writes)
        self._context = context
        self._writes = writes
        self._staged: list[tuple[ServedTablet, Undo]] = []
        self._refused: list[Extent] = []

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`. Raises NotFoundError, RefusedError, and ConflictError for a late attempt: its client
        has sent a later one already.
        """
        for tablet, _ in self._writes:
            if not self._context.request_dedup.admit(self._attempt, tablet.extent):
                raise ConflictError(f"attempt {self._attempt.number} is late: the same writer has sent a later one")
        open_writes = [(tablet, records) for tablet, records in self._writes if tablet.accepting]
        self._refused = [tablet.extent for tablet, _ in self._writes if not tablet.accepting]
        moments = [self._context.moment(tablet.extent.table_id, point) for tablet, _ in open_writes]
        for (tablet, _), moment in zip(open_writes, moments, strict=True):
            write_guards.refuse_read_only(moment.view)
            write_guards.refuse_exhausted(tablet.extent, tablet.next_seq)
        if self._requested is None:
            self.durability = max(
                (Durability.parse(moment.view.properties.durability) for moment in moments), default=Durability.NONE
            )
        unlogged = self.durability is Durability.NONE and not any(moment.view.block_targets for moment in moments)
        drafts = []
        for (tablet, records), moment in zip(open_writes, moments, strict=True):
            draft, undo = tablet.stage_unlogged(records, moment.now_ms) if unlogged else tablet.stage(records, moment)
            drafts.append(draft)
            self._staged.append((tablet, undo))
        return drafts

    def applied(self, blocks: list[PlacedBlock]) -> list[Extent]:
        """See :class:`Submission`."""
        for (tablet, _), block in zip(self._staged, blocks, strict=True):
            tablet.apply(block)
        return self._refused

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`."""
        del error
        for tablet, undo in reversed(self._staged):
            tablet.take_back(undo)
