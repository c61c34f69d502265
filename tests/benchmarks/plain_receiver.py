"""The reference of a transfer between hosts: a file goes over loopback TCP to another process, which writes it and
syncs it once at its end.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Copied:
    """The cost of a copy: CPU of both processes, in user and system mode, and the time from the first byte to the sync
    of the last one.
    """

    cpu_seconds: float
    seconds: float


def copy_plain(source: Path, target: Path) -> Copied:
    """Copy a file."""
    command = [sys.executable, "-m", "tests.benchmarks.plain_receiver", str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection, source.open("rb", buffering=0) as file:
            began, began_cpu = time.perf_counter(), _cpu_seconds()
            while content := file.read(WINDOW_BYTES):
                connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            used = _cpu_seconds() - began_cpu
            receiver_cpu = float(receiver.stdout.readline())
            return Copied(used + receiver_cpu, time.perf_counter() - began)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _receive(target: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        connection, _ = listener.accept()
    began, window = _cpu_seconds(), memoryview(bytearray(WINDOW_BYTES))
    with connection, Path(target).open("wb", buffering=0) as file:
        while count := connection.recv_into(window, WINDOW_BYTES, socket.MSG_WAITALL):
            file.write(window[:count])
        os.fsync(file.fileno())
    sys.stdout.write(f"{_cpu_seconds() - began}\n")


if __name__ == "__main__":
    _receive(*sys.argv[1:])
