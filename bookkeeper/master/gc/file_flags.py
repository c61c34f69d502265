"""The flags of a million files: the facts of one run of the collector about each.

Arrives: names of files, in any order. Leaves: their flags, and all files in a fixed order. A log is found by directory
and number (``log_names``), so it costs a byte, and a few hundred where outstanding logs are far apart; any other file
costs its name. Used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from bookkeeper.master.index import log_names

LISTED, SEALED, MARKED, REFERENCED = 1, 2, 4, 8
"""A log on disk; it has its seal; a `~del_` row names the file; another row in the books does."""

_BITS, _MASK = 6, 63
"""Bits of a log's number that select a flag within a chunk."""


class FileFlags:
    """Name to flags; 0 for an unknown file."""

    __slots__ = ("_alone", "_chunks")

    def __init__(self) -> None:
        self._chunks: dict[bytes, dict[int, bytearray]] = {}
        self._alone: dict[bytes, int] = {}

    def of(self, file: bytes) -> int:
        """The flags of a file."""
        directory, number = log_names.split(file)
        if number == log_names.ALONE:
            return self._alone.get(file, 0)
        chunks = self._chunks.get(directory)
        chunk = None if chunks is None else chunks.get(number >> _BITS)
        return 0 if chunk is None else chunk[number & _MASK]

    def add(self, file: bytes, flags: int) -> None:
        """Set these flags of a file."""
        directory, number = log_names.split(file)
        if number == log_names.ALONE:
            self._alone[file] = self._alone.get(file, 0) | flags
            return
        chunks = self._chunks.get(directory)
        if chunks is None:
            chunks = self._chunks[directory] = {}
        chunk = chunks.get(number >> _BITS)
        if chunk is None:
            chunk = chunks[number >> _BITS] = bytearray(_MASK + 1)
        chunk[number & _MASK] |= flags

    def add_known(self, file: bytes, flags: int) -> int:
        """Set these flags of a file that has some already; returns those that it had."""
        known = self.of(file)
        if known and known | flags != known:
            self.add(file, flags)
        return known

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """The names and flags of all files: logs in order of their names, then the others in that of theirs."""
        for directory in sorted(self._chunks):
            chunks = self._chunks[directory]
            for chunk in sorted(chunks):
                for at, flags in enumerate(chunks[chunk]):
                    if flags:
                        yield log_names.joined(directory, chunk << _BITS | at), flags
        for file in sorted(self._alone):
            yield file, self._alone[file]
