"""Memory of large binary values: records on their way into a tablet's memory, parts of segments.

Arrives: a part of a frame, whose memory is used again. Leaves: a copy that only its users hold. The memory is Arrow's:
a tserver's allocator keeps freed pages, so it is mostly there already, while a fresh page costs more than to fill it;
and other threads run while it is filled.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

LARGE_BYTES = 64 * 1024
"""Below this a ``bytes`` object costs less."""

LARGE_FIELDS = frozenset({"records", "content"})
"""Fields of the contract whose users take any buffer: a view of the copy in place of ``bytes``, where it is large."""


def own_copy(view: memoryview) -> bytes | memoryview:
    """The same bytes, for good; a large view can't be written to."""
    if len(view) < LARGE_BYTES:
        return bytes(view)
    memory = pa.allocate_buffer(len(view))
    np.copyto(np.frombuffer(memory, np.uint8), np.frombuffer(view, np.uint8))
    return memoryview(memory).cast("B").toreadonly()
