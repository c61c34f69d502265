"""The receiving side: a replicated range comes in, is parted by tablet, and is answered when all of it is durable.

Arrives: ``replicate`` from other clusters, ``apply_replicated`` from tservers of this one. Leaves: the acknowledgement,
or an error that tells the sender what to do next. Survives a crash: whatever was acknowledged, each tablet's part with
its place in the stream in one WAL block (R18); a range that was answered in part is sent again and taken once. What
comes when its stream is over is refused, by the books, so no process has to be dead for that (R20).
Rules: R18-R21 and R23.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from bookkeeper.errors import (
    BookkeeperError,
    GapError,
    InvalidInputError,
    NotServingError,
    RefusedError,
    TransientError,
)
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import root_of
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest, ReplicateResult
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.tablet import BatchLimits
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.origins.origin_marks import OriginMarks, logs_in
from bookkeeper.tserver.receive.receive_streams import Streams, Turn
from bookkeeper.tserver.receive.receiving_tablets import Located, Locations
from bookkeeper.tserver.receive.share_retry import FailedShare, ShareRetry, Tried
from bookkeeper.tserver.tablets.tablet import ReceivedBlock
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.configuration import Configuration
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.replicated_apply import Applied, ReceivedRange
from bookkeeper.tserver.write.request_decoder import part_by_tablet, received_block, source_block
from bookkeeper.tserver.write.share_decision import check_range

NO_LIMIT = sys.maxsize

ROOM_WAIT_MS = 1_500
"""A range waits so long for room in a tablet's memory, less than the one behind it waits for this one."""

STREAM_BYTES_MAX = 16 * 1024
"""Of the key of a stream: a path has 4,096 at most, and is escaped."""

FORWARDS_MAX = 16
"""Calls to other tservers under way at once; a range with more tablets elsewhere waits for them in turn."""


def check_provenance(provenance: Sequence[str], stream: StreamKey, own_instance_id: str) -> None:
    """Raise RefusedError when this cluster's own data comes back, told by instance id (R21, R23), and
    InvalidInputError when the sender is not the last that the data has passed.
    """
    if own_instance_id in provenance or stream.source_instance_id == own_instance_id:
        raise RefusedError(f"data of {stream.file} has passed this cluster before ({', '.join(provenance)}): a loop")
    if not provenance or provenance[-1] != stream.source_instance_id:
        raise InvalidInputError(
            f"the provenance of {stream.file} must end with its sender, {stream.source_instance_id}: {provenance}"
        )


def proven_offset(acked: int, after: int, to: int) -> int:
    """Up to where everything is durable at every tablet when the tablets that ``(after, to]`` has records for took it.

    The others were not asked. Whatever lies between ``acked`` and ``after`` may be missing there, so such an answer
    proves nothing beyond ``acked``.
    """
    return to if after <= acked else acked


def refuse_ended(stream: StreamKey, is_open: bool) -> None:
    """Raise RefusedError when a stream is over (R20): all of it was taken, and what told repeats from news is gone."""
    if not is_open:
        raise RefusedError(f"{stream.file} is over: its source said that all of it had arrived, and nothing can be new")


def worst_of(errors: Sequence[BookkeeperError]) -> BookkeeperError:
    """The one error that tells the sender what to do: read on from the lowest gap, or try again, or give up."""
    gaps = [error for error in errors if isinstance(error, GapError)]
    if gaps:
        return min(gaps, key=lambda error: error.high_water)
    return next((error for error in errors if isinstance(error, TransientError)), errors[0])


def refuse_long(stream: StreamKey) -> None:
    """Raise InvalidInputError when a stream has a longer name than any file."""
    size = len(stream.encode())
    if size > STREAM_BYTES_MAX:
        raise InvalidInputError(f"the name of a stream has {size} bytes, at most {STREAM_BYTES_MAX} are kept")


