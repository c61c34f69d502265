"""Delivery of a message's slices: each to the tserver of its tablet, all at once.

The slice of a tablet that is away for a moment is tried again (``slice_retry``). A message whose tablets were split or
merged meanwhile fails, and its sender sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, GapError, NotServingError, TransientError
from bookkeeper.model import Extent
from bookkeeper.origins import Root, root_of
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest, SourceBlock
from bookkeeper.storage.tablet.batch_routing import indices_by_tablet, take_sorted
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.storage.wal.blocks.block_origins import block_origins_to_pb
from bookkeeper.tserver.receive.message_order import OrderedMessage
from bookkeeper.tserver.receive.receiving_tablets import ReceivingTablets
from bookkeeper.tserver.receive.slice_retry import SliceRetry, Tried
from bookkeeper.tserver.receive.tablet_slice import Applied, FailedSlice, ReceivedRange, TabletSlice
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, tablet_records

FORWARDS_MAX = 16
"""Calls to other tservers under way at once; a message with more tablets elsewhere waits for them in turn."""

Apply = Callable[[Extent, ReceivedRange], Callable[[], Applied]]
"""Begins to apply a slice to a tablet of this server, and returns the wait for its outcome."""


def worst_of(errors: Sequence[BookkeeperError]) -> BookkeeperError:
    """The error for the sender: the lowest gap to read on from; else one to try again; else the first."""
    gaps = [error for error in errors if isinstance(error, GapError)]
    if gaps:
        return min(gaps, key=lambda error: error.high_water)
    return next((error for error in errors if isinstance(error, TransientError)), errors[0])


def range_of(request: ReplicateRequest | ApplyRequest, blocks: tuple[ReceivedBlock, ...]) -> ReceivedRange:
    """The range of a message with some of its blocks."""
    return ReceivedRange(
        stream=request.stream,
        provenance=tuple(request.provenance),
        acked=request.acked_offset,
        after=request.after_offset,
        to=request.to_offset,
        blocks=blocks,
        confirms=bool(request.confirms),
    )


def part_by_tablet(
    blocks: Sequence[ReceivedBlock], extents: Sequence[Extent]
) -> dict[Extent, tuple[ReceivedBlock, ...]]:
    """Each tablet's part of each block, at the block's offsets. Raises NotServingError for a row in no extent."""
    parts: dict[Extent, list[ReceivedBlock]] = {}
    for block in blocks:
        rows = (block.records.min_row, block.records.max_row)
        for extent, row_indices in indices_by_tablet(block.records.batch, extents, rows):
            part = block if row_indices is None else _part_of(block, row_indices)
            parts.setdefault(extent, []).append(part)
    return {extent: tuple(blocks_there) for extent, blocks_there in parts.items()}


def _part_of(block: ReceivedBlock, row_indices: npt.NDArray[np.int64]) -> ReceivedBlock:
    block_origins = None if block.block_origins is None else replace(block.block_origins, row_indices=row_indices)
    records = tablet_records(take_sorted(block.records.batch, row_indices))
    return ReceivedBlock(block.first_offset, block.last_offset, records, block_origins)


def source_block(block: ReceivedBlock, own: Root) -> SourceBlock:
    """A tablet's part of a block, for the tserver that holds the tablet. ``own``: the root of the stream."""
    records = block.records
    return SourceBlock(
        first_offset=block.first_offset,
        last_offset=block.last_offset,
        records=encode_batch(records.batch),
        record_count=records.batch.num_rows,
        min_row=records.min_row,
        max_row=records.max_row,
        block_origins=None
        if block.block_origins is None
        else block_origins_to_pb(block.block_origins, own).SerializeToString(),
    )


