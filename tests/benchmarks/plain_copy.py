"""The reference of a drain: bytes copied over loopback TCP to another process, which syncs each chunk; the caller
measures.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.drain_peer import CHUNK


@dataclass(frozen=True, slots=True)
class Peer:
    """The address of :mod:`tests.support.drain_peer`."""

    quorum: str
    plain_port: int


@contextmanager
def drain_peer(directory: Path) -> Iterator[Peer]:
    """That process, until the block ends; it writes into ``directory``."""
    command = [sys.executable, "-m", "tests.support.drain_peer", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        said = json.loads(process.stdout.readline())
        yield Peer(said["quorum"], said["plain"])
        process.stdin.close()


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
