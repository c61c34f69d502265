"""The continuation of a scan: where the next page starts, as bytes that a client keeps.

Arrives: a cell, or a place between two versions of one. Leaves: a token, and back. Pure. A token means the same in any
later state of the tablet, on any tserver; it carries a checksum, because it comes back from outside.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.tablet.scans.cell_versions import Begun
from bookkeeper.storage.tablet.sorting.entries import Cell, Position, after_cell

TOKEN_VERSION = 2
_HEAD = struct.Struct("<B?qqII4I")
"""Version, whether the cell goes on, timestamp and sequence number of its last entry seen, versions counted and shown,
lengths of the cell's parts.
"""
_CHECK = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Within:
    """A place inside a cell: behind the entry of this timestamp and sequence number, and what was seen up to it."""

    timestamp: int
    seq: int
    counted: int
    shown: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Behind ``cell``, or, when ``within`` is given, behind a version of it."""

    cell: Cell
    within: Within | None = None

    @property
    def position(self) -> Position:
        """Where to go on."""
        if self.within is None:
            return after_cell(self.cell)
        return (*self.cell, -self.within.timestamp, -self.within.seq)

    @property
    def begun(self) -> Begun | None:
        """What was seen of the cell; None when all of it was."""
        return None if self.within is None else Begun(self.cell, self.within.counted, self.within.shown, False)

    def encode(self) -> bytes:
        """The token."""
        at = self.within or Within(0, 0, 0, 0)
        numbers = (at.timestamp, at.seq, at.counted, at.shown)
        body = _HEAD.pack(TOKEN_VERSION, self.within is not None, *numbers, *map(len, self.cell)) + b"".join(self.cell)
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
        within = Within(timestamp, seq, counted, shown) if goes_on else None
        return cls((row, family, qualifier, visibility), within)
