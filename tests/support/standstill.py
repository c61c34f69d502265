"""Processes that stand still at a moment in which they hold no lock of a store in SQLite.

A stopped process with such a lock stops its cluster, until its supervisor kills it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import psutil

from bookkeeper.config.sections import Settings
from tests.support.tservers import wait_until

LOCKED_S = 2.0
"""A running process has a lock of a store for less."""


def stand_still(pid: int, settings: Settings) -> None:
    """Stop a process while it has no lock of its cluster's embedded stores. The caller resumes it. Raises
    psutil.NoSuchProcess for one that has ended.
    """
    victim = psutil.Process(pid)
    paths = (settings.directory / "metadata.db", settings.directory / "coordination" / "coordination.db")
    stores = [path for path in paths if path.exists()]  # books in HBase have no file

    def is_without_locks() -> bool:
        victim.resume()
        victim.suspend()
        wait_until(lambda: _stands_still(victim), "a process whose threads have stopped")
        return all(map(_takes_writes, stores))

    wait_until(is_without_locks, "a process that stands still without a lock")


def _stands_still(victim: psutil.Process) -> bool:
    """Whether each thread of a process has stopped: one that is in the kernel yet may take a lock."""
    if victim.status() == psutil.STATUS_ZOMBIE:
        raise psutil.NoSuchProcess(victim.pid)
    return {thread_state(victim.pid, thread.id) for thread in victim.threads()} <= {"T", None}


def crash_without(pid: int, directory: Path, elsewhere: Path) -> None:
    """Kill a process that does nothing any more from the moment in which its directory is gone. A supervisor that finds
    the directory gone does not start the process again.
    """
    os.kill(pid, signal.SIGSTOP)
    directory.rename(elsewhere)
    with suppress(ProcessLookupError):  # the supervisor was faster
        os.kill(pid, signal.SIGKILL)


def thread_state(pid: int, thread: int) -> str | None:
    """The state of a thread as Linux shows it; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()[0]


def _takes_writes(store: Path) -> bool:
    with closing(sqlite3.connect(store, timeout=LOCKED_S)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
        except sqlite3.OperationalError:
            return False
    return True
