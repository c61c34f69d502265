"""What the compressed batches of one message may take, all together.

Arrives: the bytes that a batch announces, before any memory is given to it. Leaves: they are counted, or
InvalidInputError ends the message; what the call has taken counts in the server's memory budget until it is answered.
A message takes at most what an uncompressed one could hold.
"""

from __future__ import annotations

from bookkeeper.errors import InvalidInputError
from bookkeeper.rpc.dispatch import count_call_memory
from bookkeeper.storage.tablet import BatchLimits


def is_too_much(taken_bytes: int, limits: BatchLimits) -> bool:
    """Whether the batches of a message take more than one may."""
    return taken_bytes > limits.message_bytes_max


class DecompressionBudget:
    """Of one message; used in one thread."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._taken = 0

    def admit(self, size: int) -> None:
        """Let a batch of ``size`` bytes be decompressed. Raises InvalidInputError, OverloadedError."""
        self._taken += size
        if is_too_much(self._taken, self._limits):
            raise InvalidInputError(
                f"the records of a message take {self._taken} bytes, the limit is {self._limits.message_bytes_max}: "
                "send less at once, or raise rpc.frame_bytes_max"
            )
        count_call_memory(size)
