"""One machine uses a cluster's directory: its stores are files with kernel locks, which other machines do not see.

A network file system is refused by its type. For the others a supervisor writes a record beside the lock each second:
the boot of its machine and a number that changes. At a start, a record of another boot is watched for three seconds:
while it changes, another machine runs the cluster. Two that start at once find each other's record with the next
renewal, and say so.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.lease_file import read_boot_id
from bookkeeper.errors import RefusedError, unavailable

FILE = Path("run") / "machine.json"
RENEW_MS = 1_000
WATCH_MS = 3 * RENEW_MS
MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs")
)
"""Types of file systems that several machines mount."""

OTHER_STORES = (
    "hosts on several machines need the coordination store in ZooKeeper and the books in HBase (docs/machines.md)"
)


class Record(Struct, frozen=True):
    """The machine that uses a directory, by its boot, its name for people, and a number that changes."""

    boot_id: str
    machine: str
    number: int


class OneMachine(Struct):
    """The record in the directory of a cluster. Used by one thread at a time."""

    directory: Path
    clock: Clock
    report: Callable[[str], None]
    boot_id: str = ""
    _said: str = ""

    def begin(self, stop: threading.Event) -> None:
        """Write the record of this machine. Raises RefusedError while another machine renews its record,
        UnavailableError.
        """
        self.boot_id = self.boot_id or read_boot_id()
        first = self._read()
        if first is not None and first.boot_id != self.boot_id:
            self.clock.wait(stop, WATCH_MS)
            if self._read() != first:
                raise RefusedError(
                    f"machine {first.machine} runs the cluster in {self.directory}, and its locks are not seen here: "
                    f"stop it there; {OTHER_STORES}"
                )
        try:
            (self.directory / FILE).parent.mkdir(exist_ok=True)
            self._write()
        except OSError as error:
            raise unavailable(f"{self.directory / FILE} can't be written", error) from error

    def run(self, stop: threading.Event) -> None:
        """Renew the record until ``stop`` is set; then it is removed."""
        while not self.clock.wait(stop, RENEW_MS):
            self.renew()
        found = self._read()
        if found is not None and found.boot_id == self.boot_id:
            (self.directory / FILE).unlink(missing_ok=True)

    def renew(self) -> None:
        """Renew the record. Another machine's record, and a failure, are reported once."""
        try:
            found = self._read()
            if found is not None and found.boot_id != self.boot_id:
                self._say(
                    f"machine {found.machine} runs the cluster in {self.directory}, too, and neither sees the locks of "
                    f"the other: stop one of them now; {OTHER_STORES}"
                )
            self._write()
        except OSError as error:
            self._say(f"{self.directory / FILE} can't be written: {error.strerror}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self.report(text)
        self._said = text

    def _read(self) -> Record | None:
        """The record; None without one, and for one that was cut by a crash of the machine."""
        try:
            found = json.loads((self.directory / FILE).read_text(encoding="utf-8"))
            return Record(str(found["boot"]), str(found["machine"]), int(found["number"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _write(self) -> None:
        path = self.directory / FILE
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        record = {"boot": self.boot_id, "machine": socket.gethostname(), "number": self.clock.boot_ns()}
        unfinished.write_text(json.dumps(record) + "\n", encoding="utf-8")
        unfinished.replace(path)


def refuse_network(settings: Settings, mounts: Path = MOUNTS) -> None:
    """Raise RefusedError when an embedded store lies on a file system that several machines may mount."""
    if settings.coordination_dir is None:
        return
    for directory in (settings.cluster_directory, settings.coordination_dir):
        kind = file_system_of(directory, mounts)
        if kind in NETWORK:
            raise RefusedError(
                f"{directory} lies on a network file system ({kind}), whose locks do not keep a second machine out; "
                f"choose a directory on a local disk; {OTHER_STORES}"
            )


def file_system_of(directory: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system of a directory, as the kernel names it; "" when it does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise unavailable(f"{mounts} can't be read", error) from error
    real, best, kind = Path(os.path.realpath(directory)), -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(_unescaped(before.split()[4]))
        if (real == point or point in real.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    return kind


def _unescaped(text: str) -> str:
    r"""A path of the list of mounts, where a space is ``\040``."""
    for octal, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(octal, character)
    return text
