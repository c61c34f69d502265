"""Two real clusters for a benchmark: west replicates one table to east; both are warm, and gone after the block."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import UnavailableError
from tests.support.cluster import Cluster

TABLE = "bench"
FAMILY = b"f"
QUALIFIER = b"q"
WARM_UP_ROWS = 20
LIMIT_MS = 180_000


@dataclass(frozen=True, slots=True)
class Pair:
    """Clients of both sides, and the clock that waits and measures."""

    west: Client
    east: Client
    clock: Clock
    west_side: Cluster
    east_side: Cluster

    @property
    def west_directory(self) -> str:
        """The directory by which another process finds west."""
        return str(self.west_side.directory)

    def wait_for_row(self, row: bytes, poll_ms: float) -> None:
        """Return when ``row`` is readable at east; raises UnavailableError after :data:`LIMIT_MS`."""
        never, deadline_ns = threading.Event(), self.clock.boot_ns() + LIMIT_MS * 1_000_000
        while not any(batch.num_rows for batch in self.east.scan(TABLE, row, row + b"\x00")):
            if self.clock.boot_ns() > deadline_ns:
                raise UnavailableError(
                    f"row {row!r} did not reach east in {LIMIT_MS} ms; see the logs of both clusters"
                )
            self.clock.wait(never, poll_ms)


@contextmanager
def replicated_pair(tservers: int = 1, overrides: Mapping[str, object] | None = None) -> Iterator[Pair]:
    """Default settings on both sides, but for ``overrides``; ``tservers`` a side. Returns when rows have travelled."""
    with ExitStack() as cleanup:
        base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-bench-")))
        sides = [Cluster(base / name, name, tservers, overrides=overrides) for name in ("west", "east")]
        for side in sides:
            cleanup.enter_context(side)
        clients = [cleanup.enter_context(Client.connect(side.directory)) for side in sides]
        for client in clients:
            client.tables.create(TABLE)
        clients[0].replication.define_cluster("east", sides[1].quorum)
        clients[0].replication.enable(TABLE, "east")
        pair = Pair(clients[0], clients[1], SystemClock(), *sides)
        for number in range(WARM_UP_ROWS):
            row = b"warm%06d" % number
            write_row(pair.west, row)
            pair.wait_for_row(row, poll_ms=5)
        yield pair


def write_row(client: Client, row: bytes, value: bytes = b"v" * 100) -> None:
    """One mutation, acknowledged at ``sync``."""
    with client.writer(TABLE) as writer:
        writer.add(Mutation(row).put(FAMILY, QUALIFIER, value))
