"""The lock of a cluster's stores: all supervisors of the cluster share it, and one alone may repair the stores.

Several supervisors may run the hosts of one cluster on one machine. A repair replaces the files of the books and of the
coordination store (``durable_stores``), which no process may use meanwhile. So a supervisor repairs them only if it is
the first; otherwise the stores are in use, and the first supervisor has checked them.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from msgspec import Struct

from bookkeeper.errors import UnavailableError, unavailable

FILE = "stores.lock"


class StoresLock(Struct):
    """The lock of the cluster in ``cluster_directory``; the end of the process frees it."""

    cluster_directory: Path
    _file: IO[str] | None = None

    def enter(self) -> bool:
        """Take the lock, alone if no other process has it. Returns whether it is this process alone; then
        :meth:`share` must follow. Raises UnavailableError while another process repairs the stores, NoSpaceError.
        """
        file = self._opened()
        if _locked(file, fcntl.LOCK_EX):
            return True
        if _locked(file, fcntl.LOCK_SH):
            return False
        raise UnavailableError(
            f"another process repairs the stores of {self.cluster_directory}; wait until it has ended"
        )

    def share(self) -> None:
        """Let other processes use the stores, too. Waits for another process that repairs them meanwhile."""
        fcntl.flock(self._opened(), fcntl.LOCK_SH)

    def release(self) -> None:
        """Release the lock; idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> IO[str]:
        if self._file is None:
            run = self.cluster_directory / "run"
            try:
                run.mkdir(exist_ok=True)
                self._file = (run / FILE).open("w")
            except OSError as error:
                raise unavailable(f"{run} can't be written", error) from error
        return self._file


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
