"""Signs of life of the JVM and of the local Python workers: a process that hangs is named long before its run ends.

A run may last as long as its slowest peer, so its time says nothing. But a JVM that works answers a trivial call, and a
worker that works touches its file beside its task, also while it waits for a peer. A file is compared with itself and
not with a clock, so a clock that jumps makes no worker dead.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bookkeeper.clock import Clock

LOG = logging.getLogger(__name__)

BEAT_MS = 2_000
HUNG_MS = 10_000
"""A process without a sign of life for so long counts as hung."""

PREFIX = "alive-"


@contextmanager
def beating(directory: Path, clock: Clock) -> Iterator[None]:
    """A file of this process in ``directory`` is touched while the block runs, and goes with it."""
    path, over = directory / f"{PREFIX}{os.getpid()}", threading.Event()
    thread = threading.Thread(target=_beat, args=(path, over, clock), name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _beat(path: Path, over: threading.Event, clock: Clock) -> None:
    try:
        path.touch()
        while not clock.wait(over, BEAT_MS):
            os.utime(path)
        path.unlink()
    except OSError as error:  # the replay process has removed the directory, or the disk is full
        LOG.info("this task leaves no sign of life: %s", error)


class SignsOfLife:
    """The watch over one JVM and the workers of this machine. One thread asks the JVM, any other one reads."""

    def __init__(self, directory: Path, jvm_pid: int, ask: Callable[[], object], clock: Clock) -> None:
        """``ask`` returns once the JVM has answered."""
        self._directory = directory
        self._jvm_pid = jvm_pid
        self._ask = ask
        self._clock = clock
        self._answered_ns = clock.boot_ns()
        self._beats: dict[str, tuple[int, int]] = {}
        """Of each file: its time, and when this watch saw it change last (boot clock)."""

    def ask_jvm(self, over: threading.Event) -> None:
        """Ask again and again until ``over``."""
        while not self._clock.wait(over, BEAT_MS):
            self._ask()
            self.note_answer()

    def note_answer(self) -> None:
        """The JVM has answered now."""
        self._answered_ns = self._clock.boot_ns()

    def problem(self) -> str:
        """Which process hangs, in words; empty = none. One thread."""
        if self._clock.boot_ns() - self._answered_ns > HUNG_MS * 1_000_000:
            return f"its JVM (process {self._jvm_pid}) hangs: it does not answer"
        hung = self._hung_workers()
        return f"its Python workers hang: processes {', '.join(map(str, hung))}" if hung else ""

    def _hung_workers(self) -> list[int]:
        now_ns, before = self._clock.boot_ns(), self._beats
        self._beats = {}
        for path in self._directory.glob(f"{PREFIX}*"):
            pid = int(path.name.removeprefix(PREFIX))
            try:
                if not Path(f"/proc/{pid}").exists():  # it was killed within a task
                    path.unlink()
                    continue
                touched = path.stat().st_mtime_ns
            except FileNotFoundError:  # its task has just ended
                continue
            known = before.get(path.name)
            self._beats[path.name] = known if known is not None and known[0] == touched else (touched, now_ns)
        hung = [name for name, (_, seen_ns) in self._beats.items() if now_ns - seen_ns > HUNG_MS * 1_000_000]
        return sorted(int(name.removeprefix(PREFIX)) for name in hung)
