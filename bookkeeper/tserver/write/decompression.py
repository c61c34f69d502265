"""The memory that the compressed batches of one message may take, all together.

A batch announces its decompressed size before any memory is allocated for it. The size counts in the server's memory
budget until the call is answered. A message takes at most as much as an uncompressed message could hold.
"""

from __future__ import annotations

from bookkeeper.errors import InvalidInputError
from bookkeeper.rpc.dispatch import count_call_memory
from bookkeeper.storage.tablet.tablet_settings import BatchLimits


def is_too_much(message_bytes: int, limits: BatchLimits) -> bool:
    """Whether the batches of a message take more than a message may."""
    return message_bytes > limits.message_bytes_max


class DecompressionBudget:
    """The budget of one message; one thread uses it."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._bytes = 0

    def admit(self, size: int) -> None:
        """Permit the decompression of a batch of ``size`` bytes. Raises InvalidInputError, OverloadedError."""
        self._bytes += size
        if is_too_much(self._bytes, self._limits):
            raise InvalidInputError(
                f"the records of a message take {self._bytes} bytes, the limit is {self._limits.message_bytes_max}: "
                "send less at once, or raise rpc.frame_bytes_max"
            )
        count_call_memory(size)
