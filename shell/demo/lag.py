"""Measures the lag of a row from outside: a write on one cluster, then scans of the other.

A sample is the time from the acknowledgement of a probe row here until a scan there returns it, in milliseconds. The
comparison also expects the probe rows. The probe uses no figure of the product. Resolution: one scan of one row, plus
:data:`POLL_MS`.
"""

from __future__ import annotations

import random
import threading

from msgspec import Struct, field

from bookkeeper.client import BatchWriter, Client
from bookkeeper.clock import Clock
from shell.demo.load import write
from shell.demo.workload import Operation

POLL_MS = 20
PAUSE_MS = 100
ARRIVAL_LIMIT_S = 60.0
ROW_STARTS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class LagProbe(Struct):
    """A sender of probe rows; a thread repeats :meth:`send_one`."""

    writer: BatchWriter
    target: Client
    table: str
    rng: random.Random
    clock: Clock
    samples_ms: list[float] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def send_one(self, limit_s: float = ARRIVAL_LIMIT_S) -> None:
        """Write a row here, and return when a scan there returns it, or without a sample after ``limit_s``."""
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
                return  # the comparison at the end finds a lost row
            self.clock.wait(never, POLL_MS)
        self.samples_ms.append((self.clock.boot_ns() - acknowledged_ns) / 1e6)
