"""The memory that the compressed batches of one message may take, all together.

A batch announces its decompressed size before any memory is allocated for it. The size counts in the server's memory
budget until the call is answered. A message takes at most as much as an uncompressed message could hold.
"""

from __future__ import annotations

from bookkeeper.errors import InvalidInputError
from bookkeeper.rpc.dispatch import count_call_memory
from bookkeeper.storage.tablet.tablet_settings import BatchLimits


class DecompressionBudget:
    """The budget of one message; one thread uses it."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._bytes = 0

    def admit(self, size: int) -> None:
        """Permit the decompression of a batch of ``size`` bytes. Raises InvalidInputError, OverloadedError."""
        self._bytes += size
        if self._bytes > self._limits.message_bytes_max:
            raise InvalidInputError(
                f"the records of a message take {self._bytes} bytes, the limit is {self._limits.message_bytes_max}: "
                "send less at once, or raise rpc.frame_bytes_max"
            )
        count_call_memory(size)
