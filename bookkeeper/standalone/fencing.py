"""Kills processes that outlive their session: suspended processes, and those that hang beyond their lease.

Such a process acknowledges nothing any more, but it can block others. When it stopped inside a write transaction of an
SQLite file, all other writers wait for it, and a write to the books that it has started would arrive after it resumes.
:class:`Fence` kills it when its lease and a margin have passed. So a write is in flight for that time and one check
interval at most, which rule R4 needs. A process whose lease can't be read for a lease and a margin is killed, too,
because a renewal would have repaired the file. Rule: R15.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct, field

from bookkeeper.coordination.lease_file import SessionProcess

LOG = logging.getLogger(__name__)


def overdue(processes: Iterable[SessionProcess], now_ns: int, margin_ns: int) -> list[SessionProcess]:
    """The processes whose lease and margin have passed (boot clock, ns)."""
    return [process for process in processes if now_ns > process.expires_ns + margin_ns]


class Fence(Struct):
    """Repeated checks of the processes, by one thread. ``report`` gets a line for each killed process, and for each
    damaged session file.
    """

    read_processes: Callable[[], list[SessionProcess]]
    margin_ns: int
    report: Callable[[str], None]
    _processes: dict[str, SessionProcess] = field(default_factory=dict)

    def run_once(self, now_ns: int) -> None:
        """Read the processes, and kill the overdue ones. A process whose session was removed from the store since the
        last check keeps its last lease.
        """
        for process in self.read_processes():
            self._record(process)
        self._processes = {key: process for key, process in self._processes.items() if has_session(process)}
        for process in overdue(self._processes.values(), now_ns, self.margin_ns):
            if kill(process):
                self.report(f"{process.session_id} (pid {process.pid}) outlived its lease and was killed")

    def _record(self, process: SessionProcess) -> None:
        """Record the lease of a process. An unreadable lease ends one full lease after its damage was first found."""
        previous = self._processes.get(process.session_id)
        if process.damage and previous is not None and previous.damage:
            return
        self._processes[process.session_id] = process
        if process.damage:
            text = "a renewal by its process repairs the file; without one the process is killed"
            self.report(f"the session file {process.damage} (pid {process.pid}); {text}")


def has_session(process: SessionProcess) -> bool:
    """Whether a process with this pid has the session's file open, also a removed file: then it has neither closed its
    session nor ended.
    """
    names = {process.path, process.path.with_name(f"{process.path.name} (deleted)")}
    try:
        descriptors = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return False
    return any(_target(descriptor) in names for descriptor in descriptors)


def _target(descriptor: Path) -> Path | None:
    """The file of a descriptor; None when the process closed it meanwhile."""
    try:
        return descriptor.readlink()
    except (FileNotFoundError, ProcessLookupError):
        return None


def kill(process: SessionProcess) -> bool:
    """Kill the process, but no later process with the same pid. False when it is gone or has closed its session."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not has_session(process):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
