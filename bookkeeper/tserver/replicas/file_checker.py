"""The quiet check: a host compares all its files with their checksums, one after the other, at a bounded rate.

It finds damage in files that nobody reads, while other hosts still have sound copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.replicas.file_checks import extended
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas

LOG = logging.getLogger(__name__)

TICK_MS = 1_000
WINDOW_BYTES = 1 << 20


class CheckLimits(Struct, frozen=True):
    """``interval_ms``: between the beginnings of two rounds over all files; ``bytes_s``: bytes read in a second."""

    interval_ms: int
    bytes_s: int


def allowance(limits: CheckLimits, left: int, elapsed_ms: float) -> int:
    """The bytes that may be read now: what the last turn left or took too much, and the share of the time since. A
    host that slept does not make up for it.
    """
    share = int(limits.bytes_s * min(elapsed_ms, 2.0 * TICK_MS) / 1000)
    return min(left, 0) + share


class FileChecker:
    """Works in a thread of its own."""

    def __init__(
        self, replicas: HeldReplicas, suspect: Callable[[str], bool], limits: CheckLimits, clock: Clock, die: Die
    ) -> None:
        """``suspect`` compares a whole file, and marks it when it is damaged."""
        self._replicas = replicas
        self._suspect = suspect
        self._limits = limits
        self._clock = clock
        self._round: Iterator[int] | None = None
        self._round_ns = 0
        self._turn_ns = clock.boot_ns()
        self._left = 0
        self._checked = 0
        self._thread = BackgroundThread("file-checker", clock, die)

    def run_once(self) -> None:
        """Read as much as the rate allows now."""
        now_ns = self._clock.boot_ns()
        self._left = allowance(self._limits, self._left, (now_ns - self._turn_ns) / 1_000_000)
        self._turn_ns = now_ns
        if self._round is None and now_ns - self._round_ns >= self._limits.interval_ms * 1_000_000:
            self._round, self._round_ns = self._files(), now_ns
        while self._round is not None and self._left > 0 and not self._thread.closing.is_set():
            read = next(self._round, None)
            if read is None:
                self._round = None
            else:
                self._left -= read

    def _files(self) -> Iterator[int]:
        """Read all files that are held; gives the bytes of each step."""
        for held in self._replicas.all():
            for name in sorted(held.replica.files):
                file = held.manifest.sound.get(name)
                if file is not None and self._replicas.find(held.manifest.key) is held:  # else it is removed meanwhile
                    yield from self._file(file)

    def _file(self, file: HeldFile) -> Iterator[int]:
        volume, checksum, position = self._replicas.store.volume, 0, 0
        try:
            while position < file.size_bytes and (window := volume.read_range(file.name, position, WINDOW_BYTES)):
                checksum = extended(checksum, window)
                position += len(window)
                yield len(window)
        except OSError as error:
            LOG.warning("%s can't be checked: %s", file.name, error)
        self._checked += 1
        if (position, checksum) != (file.size_bytes, file.crc32c):
            try:
                self._suspect(file.name)
            except BookkeeperError as error:
                LOG.warning("%s can't be checked: %s", file.name, error)

    def status(self) -> Mapping[str, str]:
        """Files checked since the start."""
        return {"files_checked": str(self._checked)}

    # ---- the thread

    def start(self) -> None:
        """Begin to check."""
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread."""
        self._thread.close()