class SliceDelivery:
    """Splits messages and delivers their slices. Thread-safe."""

    def __init__(self, tablets: ReceivingTablets, retry: SliceRetry, apply_here: Apply) -> None:
        """``apply_here``: for the tablets of this server."""
        self._tablets = tablets
        self._retry = retry
        self._apply_here = apply_here
        self._forwards = ThreadPoolExecutor(FORWARDS_MAX, thread_name_prefix="forward")

    def close(self) -> None:
        """Let calls to other tservers end, and answer messages that wait for tablets."""
        self._retry.close()
        self._forwards.shutdown()

    def split(self, table_id: str, blocks: Sequence[ReceivedBlock]) -> list[TabletSlice]:
        """A slice for each tablet that the blocks reach. Raises NotFoundError, TransientError."""
        if not blocks:
            return []
        tablets = self._tablets.of_table(table_id)
        try:
            parts = part_by_tablet(blocks, list(tablets))
        except NotServingError:
            self._tablets.forget(table_id)
            raise
        return [TabletSlice(tablets[extent], found) for extent, found in parts.items()]

    def deliver(
        self, request: ReplicateRequest, slices: Sequence[TabletSlice], message: OrderedMessage
    ) -> list[Applied]:
        """Have every tablet take its slice, wait for all of them, then raise the error that matters most. The next
        message of the stream may go once all slices have begun.
        """
        began_ns = self._retry.now_ns()
        request = replace(request, acked_offset=message.acked_offset)
        results, failed = self._try_all(request, slices, message.hand_over)
        more, failed = self._retry.until_taken(began_ns, failed, lambda again: self._try_again(request, again))
        if failed:
            raise worst_of([one.error for one in failed])
        return results + more

    def _try_all(
        self, request: ReplicateRequest, slices: Sequence[TabletSlice], all_started: Callable[[], None]
    ) -> Tried:
        """Begin every slice, call ``all_started``, then wait for all."""
        waits: list[tuple[TabletSlice, Callable[[], Applied]]] = []
        failed: list[FailedSlice] = []
        results: list[Applied] = []
        for tablet_slice in slices:
            try:
                waits.append((tablet_slice, self._begin(request, tablet_slice)))
            except BookkeeperError as error:
                failed.append(FailedSlice(tablet_slice, error))
        all_started()
        for tablet_slice, wait in waits:
            try:
                results.append(wait())
            except BookkeeperError as error:
                failed.append(FailedSlice(tablet_slice, error))
        if failed:
            self._tablets.forget(request.stream.target_table_id)
        return results, failed

    def _try_again(self, request: ReplicateRequest, failed: Sequence[FailedSlice]) -> Tried:
        """The same slices where their tablets are now. A tablet that was split or merged meanwhile fails the message:
        it has to be split by tablet anew.
        """
        try:
            tablets = self._tablets.of_table(request.stream.target_table_id)
        except TransientError as error:
            return [], [replace(one, error=error) for one in failed]
        if any(one.tablet_slice.tablet.extent not in tablets for one in failed):
            raise worst_of([one.error for one in failed])
        slices = [TabletSlice(tablets[one.tablet_slice.tablet.extent], one.tablet_slice.blocks) for one in failed]
        return self._try_all(request, slices, lambda: None)

    def _begin(self, request: ReplicateRequest, tablet_slice: TabletSlice) -> Callable[[], Applied]:
        if self._tablets.is_here(tablet_slice.tablet):
            return self._apply_here(tablet_slice.tablet.extent, range_of(request, tablet_slice.blocks))
        return self._forwards.submit(self._forward, request, tablet_slice).result

    def _forward(self, request: ReplicateRequest, tablet_slice: TabletSlice) -> Applied:
        result = self._tablets.tserver(tablet_slice.tablet).apply_replicated(
            ApplyRequest(
                extent=tablet_slice.tablet.extent,
                stream=request.stream,
                provenance=request.provenance,
                acked_offset=request.acked_offset,
                after_offset=request.after_offset,
                to_offset=request.to_offset,
                blocks=tuple(source_block(block, root_of(request.stream)) for block in tablet_slice.blocks),
                confirms=request.confirms,
            )
        )
        counted = (result.records_missing or 0) if request.confirms else result.records_applied
        return Applied(result.acked_offset, counted, result.records_dropped)
