"""The bytes of a file far away, in windows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct, field

WINDOW_BYTES = 1 << 18
"""Least bytes of one remote request: holds many headers, wastes little where a payload is skipped."""

HEAD_BYTES = 1 << 12
"""Bytes of the first request for the beginning of a file: it has the header, and who reads the tail of a file needs no
more of its beginning.
"""


class RemoteSource(Struct):
    """A file far away: each request brings a window, so that small reads in a row cost one. One thread. ``fetch``: so
    many bytes from a position on; raises UnavailableError.
    """

    fetch: Callable[[int, int], pa.Buffer]
    size: int
    window: pa.Buffer = field(default_factory=lambda: pa.py_buffer(b""))
    window_position: int = 0

    def read(self, position: int, length: int) -> pa.Buffer:
        """See :class:`Source`. Raises UnavailableError."""
        start = position - self.window_position
        if start < 0 or start + length > self.window.size:
            least = WINDOW_BYTES if position else HEAD_BYTES
            wanted = max(length, min(least, self.size - position))
            self.window, self.window_position, start = self.fetch(position, wanted), position, 0
        return self.window.slice(start, length)
