"""The order of a stream's messages when several of them are on their way at once (R19).

A sender may ship a message before the answer to the one in front of it. Such a message claims an offset that is not a
fact yet. This module waits for the message in front, and turns its answer into a fact for the tablets that need one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bookkeeper.errors import GapError
from bookkeeper.rpc.contract.messages import ReplicateRequest
from bookkeeper.tserver.receive.receive_streams import Streams, Turn
from bookkeeper.tserver.receive.received_share import TabletShare
from bookkeeper.tserver.receive.receiving_tablets import ReceivingTablets
from bookkeeper.tserver.write.commit_path import CommitPath


def durable_offset(acked: int, after: int, to: int) -> int:
    """The offset up to which every tablet is durable once the tablets with records in ``(after, to]`` took them.

    The others were not asked. Records between ``acked`` and ``after`` may be missing there, so such an answer proves
    nothing beyond ``acked``.
    """
    return to if after <= acked else acked


@dataclass(slots=True)
class OrderedMessage:
    """A message behind the one in front of it. ``request`` has the greatest fact that its tablets need."""

    request: ReplicateRequest
    turn: Turn
    streams: Streams

    def hand_over(self) -> None:
        """The message is at its tablets, so the next one may go to them."""
        self.streams.hand_over(self.request.stream_session, self.turn)

    @property
    def durable_to(self) -> int:
        """The offset up to which every tablet is durable; valid once the message is over."""
        return self.turn.durable_to.result()


class MessageOrder:
    """Thread-safe."""

    def __init__(self, streams: Streams, tablets: ReceivingTablets, path: CommitPath) -> None:
        self._streams = streams
        self._tablets = tablets
        self._path = path

    @contextmanager
    def ordered(self, request: ReplicateRequest, shares: Sequence[TabletShare]) -> Iterator[OrderedMessage]:
        """The message in its order, while its shares are applied. The end of the block tells the message behind it what
        is durable. Raises GapError, TransientError.
        """
        in_front = self._in_front(request)
        request = self._with_fact(request, shares, in_front)
        if not shares and request.after_offset > request.acked_offset:
            raise GapError(
                f"no tablet can tell whether {request.stream.file} is here up to {request.after_offset}",
                {"high_water": str(request.acked_offset)},
            )
        here = {share.tablet.extent for share in shares if self._tablets.is_own(share.tablet)}
        message = OrderedMessage(request, Turn(request.to_offset, here), self._streams)
        durable_to = request.acked_offset
        try:
            yield message
            durable_to = durable_offset(self._fact(request, in_front), request.after_offset, request.to_offset)
        finally:
            message.turn.durable_to.set_result(durable_to)

    def _in_front(self, request: ReplicateRequest) -> Turn | None:
        """The message in front of one that left before the answer to that."""
        if request.after_offset <= request.acked_offset:
            return None
        return self._streams.in_front(request.stream_session, request.after_offset)

    def _with_fact(
        self, request: ReplicateRequest, shares: Sequence[TabletShare], in_front: Turn | None
    ) -> ReplicateRequest:
        """A tablet of this server that got a share of the message in front takes this one behind it. Any other tablet
        does not have the offset that this one claims (R19): it needs the fact that everything in front is durable.
        """
        if in_front is None or (shares and all(share.tablet.extent in in_front.extents for share in shares)):
            return request
        return dataclasses.replace(request, acked_offset=self._fact(request, in_front))

    def _fact(self, request: ReplicateRequest, in_front: Turn | None) -> int:
        """The offset up to which every tablet is durable, by the sender or by the message in front."""
        if in_front is None:
            return request.acked_offset
        return max(request.acked_offset, self._path.wait_for(in_front.durable_to, "the message in front of this one"))