class Receiver:
    """Judges, parts and applies replicated ranges."""

    def __init__(
        self,
        own_instance_id: str,
        own_address: str,
        registry: Registry,
        path: CommitPath,
        flusher: Flusher,
        configuration: Configuration,
        locations: Locations,
        streams: Streams,
        index: ReceivedIndex,
        marks: OriginMarks,
        pool: RpcPool,
        limits: BatchLimits,
        forward_timeout_ms: float,
        retry: ShareRetry,
    ) -> None:
        self.own_instance_id = own_instance_id
        self.own_address = own_address
        self._registry = registry
        self._path = path
        self._flusher = flusher
        self._configuration = configuration
        self._locations = locations
        self._streams = streams
        self._index = index
        self._marks = marks
        self._pool = pool
        self.limits = limits
        self._forward_timeout_ms = forward_timeout_ms
        self._retry = retry
        self._forwards = ThreadPoolExecutor(FORWARDS_MAX, thread_name_prefix="forward")

    def close(self) -> None:
        """Let calls to other tservers end, and messages that wait for tablets be answered."""
        self._retry.close()
        self._forwards.shutdown()

    def latest_ms(self) -> int | None:
        """The greatest timestamp that is taken of other clusters now; None = any."""
        return self.limits.latest_ms(self._path.context.clock.wall_ms())

    # ---- from other clusters

    def open_stream(self, stream: StreamKey, peer: str | None = None) -> str:
        """A token for the messages of a stream. ``peer``: whose it is; None = its source's. Its place is taken before
        anything is written down for it. Raises RefusedError, InvalidInputError, NotFoundError, TransientError.
        """
        check_provenance([stream.source_instance_id], stream, self.own_instance_id)
        refuse_long(stream)
        self._configuration.table(stream.target_table_id)
        token = self._streams.open(stream, peer)
        try:
            self._index.announce(stream)
        except BaseException:
            self._streams.close(token)
            raise
        return token

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        """Take ``(after, to]`` of a stream. Returns when every tablet concerned has it durably; raises GapError with
        the lowest high-water (R19), StreamExpiredError, RefusedError, NotFoundError, other TransientErrors.
        """
        stream = request.stream
        check_provenance(request.provenance, stream, self.own_instance_id)
        self._streams.check(request.stream_session, stream)
        table_id = self._configuration.table(stream.target_table_id).table_id
        check_range(request.acked_offset, request.after_offset, request.to_offset, request.blocks)
        blocks = decode_blocks(request, self.limits, self.latest_ms())
        parts = self._part(table_id, blocks)
        in_front = self._in_front(request)
        request = self._with_proof(request, parts, in_front)
        if not parts and request.after_offset > request.acked_offset:
            raise GapError(
                f"no tablet can tell whether {stream.file} is here up to {request.after_offset}",
                {"high_water": str(request.acked_offset)},
            )
        turn = Turn(request.to_offset, {tablet.extent for tablet, _ in parts if tablet.address == self.own_address})
        proven = request.acked_offset
        try:
            results = self._apply_all(request, parts, turn)
            proven = proven_offset(self._proof(request, in_front), request.after_offset, request.to_offset)
        finally:
            turn.proven.set_result(proven)
        self._index.note(stream, proven)
        return ReplicateResult(
            proven, sum(result.applied for result in results), sum(result.dropped for result in results)
        )

    def _in_front(self, request: ReplicateRequest) -> Turn | None:
        """The message in front of one that was sent before that was answered."""
        if request.after_offset <= request.acked_offset:
            return None
        return self._streams.in_front(request.stream_session, request.after_offset)

    def _with_proof(
        self, request: ReplicateRequest, parts: Sequence[tuple[Located, object]], in_front: Turn | None
    ) -> ReplicateRequest:
        """A tablet that got something of the message in front, here, takes this one behind it. Any other one lacks the
        claim that this one begins with (R19): once everything in front is durable, it is a fact, and it gets that.
        """
        if in_front is None or (parts and all(tablet.extent in in_front.extents for tablet, _ in parts)):
            return request
        return dataclasses.replace(request, acked_offset=self._proof(request, in_front))

    def _proof(self, request: ReplicateRequest, in_front: Turn | None) -> int:
        """Up to where everything is durable at every tablet: what the sender said, or the message in front proved."""
        if in_front is None:
            return request.acked_offset
        return max(request.acked_offset, self._path.wait_proven(in_front.proven))

    def _part(self, table_id: str, blocks: Sequence[ReceivedBlock]) -> list[tuple[Located, tuple[ReceivedBlock, ...]]]:
        if not blocks:
            return []
        tablets = {tablet.extent: tablet for tablet in self._locations.of_table(table_id)}
        try:
            parts = part_by_tablet(blocks, list(tablets))
        except NotServingError:
            self._locations.forget(table_id)
            raise
        return [(tablets[extent], found) for extent, found in parts.items()]

    def _apply_all(
        self, request: ReplicateRequest, parts: Sequence[tuple[Located, tuple[ReceivedBlock, ...]]], turn: Turn
    ) -> list[Applied]:
        """Every tablet at once; waits for all of them, and for those that are away for a moment, then raises the error
        that matters most. ``turn`` is handed over in between.
        """
        began_ns = self._retry.now_ns()
        results, failed = self._try_all(request, parts, lambda: self._streams.hand_over(request.stream_session, turn))
        more, failed = self._retry.until_taken(began_ns, failed, lambda shares: self._try_again(request, shares))
        if failed:
            raise worst_of([share.error for share in failed])
        return results + more

    def _try_all(
        self,
        request: ReplicateRequest,
        parts: Sequence[tuple[Located, tuple[ReceivedBlock, ...]]],
        begun: Callable[[], None],
    ) -> Tried:
        """Begin every share, say so with ``begun``, then wait for all."""
        waits: list[tuple[Located, tuple[ReceivedBlock, ...], Callable[[], Applied]]] = []
        failed: list[FailedShare] = []
        results: list[Applied] = []
        for tablet, blocks in parts:
            try:
                waits.append((tablet, blocks, self._begin(request, tablet, blocks)))
            except BookkeeperError as error:
                failed.append(FailedShare(tablet, blocks, error))
        begun()
        for tablet, blocks, wait in waits:
            try:
                results.append(wait())
            except BookkeeperError as error:
                failed.append(FailedShare(tablet, blocks, error))
        if failed:
            self._locations.forget(request.stream.target_table_id)
        return results, failed

    def _try_again(self, request: ReplicateRequest, failed: Sequence[FailedShare]) -> Tried:
        """The same shares where their tablets are now. A tablet that was split or merged meanwhile is given up: the
        message has to be parted anew.
        """
        table_id = request.stream.target_table_id
        try:
            tablets = {tablet.extent: tablet for tablet in self._locations.of_table(table_id)}
        except TransientError as error:
            return [], [dataclasses.replace(share, error=error) for share in failed]
        if any(share.tablet.extent not in tablets for share in failed):
            raise worst_of([share.error for share in failed])
        return self._try_all(request, [(tablets[s.tablet.extent], s.blocks) for s in failed], lambda: None)

    def _begin(
        self, request: ReplicateRequest, tablet: Located, blocks: tuple[ReceivedBlock, ...]
    ) -> Callable[[], Applied]:
        if tablet.address is None:
            raise NotServingError(f"tablet {tablet.extent} is assigned to nobody now: try again")
        if tablet.address != self.own_address:
            forwarded = self._forwards.submit(self._forward, request, tablet.extent, tablet.address, blocks)
            return forwarded.result
        future = self._submit(tablet.extent, _range_of(request, blocks))
        return lambda: self._path.wait_applied(future)

    def _submit(self, extent: Extent, received: ReceivedRange) -> Future[Applied]:
        """Rule R20: a tablet that knows nothing of the stream, or nothing any more, asks the books if it is over. So a
        message is harmless however late it comes, out of a process that was stopped on either side. Logs are announced
        (R22) by messages of open streams only: what is announced late would stay.
        """
        tablet = self._registry.serving(extent)
        self._flusher.make_room(tablet, ROOM_WAIT_MS)
        forgets = tablet.received.forgotten_count
        if not tablet.received.has_stream(received.stream):
            refuse_ended(received.stream, self._index.is_open(received.stream))
        self._marks.announce(logs_in(received.blocks), received.stream.source_instance_id)
        return self._path.receive(tablet, received, forgets)

    def _forward(
        self, request: ReplicateRequest, extent: Extent, address: str, blocks: tuple[ReceivedBlock, ...]
    ) -> Applied:
        result = self._pool.tserver(address, self._forward_timeout_ms).apply_replicated(
            ApplyRequest(
                extent=extent,
                stream=request.stream,
                provenance=request.provenance,
                acked_offset=request.acked_offset,
                after_offset=request.after_offset,
                to_offset=request.to_offset,
                blocks=tuple(source_block(block, root_of(request.stream)) for block in blocks),
            )
        )
        return Applied(result.acked_offset, result.records_applied, result.records_dropped)

    # ---- from tservers of this cluster

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult:
        """One tablet's part of a range that another tserver has parted. Raises what :meth:`replicate` does."""
        check_provenance(request.provenance, request.stream, self.own_instance_id)
        if request.extent.table_id != request.stream.target_table_id:
            raise InvalidInputError(f"tablet {request.extent} is not of table {request.stream.target_table_id}")
        check_range(request.acked_offset, request.after_offset, request.to_offset, request.blocks)
        blocks = tuple(decode_blocks(request, limits_of_parts(self.limits)))
        for block in blocks:
            if not (request.extent.contains(block.share.min_row) and request.extent.contains(block.share.max_row)):
                raise InvalidInputError(f"a block of {request.stream.file} does not lie in tablet {request.extent}")
        applied = self._path.wait_applied(self._submit(request.extent, _range_of(request, blocks)))
        return ReplicateResult(applied.high_water, applied.applied, applied.dropped)


