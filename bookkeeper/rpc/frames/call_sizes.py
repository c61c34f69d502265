"""The size limit of each call: a call with records or lists may fill a frame, any other call is small.

Pure. A test compares the table with the contract.
"""

from __future__ import annotations

HELLO_BYTES_MAX = 4 * 1024
"""Size limit of the first call: before it the server does not know the caller."""

SMALL_CALL_BYTES_MIN = 64 * 1024
SMALL_CALL_PART = 16
"""A small call has at most this part of the largest frame: 2 MiB, room for rows and columns of the largest size."""

BULK_METHODS = {
    "Master": frozenset(
        {
            "create_table",
            "set_groups",
            "change_properties",
            "compact_table",
            "add_splits",
            "replication_pending",
            "stream_done",
            "root_standings",
            "roots_over",
            "report_work",
        }
    ),
    "TServer": frozenset(
        {
            "write",
            "write_if",
            "scan",
            "adopt_segments",
            "divide_replica",
            "take_replica",
            "assign_work",
            "forget_streams",
            "forget_roots",
            "replicate",
            "offer_segments",
            "put_segment",
            "apply_replicated",
            "confirm_states",
            "segment_offer",
            "segment_transit",
            "drop_logs",
        }
    ),
    "Replay": frozenset({"run"}),
}


def call_bytes_max(service: str, method: str, frame_bytes_max: int) -> int:
    """Most bytes of a call, its head included."""
    if method == "hello":
        return HELLO_BYTES_MAX
    if method in BULK_METHODS[service]:
        return frame_bytes_max
    return max(SMALL_CALL_BYTES_MIN, frame_bytes_max // SMALL_CALL_PART)
