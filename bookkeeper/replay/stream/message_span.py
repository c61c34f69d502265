"""A stretch of a source file that goes to one target in one message, and how it is halved.

Arrives: parts of blocks that a target gets, with the offsets and byte positions between which they lie. Leaves: the
message, or the two halves of the stretch. Pure; nothing here survives a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bookkeeper.model import BlockRange
from bookkeeper.peers.protocol import BlockFacts, Message, Shipment
from bookkeeper.rpc.contract.messages import SourceBlock


class Part(NamedTuple):
    """What a target gets of a block, and the byte position behind the block."""

    block: SourceBlock
    facts: BlockFacts
    end_position: int


@dataclass(frozen=True, slots=True)
class MessageSpan:
    """Everything that the target wants of ``(after, to]``, at least one part; positions are bytes of the file, behind
    those offsets.
    """

    parts: Sequence[Part]
    provenance: tuple[str, ...]
    after: int
    after_position: int
    to: int
    to_position: int

    def message(self, acked: int) -> Message:
        """See :class:`Message`; ``acked``: up to there everything is durable at the peer for sure."""
        blocks, facts = tuple(part.block for part in self.parts), tuple(part.facts for part in self.parts)
        return Message(self.provenance, acked, self.after, self.to, blocks, facts)

    def halves(self) -> tuple[MessageSpan, MessageSpan]:
        """Two stretches of at least one part, of a stretch of at least two."""
        middle = len(self.parts) // 2
        last = self.parts[middle - 1]
        offset, position = last.block.last_offset, last.end_position
        return (
            MessageSpan(self.parts[:middle], self.provenance, self.after, self.after_position, offset, position),
            MessageSpan(self.parts[middle:], self.provenance, offset, position, self.to, self.to_position),
        )

    @property
    def blocks(self) -> BlockRange:
        """Where it lies."""
        return BlockRange(self.after + 1, self.to, self.after_position, self.to_position)


class Flight(NamedTuple):
    """A message on its way: what it holds, and what it took for acknowledged."""

    stretch: MessageSpan
    message: Message
    shipment: Shipment


def record_count(message: Message) -> int:
    """Records in a message."""
    return sum(block.record_count for block in message.blocks)


def message_bytes(message: Message) -> int:
    """Size of a message's records on the wire."""
    return sum(map(payload_bytes, message.blocks))


def payload_bytes(part: SourceBlock) -> int:
    """Size of a block's records on the wire."""
    return memoryview(part.records).nbytes
