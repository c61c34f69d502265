"""``~recv_``: the index of what was received, written lazily. A hint: the truth lies in block headers (rule R18).

Arrives: acknowledgements as they are given. Leaves: one cell a stream, at most every ``interval_ms``, at a rank that
rises with the offset. Survives a crash: what was written; what was not is written when the stream goes on, and its
absence costs nothing but an operator's view. Sources: design section 4; rules R18 and R20.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from bookkeeper.clock import Clock
from bookkeeper.errors import LeaseLostError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import MetadataTable, RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import StreamKey
from bookkeeper.tserver.threads import Die, Persistence, start_thread

LOG = logging.getLogger(__name__)

INTERVAL_MS = 1_000


class ReceivedIndex:
    """Coalesces acknowledged offsets and writes them in a thread of its own."""

    def __init__(self, metadata: MetadataTable, persistence: Persistence, clock: Clock, die: Die) -> None:
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._die = die
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: dict[StreamKey, int] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, stream: StreamKey, offset: int) -> None:
        """Everything of the stream up to ``offset`` is durable here."""
        with self._lock:
            self._pending[stream] = max(self._pending.get(stream, 0), offset)

    def forget(self, streams: Collection[StreamKey]) -> None:
        """Write nothing more of these streams (R20: their cells go now). Returns when nothing is under way."""
        with self._writing, self._lock:
            for stream in streams:
                self._pending.pop(stream, None)

    def write_pending(self) -> None:
        """Write what was noted; raises TransientError, and keeps what it could not write."""
        with self._writing:
            with self._lock:
                batch = sorted(self._pending.items())
            for stream, offset in batch:
                cell = keys.recv_cell(stream)
                self._persistence.check()
                put = RowPut(cell.key, {cell.column: Received(offset).encode()})
                self._metadata.put([put], keys.recv_rank(offset, False))
                with self._lock:
                    if self._pending.get(stream) == offset:
                        del self._pending[stream]

    def start(self) -> None:
        """Begin to write."""
        self._thread = start_thread("received-index", self._run, self._die)

    def close(self) -> None:
        """Write what is left if the metadata table answers, and end the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            closing = self._clock.wait(self._closed, INTERVAL_MS)
            try:
                self.write_pending()
            except LeaseLostError:
                raise
            except TransientError as error:
                LOG.warning("the index of received files waits: %s", error)
            if closing:
                return
