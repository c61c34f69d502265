"""How late a row is on the other cluster, measured from outside: written here, looked for there.

Arrives: two clients and a table. Leaves: one sample for each probe row (milliseconds from its acknowledgement here to
the moment it could be read there), and the operations that wrote them, so that the verdict expects them too. Nothing
of the product's own figures is used. Resolution: one scan of one row, plus :data:`POLL_MS`.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from bookkeeper.client import BatchWriter, Client
from bookkeeper.clock import Clock
from shell.demo.load import write
from shell.demo.workload import Operation

POLL_MS = 5
PAUSE_MS = 100
ARRIVAL_LIMIT_MS = 60_000
ROW_STARTS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class LagProbe:
    """A thread that sends probe rows, one after the other, until it is told to stop."""

    source: Client
    target: Client
    table: str
    rng: random.Random
    clock: Clock
    samples_ms: list[float] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="lag"))
    _running: Future[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._running = self._executor.submit(self._run)

    def stop(self) -> None:
        """End when the probe that is on its way has arrived; raises what ended the thread, if anything did."""
        self._stop.set()
        self._executor.shutdown()
        if self._running is not None:
            self._running.result()

    def _run(self) -> None:
        with self.source.writer(self.table) as writer:
            while not self.clock.wait(self._stop, PAUSE_MS):
                self._send_one(writer)

    def _send_one(self, writer: BatchWriter) -> None:
        number = len(self.operations)
        row = f"{self.rng.choice(ROW_STARTS)}~lag{number:06d}".encode()
        operation = Operation(row, ((b"label", b"probe", str(number).encode()),))
        self.operations.append(operation)
        write(writer, [operation])
        acknowledged_ns = self.clock.boot_ns()
        never = threading.Event()
        arrival = self.target.scan(self.table, row, row + b"\x00")
        while not arrival.table().num_rows:
            if self.clock.boot_ns() - acknowledged_ns > ARRIVAL_LIMIT_MS * 1_000_000:
                return  # the verdict will tell whether it is late or lost
            self.clock.wait(never, POLL_MS)
        self.samples_ms.append((self.clock.boot_ns() - acknowledged_ns) / 1e6)
