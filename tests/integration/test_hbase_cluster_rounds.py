"""Seeded rounds of faults on the way of writes into an HBase cluster: none arrives later than R4 says.

A round is a fault of the gateway, of a link or of a region server, for some seconds. Meanwhile writers write a row
each, give up after a moment and end. ``BOOKKEEPER_LATE_ROUNDS=100`` makes a longer run, ``BOOKKEEPER_LATE_SEED``
repeats one.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import happybase
import pytest
from happybase.pool import TException

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.metadata.flight import books_flight_ms, gateway_silence_ms
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase.gateway import Gateway
from bookkeeper.standalone.hbase.gateway_watch import GatewayWatch
from tests.support.hbase_cluster import SERVERS, SESSION_MS, HBaseCluster
from tests.support.namespaces import Namespace, why_no_namespaces

pytestmark = [pytest.mark.integration, pytest.mark.hbase, pytest.mark.long, pytest.mark.timeout(3_600)]

ROUNDS = int(os.environ.get("BOOKKEEPER_LATE_ROUNDS", "4"))
SEED = int(os.environ.get("BOOKKEEPER_LATE_SEED", "20261"))
TABLE, COLUMN = "rounds_metadata", b"fate:q"
PLACES = (b"late", b"~fate_late", b"~late", b"~recv_late", b"~repl_late", b"~zlate")
"""Where rows begin that nobody else writes: one in each region."""
WRITERS = 4
CALL_MS = 1_000
LOOK_MS = 300
LOOK_S = 10.0
"""A look at the table after a fault may take so long."""
CLOCK, NEVER = SystemClock(), threading.Event()


def now() -> float:
    return CLOCK.boot_ns() / 1e9


class Writes:
    """Rows of writers that have ended; ``seen`` is when the last look at the table began that was without the row."""

    def __init__(self, hbase: HBaseCluster, settings: Settings) -> None:
        self._hbase, self._port = hbase, settings.standalone.gateway_port
        self._numbers, self._stop = itertools.count(), threading.Event()
        self.given_up: dict[bytes, float] = {}
        self.seen: dict[bytes, float] = {}
        self.acknowledged = 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Write and look inside the block."""
        with ThreadPoolExecutor(WRITERS + 1) as pool:
            threads = [pool.submit(self._write) for _ in range(WRITERS)] + [pool.submit(self._look)]
            try:
                yield
            finally:
                self._stop.set()
            for thread in threads:
                thread.result()

    def _write(self) -> None:
        while not CLOCK.wait(self._stop, LOOK_MS):
            number = next(self._numbers)
            row = PLACES[number % len(PLACES)] + b"%06d" % number
            try:
                with closing(happybase.Connection("127.0.0.1", self._port, timeout=CALL_MS)) as connection:
                    connection.table(TABLE).put(row, {COLUMN: b"v"})
                self.acknowledged += 1
            except (TException, OSError):
                self.given_up[row] = now()

    def _look(self) -> None:
        before = now()
        while not CLOCK.wait(self._stop, LOOK_MS):
            began = now()
            for row in self._hbase.rows(TABLE, "fate"):
                self.seen.setdefault(row, before)
            before = began

    def late(self) -> dict[bytes, float]:
        """Of rows whose writer gave up, and that came: how long after its end each was not there yet."""
        return {row: self.seen[row] - ended for row, ended in self.given_up.items() if row in self.seen}


def test_r4_no_write_arrives_later_than_r4_says(
    hbase_cluster: HBaseCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    network, rng = hbase_cluster.network, random.Random(SEED)
    if not isinstance(network, Namespace):
        pytest.skip(why_no_namespaces() or "the servers share the network of the test")
    directory, url = tmp_path_factory.mktemp("made") / "rounds", hbase_cluster.url("rounds")
    overrides = {"metadata.region_session_ms": SESSION_MS}
    settings = init_cluster(directory, "rounds", metadata_url=url, overrides=overrides)
    # Each writer ended when it gave up, so its own time does not count.
    limit_s = (books_flight_ms(settings) - 2 * gateway_silence_ms(settings)) / 1e3
    silence_ms = gateway_silence_ms(settings)
    watch, stop = GatewayWatch(Gateway.of_host(settings), silence_ms, lambda _: None, CLOCK), threading.Event()
    watching = threading.Thread(target=watch.run, args=(stop,))
    watching.start()
    writes = Writes(hbase_cluster, settings)
    try:
        assert watch.has_answered.wait(60)
        with writes.going_on():
            for _ in range(ROUNDS):
                fault(rng, hbase_cluster, network, watch)
                CLOCK.wait(NEVER, rng.uniform(0, 5_000))
            CLOCK.wait(NEVER, (limit_s + LOOK_S) * 1_000)
    finally:
        stop.set()
        watching.join()
    late = writes.late()
    print(
        f"{ROUNDS} rounds: {writes.acknowledged} writes acknowledged, {len(writes.given_up)} given up, of which "
        f"{len(late)} arrived, the last one {max(late.values(), default=0):.1f} s after its writer's end; "
        f"R4 allows {limit_s:.0f} s"
    )
    assert writes.given_up, "no fault was noticed"
    assert max(late.values(), default=0) < limit_s, f"seed {SEED}: a write arrived too late"


def fault(rng: random.Random, hbase: HBaseCluster, network: Namespace, watch: GatewayWatch) -> None:
    """One round."""
    kind, server = rng.choice(["gateway", "link", "server", "server and link"]), rng.choice(SERVERS)
    for_ms = rng.choice([2_000, 8_000, 15_000, 30_000]) * rng.uniform(0.5, 1.0)
    if kind == "gateway":
        pid = watch.gateway.pid
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            CLOCK.wait(NEVER, for_ms)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return
    if "link" in kind:
        network.cut(hbase.ports[server])
    if "server" in kind:
        hbase.stop(server)
    CLOCK.wait(NEVER, for_ms)
    if "link" in kind:
        network.join(hbase.ports[server])
    if "server" in kind:
        CLOCK.wait(NEVER, rng.uniform(0, 5_000))
        hbase.resume(server)
        if for_ms > SESSION_MS / 3:
            CLOCK.wait(NEVER, 3_000)
            hbase.start_again(server)  # HBase may have ended it
