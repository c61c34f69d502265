"""The continuation of a scan: the position where the next page starts, as a token for the client.

The position is behind a cell, or between two versions of one. Pure. A token means the same in any later state of the
tablet, on any tserver; it carries a checksum, because it comes back from outside.
"""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import numpy as np
from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.tablet.scans.cell_versions import PartialCell
from bookkeeper.storage.tablet.sorting.entries import Cell, Position, after_cell

TOKEN_VERSION = 2
_HEAD = struct.Struct("<B?qqII4I")
"""Version, whether the cell goes on, timestamp and sequence number of its last entry seen, versions counted and shown,
lengths of the cell's parts.
"""
_CHECK = struct.Struct("<I")


class VersionPosition(Struct, frozen=True):
    """A position inside a cell: behind the entry of this timestamp and sequence number, with the counts up to it."""

    timestamp: int
    seq: int
    counted: int
    shown: int


class Resume(Struct, frozen=True):
    """Behind ``cell``; with a ``version_position``, behind a version of it."""

    cell: Cell
    version_position: VersionPosition | None = None

    @property
    def position(self) -> Position:
        """The position where the scan goes on."""
        if self.version_position is None:
            return after_cell(self.cell)
        return (*self.cell, -self.version_position.timestamp, -self.version_position.seq)

    @property
    def partial_cell(self) -> PartialCell | None:
        """The counts of a cell that was read in part; None behind a cell."""
        at = self.version_position
        return None if at is None else PartialCell(self.cell, at.counted, at.shown, False)

    def encode(self) -> bytes:
        """The token."""
        at = self.version_position or VersionPosition(0, 0, 0, 0)
        numbers = (at.timestamp, at.seq, at.counted, at.shown)
        lengths = map(len, self.cell)
        head = _HEAD.pack(TOKEN_VERSION, self.version_position is not None, *numbers, *lengths)
        body = head + b"".join(self.cell)
        return body + _CHECK.pack(zlib.crc32(body))

    @classmethod
    def decode(cls, token: bytes) -> Resume:
        """Inverse of :meth:`encode`; raises InvalidInputError for anything that it did not make."""
        body = token[: -_CHECK.size]
        if len(body) < _HEAD.size or _CHECK.pack(zlib.crc32(body)) != token[-_CHECK.size :]:
            raise InvalidInputError("a scan can't go on from this token: it is damaged; start the scan again")
        version, goes_on, timestamp, seq, counted, shown, *lengths = _HEAD.unpack_from(body)
        if version != TOKEN_VERSION or len(body) != _HEAD.size + sum(lengths):
            raise InvalidInputError(f"a scan can't go on from a token of version {version}; start the scan again")
        ends = np.cumsum([_HEAD.size, *lengths]).tolist()
        row, family, qualifier, visibility = (body[a:b] for a, b in pairwise(ends))
        version_position = VersionPosition(timestamp, seq, counted, shown) if goes_on else None
        return cls((row, family, qualifier, visibility), version_position)
