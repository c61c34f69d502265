"""The order of a stream's messages when several of them are on their way at once (R19).

A sender may ship a message before the answer to the one in front of it. Such a message claims an offset that is not a
fact yet. This module waits for the message in front, and turns its answer into a fact for the tablets that need one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.errors import GapError
from bookkeeper.tserver.receive.receive_streams import Streams, Turn
from bookkeeper.tserver.receive.receiving_tablets import Located, ReceivingTablets
from bookkeeper.tserver.write.commit_path import CommitPath


def durable_offset(acked: int, after: int, to: int) -> int:
    """The offset up to which every tablet is durable once the tablets with records in ``(after, to]`` took them.

    The other tablets were not checked. Records between ``acked`` and ``after`` may be missing there, so the answer
    proves nothing beyond ``acked``.
    """
    return to if after <= acked else acked


class MessageRange(Struct, frozen=True):
    """The range of a message: ``(after_offset, to_offset]`` of a file, shipped in a session of its stream."""

    stream_session: str
    file: str
    acked_offset: int
    after_offset: int
    to_offset: int


class OrderedMessage(Struct):
    """A message behind the one in front of it. ``acked_offset``: the greatest fact that its tablets need."""

    stream_session: str
    acked_offset: int
    turn: Turn
    streams: Streams

    def hand_over(self) -> None:
        """The message is at its tablets, so the next one may go to them."""
        self.streams.hand_over(self.stream_session, self.turn)

    @property
    def durable_to(self) -> int:
        """The offset up to which every tablet is durable; valid once the message is over."""
        return self.turn.durable_to.result()


class MessageOrder:
    """Orders the messages of each stream. Thread-safe."""

    def __init__(self, streams: Streams, tablets: ReceivingTablets, path: CommitPath) -> None:
        self._streams = streams
        self._tablets = tablets
        self._path = path

    @contextmanager
    def ordered(self, message: MessageRange, tablets: Sequence[Located]) -> Iterator[OrderedMessage]:
        """The message in its order, while its slices are applied. ``tablets``: those of its slices. The end of the
        block gives the durable offset to the message behind it. Raises GapError, TransientError.
        """
        in_front = self._in_front(message)
        acked_offset = self._needed_fact(message, tablets, in_front)
        if not tablets and message.after_offset > acked_offset:
            raise GapError(
                f"no tablet can tell whether {message.file} is here up to {message.after_offset}",
                {"high_water": str(acked_offset)},
            )
        here = {tablet.extent for tablet in tablets if self._tablets.is_own(tablet)}
        turn = Turn(message.to_offset, here)
        durable_to = acked_offset
        try:
            yield OrderedMessage(message.stream_session, acked_offset, turn, self._streams)
            fact = max(acked_offset, self._fact(message, in_front))
            durable_to = durable_offset(fact, message.after_offset, message.to_offset)
        finally:
            turn.durable_to.set_result(durable_to)

    def _in_front(self, message: MessageRange) -> Turn | None:
        """The message in front of one that left before the answer to that."""
        if message.after_offset <= message.acked_offset:
            return None
        return self._streams.in_front(message.stream_session, message.after_offset)

    def _needed_fact(self, message: MessageRange, tablets: Sequence[Located], in_front: Turn | None) -> int:
        """A tablet of this server that got a slice of the message in front takes this one behind it. Any other tablet
        does not have the offset that this one claims (R19): it needs the fact that everything in front is durable.
        """
        if in_front is None or (tablets and all(tablet.extent in in_front.extents for tablet in tablets)):
            return message.acked_offset
        return self._fact(message, in_front)

    def _fact(self, message: MessageRange, in_front: Turn | None) -> int:
        """The offset up to which every tablet is durable, by the sender or by the message in front."""
        if in_front is None:
            return message.acked_offset
        return max(message.acked_offset, self._path.wait_for(in_front.durable_to, "the message in front of this one"))
