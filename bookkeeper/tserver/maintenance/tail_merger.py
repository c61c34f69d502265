"""Merges the tails of given-up logs into the tablets that this host leads, once their hosts are back (N6).

The tail is read from the log itself, from the offset that the tablet's segments have to the seal, as a load reads it. A
segment of the deposed term is never taken: its records are in the log. They get into memory in one step of the commit
thread, without another log, and a flush makes them a state. ``leading.namer`` deletes the cell when that state is
named. A crash before that leaves the cell, and the next leader begins at its own named state.

Each tail is tried by itself: the host of another log may stay away. The tails that can be read are merged in the order
of their records. A tail waits for those that can't be read only where these may have earlier records of a stream that
both have: behind the high-water of the later ones they would count as known (R18). Rules: R15, R18, N6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError
from bookkeeper.metadata.lost_logs import lost_cells
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.maintenance.sealed_logs import SealedLogs
from bookkeeper.tserver.maintenance.tablet_opener import missing_blocks
from bookkeeper.tserver.origins.tail_plan import has_gap
from bookkeeper.tserver.tablets.load_plan import LogToRead
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.control_submissions import MergeTail

LOG = logging.getLogger(__name__)

TICK_MS = 1_000
MERGE = "the merge of a given-up log"


class _Tail(Struct, frozen=True):
    """A tail whose log has a seal."""

    log: LogToRead
    headers: Sequence[BlockHeader]

    @property
    def first_seq(self) -> int:
        """The number of its first record; 0 without one."""
        return self.headers[0].first_seq if self.headers else 0


@contextmanager
def _noted(failures: list[BookkeeperError]) -> Iterator[None]:
    """Note an error instead of raising it, unless the lease is lost."""
    try:
        yield
    except LeaseLostError:
        raise
    except BookkeeperError as error:
        failures.append(error)


class TailMerger:
    """Looks at each given-up log of each led tablet once a second, in a thread of its own."""

    def __init__(
        self, led: LedTablets, books: TabletBooks, path: CommitPath, volume: Volume, clock: Clock, die: Die
    ) -> None:
        self._led = led
        self._books = books
        self._path = path
        self._volume = volume
        self._sealed_logs = SealedLogs(volume, lambda log: read_headers(volume, log))
        self._thread = BackgroundThread("tail-merger", clock, die)
        self._tails_merged = 0

    @property
    def tails_merged(self) -> int:
        """Tails that were merged since the start."""
        return self._tails_merged

    def start(self) -> None:
        """Start the thread."""
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread after the merge under way."""
        self._thread.close()

    def run_once(self) -> None:
        """Try each tail once."""
        for chain in self._led.all():
            if self._thread.closing.is_set():
                return
            if chain.tablet.given_up.has_lost and chain.leads:
                self._work(chain.tablet)

    def _work(self, tablet: ServedTablet) -> None:
        failures: list[BookkeeperError] = []
        tails: list[_Tail] = []
        with _noted(failures):
            self._forget_closed(tablet)
        for log, after in tablet.given_up.waiting.items():
            with _noted(failures):
                tails += self._sealed(tablet, LogToRead(log, after))
        tails.sort(key=lambda tail: tail.first_seq)
        for index, tail in enumerate(tails):
            not_before = set(tablet.given_up.waiting) - {later.log.name for later in tails[index:]}
            if not_before and has_gap(tail.headers, tablet.received.staged_high_water):
                LOG.info("the tail of %s waits for %s, which may have earlier records", tail.log.name, min(not_before))
                continue
            with _noted(failures):
                self._merge(tablet, tail.log)
        self._tell(tablet, failures)

    def _tell(self, tablet: ServedTablet, failures: Sequence[BookkeeperError]) -> None:
        """Tell an operator about tails that can't be merged."""
        lasting = [error for error in failures if not isinstance(error, TransientError)]
        for error in failures:
            level = logging.INFO if isinstance(error, TransientError) else logging.ERROR
            LOG.log(level, "a tail of tablet %s waits: %s", tablet.extent, error.message)
        if lasting:
            tablet.work_failed(MERGE, lasting[0].message)
        elif not failures:
            tablet.work_succeeded(MERGE)

    def _forget_closed(self, tablet: ServedTablet) -> None:
        """Await no tail whose cell is gone: it is lost for ever, and an operator has accepted that."""
        row = self._books.get(tablet.row, ("tablet",))
        known = frozenset() if row is None else frozenset(lost_cells(row))
        tablet.given_up.retain(known)

    def _sealed(self, tablet: ServedTablet, log: LogToRead) -> list[_Tail]:
        """The tail, if its log has a seal: the master seals it when its host is back."""
        if read_seal(self._volume, log.name) is None:
            return []
        return [_Tail(log, [at.header for at in self._sealed_logs.missing_blocks(tablet.extent, log)])]

    def _merge(self, tablet: ServedTablet, log: LogToRead) -> None:
        tail = list(missing_blocks(self._sealed_logs, tablet.extent, log))
        self._path.judge(MergeTail(tablet, log.name, tail), MERGE)
        self._tails_merged += 1
        LOG.info("tablet %s has %d blocks of %s again, which was given up", tablet.extent, len(tail), log.name)
