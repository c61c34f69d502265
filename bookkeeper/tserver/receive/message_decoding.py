"""The blocks of a message, decoded and checked against the limits of this cluster. Changes nothing."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.origins import root_of
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest
from bookkeeper.storage.tablet import BatchLimits
from bookkeeper.tserver.tablets.tablet import ReceivedBlock
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.request_decoder import received_block

NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits of records from other clusters."""

    batch: BatchLimits
    clock: Clock

    def latest_ms(self) -> int | None:
        """The greatest timestamp that a record may have now; None = any."""
        return self.batch.latest_ms(self.clock.wall_ms())


def decode_blocks(
    request: ReplicateRequest | ApplyRequest, limits: BatchLimits, latest_ms: int | None = None
) -> list[ReceivedBlock]:
    """The blocks of a message that have records. Raises InvalidInputError, OverloadedError."""
    own, straight = root_of(request.stream), len(request.provenance) == 1
    budget = DecompressionBudget(limits)
    found = (received_block(block, limits, own, straight, latest_ms, budget) for block in request.blocks)
    return [block for block in found if block is not None]


def limits_of_shares(limits: BatchLimits) -> BatchLimits:
    """The limits of a tablet's share of a message: its rows and values may be as long as they are, because the tserver
    that received the message has checked them and their timestamps.

    Two tservers may have different settings for a while. If each of them checked its share, one would take its half of
    a block, and the other one would refuse its half for good; a retry out of quarantine, which is a run of its own,
    would be applied to the first one twice (R18).
    """
    return dataclasses.replace(limits, row_bytes_max=NO_LIMIT, column_bytes_max=NO_LIMIT, value_bytes_max=NO_LIMIT)
