"""Calls between two processes, and a client's mutations on their way to Arrow.

Each figure stands beside the same bytes over a bare socket, or the same records made by plain pyarrow, in the same run,
so that a busy machine slows both.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bookkeeper.client.mutation import Changes, Mutation
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.rpc.address import parse_address
from tests.benchmarks.figure import Figure
from tests.support.rpc_peer import Echo, pooled, serving

PINGS = 2_000
PAYLOADS = 300
PAYLOAD_BYTES = 1 << 20
MUTATIONS = 200_000
BATCH_BYTES = 2 << 20
ROUNDS = 3
_HEADER = struct.Struct(">i")


def _serve() -> None:
    """The other process: a server, and a bare socket that answers each sized message with four bytes."""
    echo = Echo()
    echo.on_run = lambda _: b"done"
    with serving(echo) as server, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_plainly, args=(listener,), daemon=True).start()
        sys.stdout.write(f"{server.address} 127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()


def _answer_plainly(listener: socket.socket) -> None:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(PAYLOAD_BYTES))
    while header := peer.recv(4, socket.MSG_WAITALL):
        (size,) = _HEADER.unpack(header)
        at = 0
        while at < size:
            at += peer.recv_into(buffer[at:size])
        peer.sendall(header)


@contextmanager
def _other_process() -> Iterator[tuple[str, str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.rpc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        server, plain = process.stdout.readline().split()
        yield server, plain
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def _median_ms(call: Callable[[], object]) -> float:
    samples = []
    for _ in range(PINGS):
        started = time.perf_counter()
        call()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples) * 1000


def _mb_per_s(send: Callable[[bytes], object]) -> float:
    data = os.urandom(PAYLOAD_BYTES)
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(PAYLOADS):
            send(data)
        rates.append(PAYLOADS * PAYLOAD_BYTES / (time.perf_counter() - started) / 1e6)
    return max(rates)


def _calls() -> list[Figure]:
    with _other_process() as (server, plain), pooled() as pool, socket.socket() as bare:
        target = parse_address(plain)
        bare.connect((target.host, target.port))
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send_plainly(data: bytes) -> None:
            bare.sendmsg([_HEADER.pack(len(data)), data[: 1 << 16]])
            bare.sendall(data[1 << 16 :])
            bare.recv(4, socket.MSG_WAITALL)

        replay = pool.replay(server)
        replay.warm()
        bare_ms, ping_ms = _median_ms(lambda: send_plainly(b"")), _median_ms(replay.warm)
        bare_rate, rate = _mb_per_s(send_plainly), _mb_per_s(replay.run)
    return [
        Figure(
            name="a call that does nothing, median",
            value=ping_ms,
            unit="ms",
            reference=bare_ms,
            reference_name="bare socket",
            reference_unit="ms",
            ratio=ping_ms / bare_ms,
            target=0.3,
            lower_is_better=True,
        ),
        Figure(
            name="1 MiB in one call after the other",
            value=rate,
            unit="MB/s",
            reference=bare_rate,
            reference_name="bare socket",
            reference_unit="MB/s",
            ratio=rate / bare_rate,
            target=500,
        ),
    ]


def _encode_mutations() -> float:
    value, changes = b"v" * 50, Changes()
    started = time.process_time()
    for number in range(MUTATIONS):
        if changes.add(Mutation(b"row%08d" % number).put(b"family", b"qualifier", value)) >= BATCH_BYTES:
            changes.encode()
            changes = Changes()
    return MUTATIONS / (time.process_time() - started) / 1e6


def _encode_plainly() -> float:
    started = time.process_time()
    records = [
        {"row": b"row%08d" % number, "family": b"family", "qualifier": b"qualifier", "visibility": b"",
         "timestamp": None, "delete": False, "value": b"v" * 50}
        for number in range(MUTATIONS // 10)
    ]  # fmt: skip
    pa.RecordBatch.from_pylist(records, schema=MUTATION_SCHEMA)
    return MUTATIONS / 10 / (time.process_time() - started) / 1e6


def run() -> list[Figure]:
    """All figures."""
    made = max(_encode_mutations() for _ in range(ROUNDS))
    plain = max(_encode_plainly() for _ in range(ROUNDS))
    return [
        *_calls(),
        Figure(
            name="mutations made and encoded, time of one core",
            value=made,
            unit="M/s",
            reference=plain,
            reference_name="RecordBatch.from_pylist",
            reference_unit="M/s",
            ratio=made / plain,
            target=0.9,
        ),
    ]


if __name__ == "__main__":
    _serve()
