"""The lease files of a host's processes whose sessions are in a store elsewhere, such as ZooKeeper.

Each process has a locked file beside its session, with the lease that it counts on. So the host's supervisor ends an
overdue process, and finds one that is gone, without the store. A file has the session's id, the pid and the inode of
its directory in its name: in a copied directory it stands for no session. It has the token of the process, without
which the store ends no session: any program could write a file that names a session. A file is there before its session
is, and goes after it, so that no session of a process that is gone waits for the end of its lease. Rule: R15.
"""

from __future__ import annotations

import os
import re
import secrets
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.lease import TOKEN_BYTES, TOKEN_VARIABLE, LeaseState, is_token
from bookkeeper.coordination.lease_file import LeaseFile, SessionProcess, read_boot_id, read_lease, read_record
from bookkeeper.errors import unavailable

_UNFINISHED = "."
_NAME = re.compile(r"[^.]+\.[0-9]+\.[0-9]+")
"""Of a lease file: the session, the pid, the inode of the directory. Another program made every other file there."""


def new_token() -> str:
    """A token for a process."""
    return secrets.token_hex(TOKEN_BYTES)


@cache
def own_token() -> str:
    """The token of this process: that of its supervisor, or its own. No program that it starts afterwards gets it."""
    given = os.environ.pop(TOKEN_VARIABLE, "")
    return given if is_token(given) else new_token()


class OwnLease(Struct):
    """The lease file of a session of this process. Used by one thread at a time."""

    path: Path
    file: LeaseFile

    def remove(self) -> None:
        """Remove the file of a session that is over."""
        self.path.unlink(missing_ok=True)
        self.file.close()


class HostLeases(Struct):
    """The lease files in ``directory``. Several processes of the host use it; ``token`` is that of this one."""

    directory: Path
    lease_ms: int
    clock: Clock
    token: str = field(default_factory=own_token)

    def make(self, session_id: str, before_ns: int) -> OwnLease:
        """The lease of a session that this process is about to open. Raises UnavailableError."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.directory / f"{session_id}.{os.getpid()}.{self.directory.stat().st_ino}"
            unfinished = path.with_name(_UNFINISHED + path.name)
            file = LeaseFile(unfinished, read_boot_id(), self.lease_ms, self.token)
            file.write(before_ns)
            file.rename(path)
        except OSError as error:
            raise unavailable(f"no lease can be written in {self.directory}", error) from error
        return OwnLease(path, file)

    def processes(self) -> list[SessionProcess]:
        """The processes that hold a lease file. Raises UnavailableError."""
        found, boot_id = list[SessionProcess](), read_boot_id()
        for path, state in self._read():
            session_id, pid, _ = path.name.split(".")
            if state.damage:
                latest_ns = self.clock.boot_ns() + self.lease_ms * 1_000_000
                found.append(SessionProcess(session_id, int(pid), path, latest_ns, state.damage))
            elif state.is_locked and state.record.boot_id == boot_id:
                found.append(SessionProcess(session_id, int(pid), path, state.record.expires_ns))
        return found

    def abandoned(self) -> list[Path]:
        """The files that no process holds. Raises UnavailableError."""
        return [path for path, state in self._read() if not state.is_locked]

    def session_of(self, abandoned: Path) -> tuple[str, str] | None:
        """The session of a process that is gone and the token of that process, by its file; None when the file was
        copied here, or is of another boot: the process may live on another machine then.
        """
        session_id, _, inode = abandoned.name.split(".")
        record = read_record(abandoned)
        if record is None or record.boot_id != read_boot_id() or inode != str(self.directory.stat().st_ino):
            return None
        return session_id, record.token

    def clear(self) -> None:
        """Remove files that were never finished; no process of the host may run. Raises UnavailableError."""
        try:
            for path in self.directory.glob(f"{_UNFINISHED}*"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise unavailable(f"{self.directory} can't be cleared", error) from error

    def _read(self) -> list[tuple[Path, LeaseState]]:
        try:
            paths = sorted(path for path in self.directory.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unavailable(f"{self.directory} can't be read", error) from error
        found = list[tuple[Path, LeaseState]]()
        for path in paths:
            try:
                found.append((path, read_lease(path)))
            except FileNotFoundError:
                continue
        return found
