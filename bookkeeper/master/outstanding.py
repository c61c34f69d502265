"""The outstanding files by name, and how far each tserver's logs are finished in order.

Arrives: files, as a scan or a quick look finds them. Leaves: the oldest log of a tserver that a target lacks, for
barriers that wait for all logs before one (``barriers``). That is asked for again and again, and finished offsets only
rise, so it is looked for from where it was. Thread-safe in that; one thread adds files. Nothing survives a crash.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable

from bookkeeper.master.barriers import log_directory
from bookkeeper.master.files import FileEntry
from bookkeeper.model import TargetKey


class Outstanding(dict[bytes, FileEntry]):
    """Name to file. What is new to those that may have been asked about comes by :meth:`add`."""

    __slots__ = ("_fronts", "_lock", "_logs")

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._logs: dict[bytes, list[bytes]] | None = None
        self._fronts: dict[tuple[bytes, TargetKey], int] = {}

    def add(self, entry: FileEntry) -> None:
        """One more file, or one that more targets need now: what was passed over may count."""
        with self._lock:
            self._fronts.clear()
            directory = log_directory(entry.file)
            if self._logs is not None and directory is not None and entry.file not in self:
                bisect.insort(self._logs.setdefault(directory, []), entry.file)
            self[entry.file] = entry

    def oldest_left(self, directory: bytes, target: TargetKey, is_over: Callable[[FileEntry], bool]) -> bytes | None:
        """The oldest log of a directory that is not over for a target; None when all are. What is over stays so."""
        with self._lock:
            logs = self._in_order().get(directory, [])
            place = self._fronts.get((directory, target), 0)
            while place < len(logs):
                entry = self.get(logs[place])
                if entry is not None and not is_over(entry):
                    break
                place += 1
            self._fronts[directory, target] = place
            return logs[place] if place < len(logs) else None

    def _in_order(self) -> dict[bytes, list[bytes]]:
        if self._logs is None:
            self._logs = {}
            for file in sorted(self):
                directory = log_directory(file)
                if directory is not None:
                    self._logs.setdefault(directory, []).append(file)
        return self._logs
