"""Processes that stand still at a moment in which they hold no lock of a store in SQLite.

A stopped process with such a lock stops its cluster, until its supervisor kills it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil

from bookkeeper.config import Settings
from tests.support.tservers import wait_until

LOCKED_S = 2.0
"""A running process has a lock of a store for less."""


def stand_still(pid: int, settings: Settings) -> None:
    """Stop a process while it has no lock of its cluster's embedded stores. The caller resumes it."""
    victim = psutil.Process(pid)
    stores = (settings.directory / "metadata.db", settings.coordination_dir / "coordination.db")
    _stop(victim)
    while not all(map(_takes_writes, stores)):
        victim.resume()
        _stop(victim)


def _stop(victim: psutil.Process) -> None:
    victim.suspend()
    wait_until(lambda: _stands_still(victim.pid), "a process whose threads have stopped")


def _stands_still(pid: int) -> bool:
    """Whether each thread of a process has stopped: one that is in the kernel yet may take a lock."""
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def _takes_writes(store: Path) -> bool:
    with closing(sqlite3.connect(store, timeout=LOCKED_S)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
        except sqlite3.OperationalError:
            return False
    return True
