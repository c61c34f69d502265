"""Ends processes whose session is over but which still exist: stopped, or stuck beyond their lease.

Arrives: the processes behind the sessions of one machine. Leaves: -9 for those whose lease and margin have passed.
Such a process can do nothing that counts any more, but it may hold up others: one that was stopped inside a write
transaction of an SQLite file keeps every other writer waiting, and a write to the books that it has begun would land
whenever it is resumed. Ended here, it lets go of both, and no write is in flight for longer than a lease and a margin
(rule R4 builds on that). So is one whose lease can't be read for as long as a lease: it did not renew it, which would
have mended the file. Survives a crash: nothing; what is seen is read anew. Rule: R15.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.coordination.embedded import SessionProcess

LOG = logging.getLogger(__name__)


def overdue(seen: Iterable[SessionProcess], now_ns: int, margin_ns: int) -> list[SessionProcess]:
    """Those whose lease and margin have passed (boot clock, ns): others count them as dead already."""
    return [process for process in seen if now_ns > process.expires_ns + margin_ns]


@dataclass(slots=True)
class Fence:
    """One look after another; used by one thread. ``report`` gets a line for each process that was ended, and for each
    session's file that was found damaged.
    """

    look: Callable[[], list[SessionProcess]]
    margin_ns: int
    report: Callable[[str], None]
    _known: dict[str, SessionProcess] = field(default_factory=dict)

    def run_once(self, now_ns: int) -> None:
        """Look, and end what is overdue. A session that was forgotten since the last look counts on, as last seen."""
        for process in self.look():
            self._know(process)
        self._known = {key: process for key, process in self._known.items() if holds_session(process)}
        for process in overdue(self._known.values(), now_ns, self.margin_ns):
            if end(process):
                self.report(f"{process.session_id} (pid {process.pid}) still ran after its lease was over; killed it")

    def _know(self, process: SessionProcess) -> None:
        """A lease that can't be read ends when it could have ended at the latest as that was first noticed."""
        before = self._known.get(process.session_id)
        if process.damage and before is not None and before.damage:
            return
        self._known[process.session_id] = process
        if process.damage:
            text = "its process writes it anew with its next renewal, or is ended"
            self.report(f"the session file {process.damage} (pid {process.pid}); {text}")


def holds_session(process: SessionProcess) -> bool:
    """Whether a process of that id has the session's file open, be it removed since: it has neither closed its session
    nor ended.
    """
    names = {process.path, process.path.with_name(f"{process.path.name} (deleted)")}
    try:
        return any(descriptor.readlink() in names for descriptor in Path(f"/proc/{process.pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # it ends, or closes files, while we look
        return False


def end(process: SessionProcess) -> bool:
    """Kill it, and nothing else that has got its id since; False when it is gone or has closed its session."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not holds_session(process):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
