"""The outstanding files by name, and how far each tserver's logs are finished in order.

Arrives: files, as a scan or a quick look finds them. Leaves: each by its name, all in order of their names; the oldest
log of a tserver that a target lacks, for barriers that wait for all logs before one (``barriers``). That is asked for
again and again, and finished offsets only rise, so it is looked for from where it was. One thread changes it, any may
read. Nothing survives a crash.

No name is kept whole: files of one stem (``names``) are on one page, for a million of them.
"""

from __future__ import annotations

import bisect
import heapq
import threading
from collections.abc import Callable, Iterator

from bookkeeper.master import names
from bookkeeper.master.barriers import log_directory
from bookkeeper.master.files import FileEntry
from bookkeeper.model import TargetKey

_Page = FileEntry | list[FileEntry | None]
"""A file that is the only one of its stem, or one for each place."""


def name_of(entry: FileEntry) -> bytes:
    """What files are sorted by."""
    return entry.file


class Outstanding:
    """Name to file. What is new to those that may have been asked about comes by :meth:`add`."""

    __slots__ = ("_alone", "_fronts", "_length", "_lock", "_logs", "_pages")

    def __init__(self) -> None:
        self._pages: dict[bytes, _Page] = {}
        self._alone: dict[bytes, FileEntry] = {}
        self._length = 0
        self._lock = threading.Lock()
        self._logs: dict[bytes, list[FileEntry]] | None = None
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
        stem, place = names.split(file)
        if place == names.ALONE:
            return self._alone.get(file)
        page = self._pages.get(stem)
        if isinstance(page, list):
            return page[place]
        return page if page is not None and page.place == place else None

    def put(self, entry: FileEntry) -> None:
        """One more file, or another entry for it, that nobody was asked about yet."""
        place = entry.place
        if place == names.ALONE:
            self._length += entry.stem not in self._alone
            self._alone[entry.stem] = entry
            return
        page = self._pages.get(entry.stem)
        if page is None:
            self._pages[entry.stem] = entry
            self._length += 1
            return
        if not isinstance(page, list):
            if page.place == place:
                entry.stem = page.stem
                self._pages[entry.stem] = entry
                return
            alone, page = page, [None] * names.PLACES
            page[alone.place] = alone
            self._pages[alone.stem] = page
        other = page[place - 1] or next(filter(None, page))
        entry.stem = other.stem
        self._length += page[place] is None
        page[place] = entry

    def remove(self, file: bytes) -> None:
        """This one is outstanding no more. Raises KeyError when it was not."""
        entry = self[file]
        self._length -= 1
        if entry.place == names.ALONE:
            del self._alone[file]
            return
        page = self._pages[entry.stem]
        if isinstance(page, list):
            page[entry.place] = None
            if any(page):
                return
        del self._pages[entry.stem]

    def __iter__(self) -> Iterator[bytes]:
        """The names of all, in no order."""
        return (entry.file for entry in self.values())

    def values(self) -> Iterator[FileEntry]:
        """All files there are now, in no order; may be called beside changes."""
        yield from list(self._alone.values())
        for page in list(self._pages.values()):
            if isinstance(page, list):
                yield from filter(None, page)
            else:
                yield page

    def in_order(self) -> Iterator[FileEntry]:
        """All files in order of their names."""
        alone = (self._alone[file] for file in sorted(self._alone))
        return heapq.merge(self._paged_in_order(), alone, key=name_of) if self._alone else self._paged_in_order()

    def _paged_in_order(self) -> Iterator[FileEntry]:
        """Where one stem begins like another one, names of both may alternate; else a stem's names stay together."""
        stems = sorted(self._pages)
        at = 0
        while at < len(stems):
            first, end = stems[at], at + 1
            while end < len(stems) and stems[end].startswith(first):
                end += 1
            if end == at + 1:
                yield from self._of(first)
            else:
                yield from sorted((entry for stem in stems[at:end] for entry in self._of(stem)), key=name_of)
            at = end

    def _of(self, stem: bytes) -> Iterator[FileEntry]:
        page = self._pages[stem]
        return filter(None, page) if isinstance(page, list) else iter((page,))

    def newest(self, directory: bytes) -> bytes | None:
        """The last name that begins with a directory's (up to its slash), None when there is none."""
        stems = [stem for stem in list(self._pages) if stem.startswith(directory)]
        last = max(stems, default=b"")
        found = [entry.file for stem in stems if last.startswith(stem) for entry in self._of(stem)]
        return max((*found, *(file for file in list(self._alone) if file.startswith(directory))), default=None)

    def add(self, entry: FileEntry) -> None:
        """One more file, or one that more targets need now: what was passed over may count."""
        with self._lock:
            self._fronts.clear()
            directory = log_directory(entry.file)
            if self._logs is not None and directory is not None and entry.file not in self:
                bisect.insort(self._logs.setdefault(directory, []), entry, key=name_of)
            self.put(entry)

    def oldest_left(self, directory: bytes, target: TargetKey, is_over: Callable[[FileEntry], bool]) -> bytes | None:
        """The oldest log of a directory that is not over for a target; None when all are. What is over stays so."""
        with self._lock:
            logs = self._logs_in_order().get(directory, [])
            place = self._fronts.get((directory, target), 0)
            while place < len(logs) and is_over(logs[place]):
                place += 1
            self._fronts[directory, target] = place
            return logs[place].file if place < len(logs) else None

    def _logs_in_order(self) -> dict[bytes, list[FileEntry]]:
        if self._logs is None:
            self._logs = {}
            for entry in self.in_order():
                directory = log_directory(entry.file)
                if directory is not None:
                    self._logs.setdefault(directory, []).append(entry)
        return self._logs
