"""Makes the logs of one session: ``<wal dir>/<session>/<n>.wal``; a name is never used again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.storage.wal import FileHeader, WalWriter

LOG_SUFFIX = ".wal"


class WalOpener:
    """Used by the commit threads, and once before they start."""

    def __init__(
        self,
        directory: Path,
        instance_id: str,
        session_id: str,
        clock: Clock,
        keep_free_bytes: int,
        announce: Callable[[str, int], None],
    ) -> None:
        """``keep_free_bytes`` of the disk stay free. ``announce`` gets the URI and creation time of each new log."""
        self._directory = directory
        self._instance_id = instance_id
        self._session_id = session_id
        self._clock = clock
        self._keep_free_bytes = keep_free_bytes
        self._announce = announce
        self._numbers = count(1)

    def open(self) -> WalWriter:
        """The next log, announced. Raises UnavailableError, NoSpaceError."""
        created_ms = self._clock.wall_ms()
        header = FileHeader(instance_id=self._instance_id, session_id=self._session_id, created_time_ms=created_ms)
        path = self._directory / f"{next(self._numbers):06d}{LOG_SUFFIX}"
        writer = WalWriter.create(path, header, keep_free_bytes=self._keep_free_bytes)
        self._announce(writer.uri, created_ms)
        return writer
