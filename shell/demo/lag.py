"""How late a row is on the other cluster, measured from outside: written here, looked for there.

Arrives: a writer of one cluster and a client of the other. Leaves: one sample for each probe row (milliseconds from
its acknowledgement here to the moment it could be read there), and the operations that wrote them, so that the verdict
expects them too. Nothing of the product's own figures is used. Resolution: one scan of one row, plus :data:`POLL_MS`.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from bookkeeper.client import BatchWriter, Client
from bookkeeper.clock import Clock
from shell.demo.load import write
from shell.demo.workload import Operation

POLL_MS = 20
PAUSE_MS = 100
ARRIVAL_LIMIT_S = 60.0
ROW_STARTS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class LagProbe:
    """Sends one probe row after the other; :meth:`send_one` is repeated by a thread."""

    writer: BatchWriter
    target: Client
    table: str
    rng: random.Random
    clock: Clock
    samples_ms: list[float] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def send_one(self, limit_s: float = ARRIVAL_LIMIT_S) -> None:
        """Write a row here, and return when it can be read there or ``limit_s`` are over; then there is no sample."""
        number = len(self.operations)
        row = f"{self.rng.choice(ROW_STARTS)}~lag{number:06d}".encode()
        operation = Operation(row, ((b"label", b"probe", str(number).encode()),))
        self.operations.append(operation)
        write(self.writer, [operation])
        acknowledged_ns = self.clock.boot_ns()
        never = threading.Event()
        arrival = self.target.scan(self.table, row, row + b"\x00")
        while not arrival.table().num_rows:
            if self.clock.boot_ns() - acknowledged_ns > limit_s * 1e9:
                return  # the verdict will tell whether it is late or lost
            self.clock.wait(never, POLL_MS)
        self.samples_ms.append((self.clock.boot_ns() - acknowledged_ns) / 1e6)
