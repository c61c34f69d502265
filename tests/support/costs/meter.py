"""The meter of a process and of everything that it starts.

Where control groups of version 2 can be made, the process moves into one of its own, and the kernel counts the CPU of
all its descendants, orphans included. Elsewhere the CPU is that of this process, of children that were waited for, and
of descendants that live: an orphan that was killed is missing.
"""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

POLL_S = 0.05
LOOKS = 20
"""A process is looked at so often: ``env`` and the shell become the JVM that they start."""
JVM = "java"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was used and started up to now."""

    cpu_s: float
    processes: int
    jvms: int

    def __sub__(self, other: Reading) -> Reading:
        return Reading(self.cpu_s - other.cpu_s, self.processes - other.processes, self.jvms - other.jvms)

    def __add__(self, other: Reading) -> Reading:
        return Reading(self.cpu_s + other.cpu_s, self.processes + other.processes, self.jvms + other.jvms)


NOTHING = Reading(0.0, 0, 0)


class Meter:
    """Counts from its construction on; ``close`` leaves the control group."""

    def __init__(self) -> None:
        self._group = _own_group()
        self._own = os.getpid()
        self._looks: dict[int, int] = {self._own: LOOKS}
        self._started = self._jvms = 0
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="costs", daemon=True)
        self._watcher.start()

    @property
    def is_exact(self) -> bool:
        """Whether the kernel counts the CPU of all descendants."""
        return self._group is not None

    def read(self) -> Reading:
        """What was used and started since the construction."""
        self._look()
        return Reading(self._cpu_s(), self._started, self._jvms)

    def close(self) -> None:
        """Stop counting."""
        self._ended.set()
        self._watcher.join()
        if self._group is not None:
            (self._group.parent / "cgroup.procs").write_text(str(self._own))
            with suppress(OSError):  # a process that outlived its test keeps the group
                self._group.rmdir()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            alive = self._alive()
            for pid in alive:
                looks = self._looks.get(pid, 0)
                self._started += looks == 0
                if looks < LOOKS and (is_jvm := _name(pid) == JVM):
                    self._jvms += is_jvm
                    looks = LOOKS
                self._looks[pid] = looks + 1
            for gone in self._looks.keys() - alive:
                del self._looks[gone]

    def _alive(self) -> set[int]:
        if self._group is not None:
            return {int(pid) for pid in (self._group / "cgroup.procs").read_text().split()}
        return {self._own} | {child.pid for child in psutil.Process(self._own).children(recursive=True)}

    def _cpu_s(self) -> float:
        if self._group is not None:
            return int((self._group / "cpu.stat").read_text().split()[1]) / 1e6
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        living = 0.0
        for child in psutil.Process(self._own).children(recursive=True):
            with suppress(psutil.Error):
                living += sum(child.cpu_times()[:4])
        return sum(use.ru_utime + use.ru_stime for use in used) + living


def _own_group() -> Path | None:
    """A new control group with this process in it; None where none can be made."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, root, kind, *_ = line.split()
        if kind != "cgroup2":
            continue
        inside = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        group = Path(root) / inside.removeprefix("0::").lstrip("/") / f"costs-of-tests-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            return None
        return group
    return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
