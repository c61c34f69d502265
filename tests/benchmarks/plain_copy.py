"""The reference of what drains: bytes copied over loopback TCP to another process, which syncs each chunk.

Arrives: a file, the port of that process (:mod:`tests.support.drain_peer`) and the bytes of a chunk. Leaves: nothing;
the caller measures.
"""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.drain_peer import CHUNK


def copy_plain(path: Path, port: int, chunk_bytes: int) -> None:
    """Return when the other side has written and synced all."""
    content = memoryview(path.read_bytes())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(content), chunk_bytes):
            chunk = content[at : at + chunk_bytes]
            connection.sendall(CHUNK.pack(len(chunk)))
            connection.sendall(chunk)
            assert connection.recv(1) == b"k"
