"""Makes the logs of one session: ``wal/<session>/<n>.wal`` on the Volume; a name is never used again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from bookkeeper.clock import Clock
from bookkeeper.storage.volume.names import LOG_SUFFIX, log_directory
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.writing.wal_writer import WalWriter


class WalOpener:
    """Used by the commit threads, and once before they start."""

    def __init__(
        self,
        volume: Volume,
        instance_id: str,
        session_id: str,
        clock: Clock,
        keep_free_bytes: int,
        announce: Callable[[str, int], None],
    ) -> None:
        """``keep_free_bytes`` of the Volume stay free. ``announce`` gets the name and creation time of each new log."""
        self._volume = volume
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
        name = f"{log_directory(self._session_id)}/{next(self._numbers):06d}{LOG_SUFFIX}"
        writer = WalWriter.create(self._volume, name, header, keep_free_bytes=self._keep_free_bytes)
        self._announce(writer.name, created_ms)
        return writer
