"""A span of a source file that goes to one target in one message, and how it is halved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from bookkeeper.model import BlockRange
from bookkeeper.peers.extensions import InFlightMessage
from bookkeeper.peers.protocol import BlockFacts, Message, MessageBlock


class Part(NamedTuple):
    """The records of a block that a target gets, the byte position behind the block, and one at or before it."""

    block: MessageBlock
    facts: BlockFacts
    end_position: int
    position: int = 0


class MessageSpan(Struct, frozen=True):
    """All records for the target in ``(after, to]``, at least one part. ``after_position`` and ``to_position`` are the
    byte positions in the file behind these offsets.
    """

    parts: Sequence[Part]
    provenance: tuple[str, ...]
    after: int
    after_position: int
    to: int
    to_position: int

    def message(self, acked: int) -> Message:
        """See :class:`Message`; ``acked``: everything up to this offset is durable at the peer."""
        blocks, facts = tuple(part.block for part in self.parts), tuple(part.facts for part in self.parts)
        return Message(self.provenance, acked, self.after, self.to, blocks, facts)

    def halves(self) -> tuple[MessageSpan, MessageSpan]:
        """Two spans of at least one part each; this span has at least two."""
        middle = len(self.parts) // 2
        last = self.parts[middle - 1]
        offset, position = last.block.last_offset, last.end_position
        return (
            MessageSpan(self.parts[:middle], self.provenance, self.after, self.after_position, offset, position),
            MessageSpan(self.parts[middle:], self.provenance, offset, position, self.to, self.to_position),
        )

    @property
    def blocks(self) -> BlockRange:
        """The span's offsets and positions in the file."""
        return BlockRange(self.after + 1, self.to, self.after_position, self.to_position)


class SentMessage(NamedTuple):
    """A message whose answer the stream has not taken yet, and its span."""

    span: MessageSpan
    message: Message
    in_flight: InFlightMessage


def record_count(message: Message) -> int:
    """Records in a message."""
    return sum(block.record_count for block in message.blocks)


def message_bytes(message: Message) -> int:
    """Size of a message's records on the wire."""
    return sum(map(payload_bytes, message.blocks))


def payload_bytes(part: MessageBlock) -> int:
    """Size of a block's records on the wire."""
    return memoryview(part.records).nbytes
