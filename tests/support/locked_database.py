"""A process that keeps an SQLite database locked, as a forgotten prompt of an operator does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another(path: Path, *statements: str) -> Iterator[int]:
    """Another process has executed these statements on a database until the end of the block; its number."""
    command = [sys.executable, "-c", LOCK, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield holder.pid
        holder.stdin.close()
