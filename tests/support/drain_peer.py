"""A receiving process for measurements: it writes each message to disk and acknowledges it, and does nothing more.

``python -m tests.support.drain_peer DIR`` prints one line, JSON ``{"quorum": ..., "plain": ...}``, and ends with its
standard input. ``quorum``: a master and a tserver of the contract; each block is checked and written, one sync a
message. ``plain``: a socket that takes chunks (8-byte length, then bytes), one sync and one byte back for each.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import sys
import threading
from pathlib import Path

from bookkeeper.config.sections import RpcSettings
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, ReplicateRequest, ReplicateResult
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.storage.wal.blocks.block import decode_batch
from tests.support.thrift_peer import Contract
from tests.support.wal_files import EAST

CHUNK = struct.Struct("!Q")


class _Sink:
    """One file per stream or connection, synced after each chunk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()

    def open(self) -> int:
        path = self._directory / f"sink-{next(self._numbers)}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)


def write_synced(fd: int, parts: list[bytes | memoryview]) -> None:
    """Write all and sync."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]
    os.fdatasync(fd)


class _TServer(Contract):
    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._files: dict[str, int] = {}
        self._tokens = itertools.count()

    def open_stream(self, stream: StreamKey) -> str:  # noqa: ARG002 - every stream is welcome
        token = f"t{next(self._tokens)}"
        self._files[token] = self._sink.open()
        return token

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        records = sum(decode_batch(block.records).num_rows for block in request.blocks)
        write_synced(self._files[request.stream_session], [block.records for block in request.blocks])
        return ReplicateResult(request.to_offset, records, 0)


class _Master(Contract):
    def __init__(self, tserver: str) -> None:
        self.address = ""
        self._tserver = tserver

    def leader(self) -> str:
        return self.address

    def pick_tserver(self, table_id: str) -> str:  # noqa: ARG002 - there is one
        return self._tserver


def serve_plain(listener: socket.socket, sink: _Sink) -> None:
    """Take chunks from one connection after another."""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            fd = sink.open()
            while head := stream.read(CHUNK.size):
                chunk = memoryview(bytearray(CHUNK.unpack(head)[0]))
                filled = 0
                while filled < len(chunk):
                    filled += stream.readinto(chunk[filled:])
                write_synced(fd, [chunk])
                connection.sendall(b"k")
            os.close(fd)


def main(directory: str) -> None:
    """Serve until standard input closes."""
    settings, sink = RpcSettings(), _Sink(Path(directory))
    tserver_hello = Hello(PROTOCOL_VERSION, EAST, "sink", "tserver")
    tserver = RpcServer(ServedService("TServer", _TServer(sink)), tserver_hello, settings)
    handler = _Master(tserver.address)
    master = RpcServer(ServedService("Master", handler), Hello(PROTOCOL_VERSION, EAST, "sink", "master"), settings)
    handler.address = master.address
    tserver.start()
    master.start()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_plain, args=(listener, sink), daemon=True).start()
    print(json.dumps({"quorum": master.address, "plain": listener.getsockname()[1]}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
