"""``~recv_``: the index of received streams. Its offsets are hints: the truth lies in block headers (rule R18).

The existence of a cell is more than a hint: the tserver writes it before it accepts a stream's first message, and it
goes for good when the stream has ended (R20). So a high-water without a cell is of a stream that never comes back; a
tserver that finds one, in a flush state or in a log, drops it. A tablet that no tserver served when its streams ended
has such high-waters.

The index has one cell a stream, at a rank that rises with the offset, and writes offsets at most every
:data:`INTERVAL_MS`. An offset that is lost in a crash costs an operator's view only. Rules: R18 and R20.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable

from bookkeeper.clock import Clock
from bookkeeper.errors import LeaseLostError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import StreamKey
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import BackgroundThread, Die

LOG = logging.getLogger(__name__)

INTERVAL_MS = 1_000
ANNOUNCED_MAX = 10_000
"""Streams that are remembered as announced."""


def indexed_streams(metadata: MetadataTable, source_instance_ids: Iterable[str]) -> set[StreamKey]:
    """The streams of these clusters that have not ended. Raises TransientError, CorruptionError."""
    found: set[StreamKey] = set()
    for instance_id in sorted(set(source_instance_ids)):
        for row in metadata.scan(*keys.recv_section(instance_id), ("recv",)):
            found.update(keys.parse_recv_cell(row.key, column.qualifier) for column in row.cells)
    return found


class ReceivedIndex:
    """Coalesces acknowledged offsets and writes them in a thread of its own."""

    def __init__(self, metadata: MetadataTable, persistence: SessionRetries, clock: Clock, die: Die) -> None:
        self._metadata = metadata
        self._persistence = persistence
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: dict[StreamKey, int] = {}
        self._announced: dict[StreamKey, None] = {}
        """Streams whose cells this process has written."""
        self._thread = BackgroundThread("received-index", clock, die)

    def announce(self, stream: StreamKey) -> None:
        """Write the stream's cell, before its first message is accepted; hidden if it has ended. Once is enough: so a
        stream under way can be opened again while the books are away. Raises TransientError.
        """
        self._persistence.check()
        with self._lock:
            if stream in self._announced:
                return
        self._put(stream, 0)
        with self._lock:
            self._announced[stream] = None
            while len(self._announced) > ANNOUNCED_MAX:
                del self._announced[next(iter(self._announced))]

    def is_open(self, stream: StreamKey) -> bool:
        """Whether the books have the stream as announced and not ended. Raises TransientError."""
        cell = keys.recv_cell(stream)
        row = self._metadata.get(cell.key, ("recv",))
        return row is not None and cell.column in row.cells

    def note(self, stream: StreamKey, offset: int) -> None:
        """Everything of the stream up to ``offset`` is durable here."""
        with self._lock:
            self._pending[stream] = max(self._pending.get(stream, 0), offset)

    def forget(self, streams: Collection[StreamKey]) -> None:
        """Write no more cells of these streams (R20: their cells go now). Returns when no such write is under way."""
        with self._writing, self._lock:
            for stream in streams:
                self._pending.pop(stream, None)
                self._announced.pop(stream, None)

    def write_pending(self) -> None:
        """Write the noted offsets; raises TransientError, and retains those that it could not write."""
        with self._writing:
            with self._lock:
                batch = sorted(self._pending.items())
            for stream, offset in batch:
                self._persistence.check()
                self._put(stream, offset)
                with self._lock:
                    if self._pending.get(stream) == offset:
                        del self._pending[stream]

    def _put(self, stream: StreamKey, offset: int) -> None:
        cell = keys.recv_cell(stream)
        put = RowPut(cell.key, {cell.column: Received(offset).encode()})
        self._metadata.put([put], keys.recv_rank(offset, False))

    def start(self) -> None:
        """Begin to write."""
        self._thread.start(self._write_or_log, INTERVAL_MS, once_more=True)

    def close(self) -> None:
        """Write the remaining offsets if the metadata table answers, and end the thread."""
        self._thread.close()

    def _write_or_log(self) -> None:
        try:
            self.write_pending()
        except LeaseLostError:
            raise
        except TransientError as error:
            LOG.warning("the index of received files waits: %s", error)
