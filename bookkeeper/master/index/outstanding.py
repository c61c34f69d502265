"""The outstanding files by name, and each tserver's oldest unfinished log.

Arrives: files of a scan or a quick cycle. Leaves: each by its name, all in order of their names; the oldest log of a
tserver that a target lacks, for barriers that wait for all logs before one (``barriers``). Such barriers are checked
often, and finished offsets only rise, so each search starts at the last result. One thread changes it, any may read.

No name of a log is stored completely, for a million of them: they are found by directory and number (``log_names``).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from operator import itemgetter

from bookkeeper.master.index import log_names
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.log_index import LogIndex
from bookkeeper.model import TargetKey

_Item = tuple[bytes, FileEntry]
_name_of = itemgetter(0)


class Outstanding:
    """Name to file. Files that are new to earlier queries come by :meth:`add`."""

    __slots__ = ("_alone", "_fronts", "_length", "_lock", "_runs")

    def __init__(self) -> None:
        self._runs: dict[bytes, LogIndex | FileEntry] = {}
        self._alone: dict[bytes, FileEntry] = {}
        self._length = 0
        self._lock = threading.Lock()
        self._fronts: dict[tuple[bytes, TargetKey], int] = {}

    def __len__(self) -> int:
        return self._length

    def __contains__(self, file: object) -> bool:
        return isinstance(file, bytes) and self.get(file) is not None

    def __getitem__(self, file: bytes) -> FileEntry:
        entry = self.get(file)
        if entry is None:
            raise KeyError(file)
        return entry

    def get(self, file: bytes) -> FileEntry | None:
        """The file of that name, None when it is not outstanding."""
        directory, number = log_names.split(file)
        with self._lock:
            return self.find(directory, number)

    def find(self, directory: bytes, number: int) -> FileEntry | None:
        """As :meth:`get`, of a name that was split, for the thread that changes this."""
        if number == log_names.ALONE:
            return self._alone.get(directory)
        run = self._runs.get(directory)
        if isinstance(run, LogIndex):
            return run.find(number)
        return run if run is not None and run.number == number else None

    def put(self, entry: FileEntry) -> None:
        """One more file, or another entry for it, that no query has read yet."""
        self.put_at(entry.number, entry)

    def put_at(self, number: int, entry: FileEntry) -> None:
        """As :meth:`put`, of a name that was split."""
        directory = entry.directory
        if number == log_names.ALONE:
            self._length += directory not in self._alone
            self._alone[directory] = entry
            return
        run = self._runs.get(directory)
        if run is None:
            self._runs[directory] = entry  # a run of one would cost more than the log
            self._length += 1
            return
        if not isinstance(run, LogIndex):
            run = self._runs[run.directory] = LogIndex(run)
        self._length += run.put(number, entry)

    def remove(self, file: bytes) -> None:
        """Remove a file. Raises KeyError when it is not outstanding."""
        with self._lock:
            directory, number = log_names.split(file)
            if self.find(directory, number) is None:
                raise KeyError(file)
            self._length -= 1
            if number == log_names.ALONE:
                del self._alone[file]
                return
            run = self._runs[directory]
            if isinstance(run, LogIndex):
                run.remove(number)
            if not isinstance(run, LogIndex) or not run:
                del self._runs[directory]

    def __iter__(self) -> Iterator[bytes]:
        """The names of all, in no order."""
        return (entry.file for entry in self.values())

    def values(self) -> Iterator[FileEntry]:
        """All files there are now, in no order; may be called beside changes."""
        with self._lock:
            alone, directories = list(self._alone.values()), list(self._runs)
        yield from alone
        for directory in directories:
            with self._lock:
                found = list(self._of(directory))
            yield from found

    def in_order(self) -> Iterator[_Item]:
        """All files with their names, in order of these, for the thread that changes this."""
        alone = ((file, self._alone[file]) for file in sorted(self._alone))
        return heapq.merge(self._logs_in_order(), alone, key=_name_of) if self._alone else self._logs_in_order()

    def _logs_in_order(self) -> Iterator[_Item]:
        """The order of directories. Where one directory is inside another, names of both may alternate; otherwise the
        files of a directory stay together.
        """
        directories = sorted(self._runs)
        at = 0
        while at < len(directories):
            first, end = directories[at], at + 1
            while end < len(directories) and directories[end].startswith(first):
                end += 1
            if end == at + 1:
                yield from self._items_of(first)
            else:
                yield from heapq.merge(*map(self._items_of, directories[at:end]), key=_name_of)
            at = end

    def _items_of(self, directory: bytes) -> Iterator[_Item]:
        run = self._runs[directory]
        return run.items() if isinstance(run, LogIndex) else iter([(run.file, run)])

    def _of(self, directory: bytes) -> Iterator[FileEntry]:
        run = self._runs.get(directory)
        if run is None:
            return iter(())
        return run.since(0) if isinstance(run, LogIndex) else iter((run,))

    def newest(self, directory: bytes) -> bytes | None:
        """The newest log of a directory, None when there is none."""
        run = self._runs.get(directory)
        last = run.last() if isinstance(run, LogIndex) else run
        return None if last is None else last.file

    def add(self, entry: FileEntry) -> None:
        """Add a file, or one that more targets need now: queries search its directory again."""
        with self._lock:
            self._fronts.clear()
            self.put(entry)

    def oldest_left(self, directory: bytes, target: TargetKey, is_over: Callable[[FileEntry], bool]) -> bytes | None:
        """The oldest log of a directory that is not over for a target; None when all are. A log that is over stays
        over.
        """
        with self._lock:
            run = self._runs.get(directory)
            if run is None:
                return None
            front = self._fronts.get((directory, target), 0)
            logs = run.since(front) if isinstance(run, LogIndex) else iter((run,))
            oldest = next((entry for entry in logs if not is_over(entry)), None)
            self._fronts[directory, target] = log_names.ALONE if oldest is None else oldest.number
            return None if oldest is None else oldest.file