def decode_blocks(
    request: ReplicateRequest | ApplyRequest, limits: BatchLimits, latest_ms: int | None = None
) -> list[ReceivedBlock]:
    """Blocks of a message, checked; those of which a filter left nothing are left out. Raises InvalidInputError."""
    own, straight = root_of(request.stream), len(request.provenance) == 1
    budget = DecompressionBudget(limits)
    found = (received_block(block, limits, own, straight, latest_ms, budget) for block in request.blocks)
    return [block for block in found if block is not None]


def limits_of_parts(limits: BatchLimits) -> BatchLimits:
    """What a tablet's part of a message may hold: whatever the message may: who parted it has checked that, and its
    timestamps.

    Two tservers may have different settings for a while. If each checked its part, one would take its half of a block
    and the other refuse it for good; a retry out of quarantine, a run of its own, would be applied to the first one
    twice (R18).
    """
    return dataclasses.replace(limits, row_bytes_max=NO_LIMIT, column_bytes_max=NO_LIMIT, value_bytes_max=NO_LIMIT)


def _range_of(request: ReplicateRequest | ApplyRequest, blocks: tuple[ReceivedBlock, ...]) -> ReceivedRange:
    return ReceivedRange(
        stream=request.stream,
        provenance=tuple(request.provenance),
        acked=request.acked_offset,
        after=request.after_offset,
        to=request.to_offset,
        blocks=blocks,
    )
