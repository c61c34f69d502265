"""The outstanding logs of one directory, in order of their numbers.

Arrives: logs, most of them newer than those before. Leaves: each by its number, all from a number on. Two short arrays
in step, so a log costs twelve bytes here, however far the numbers are apart. Not thread-safe.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from bookkeeper.master.index import log_names
from bookkeeper.master.index.file_entry import FileEntry

CHUNK_LOGS = 1_000
"""Longest chunk; an insertion moves no more entries than these."""

_Chunk: TypeAlias = "tuple[array[int], list[FileEntry]]"


class LogIndex:
    """Number to log; ``directory`` is the one object that all of them share for its name. Never empty when used."""

    __slots__ = ("_chunks", "_firsts", "directory")

    def __init__(self, entry: FileEntry) -> None:
        self.directory = entry.directory
        self._chunks: list[_Chunk] = [(array("I", [entry.number]), [entry])]
        self._firsts = [entry.number]

    def find(self, number: int) -> FileEntry | None:
        """The log of that number, None when there is none."""
        numbers, entries = self._chunks[bisect_right(self._firsts, number) - 1]
        at = number - numbers[0]  # where there are no holes
        if not 0 <= at < len(numbers) or numbers[at] != number:
            at = bisect_left(numbers, number)
            if at == len(numbers) or numbers[at] != number:
                return None
        return entries[at]

    def put(self, number: int, entry: FileEntry) -> bool:
        """Add or replace a log; returns whether it is new."""
        entry.share_directory(self.directory)
        numbers, entries = self._chunks[-1]
        if number > numbers[-1]:
            if len(numbers) < CHUNK_LOGS:
                numbers.append(number)
                entries.append(entry)
            else:
                self._chunks.append((array("I", [number]), [entry]))
                self._firsts.append(number)
            return True
        chunk = self._chunk_of(number)
        numbers, entries = self._chunks[chunk]
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            entries[at] = entry
            return False
        numbers.insert(at, number)
        entries.insert(at, entry)
        if len(numbers) > CHUNK_LOGS:
            cut = CHUNK_LOGS // 2
            self._chunks.insert(chunk + 1, (numbers[cut:], entries[cut:]))
            self._firsts.insert(chunk + 1, numbers[cut])
            del numbers[cut:], entries[cut:]
        self._firsts[chunk] = min(number, self._firsts[chunk])
        return True

    def remove(self, number: int) -> None:
        """Remove a present log."""
        chunk = self._chunk_of(number)
        numbers, entries = self._chunks[chunk]
        at = bisect_left(numbers, number)
        del numbers[at], entries[at]
        if not entries:
            del self._chunks[chunk], self._firsts[chunk]

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def since(self, number: int) -> Iterator[FileEntry]:
        """The logs from a number on, in order."""
        start = self._chunk_of(number)
        for chunk in range(start, len(self._chunks)):
            numbers, entries = self._chunks[chunk]
            first = bisect_left(numbers, number) if chunk == start else 0
            for at in range(first, len(entries)):
                yield entries[at]

    def items(self) -> Iterator[tuple[bytes, FileEntry]]:
        """The logs with their names, in order."""
        for chunk in self._chunks:
            for number, entry in zip(*chunk, strict=True):
                yield log_names.joined(self.directory, number), entry

    def last(self) -> FileEntry:
        """The newest."""
        return self._chunks[-1][1][-1]

    def _chunk_of(self, number: int) -> int:
        """The chunk of a number; a chunk may begin behind its first number, when that number was removed."""
        return max(0, bisect_right(self._firsts, number) - 1)
