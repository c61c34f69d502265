"""Copies of large binary values: records on their way into a tablet's memory, parts of segments.

The memory of a frame is reused, so its users need copies of their own. A copy lies in Arrow's memory: a tserver's
allocator retains freed pages, and a fresh page costs more than the copy of its bytes. Other threads run meanwhile.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

LARGE_BYTES = 64 * 1024
"""Below this size a ``bytes`` object costs less."""

LARGE_FIELDS = frozenset({"records", "content"})
"""Fields of the contract whose users accept any buffer: a large value is a view of the copy, not ``bytes``."""


def own_copy(view: memoryview) -> bytes | memoryview:
    """A copy of the bytes; a large one is a read-only view."""
    if len(view) < LARGE_BYTES:
        return bytes(view)
    memory = pa.allocate_buffer(len(view))
    np.copyto(np.frombuffer(memory, np.uint8), np.frombuffer(view, np.uint8))
    return memoryview(memory).cast("B").toreadonly()
