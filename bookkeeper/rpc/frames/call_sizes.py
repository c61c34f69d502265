"""The size limit of each call: a call with records or lists may fill a frame, any other call is small.

Pure; the contract says which calls may fill a frame.
"""

from __future__ import annotations

from bookkeeper.rpc.contract.tables import BULK_METHODS

HELLO_BYTES_MAX = 4 * 1024
"""Size limit of the first call: before it the server does not know the caller."""

SMALL_CALL_BYTES_MIN = 64 * 1024
SMALL_CALL_PART = 16
"""A small call has at most this part of the largest frame: 2 MiB, room for rows and columns of the largest size."""


def call_bytes_max(service: str, method: str, frame_bytes_max: int) -> int:
    """Most bytes of a call, its head included."""
    if method == "hello":
        return HELLO_BYTES_MAX
    if method in BULK_METHODS[service]:
        return frame_bytes_max
    return max(SMALL_CALL_BYTES_MIN, frame_bytes_max // SMALL_CALL_PART)
