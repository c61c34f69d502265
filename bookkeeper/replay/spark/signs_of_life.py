"""Signs of life of the JVM and of its Python processes: one that hangs is noticed long before its run ends.

A run may last as long as its slowest peer, so its time says nothing. But a JVM that works answers a trivial call, the
parent of the workers goes round its loop each second, and a task takes steps: it reads a block, sends a message, or
waits for a peer or a host, with a limit. Each Python process has a file that it touches while it gets on; a worker
without a task does so, too. A file is compared with itself and not with a clock, so a clock that jumps makes no process
dead; and only the time counts in which this watch looks, so neither does a machine that was asleep.

A Python process that hangs is ended: Spark starts another one, and its ranges go again. The peer recognises what it
has. One that can't be ended, because it waits for a disk, keeps only its own run from its end. A JVM that hangs is
named first and ended later, because the replay process ends with it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.replay.ranges import Range

LOG = logging.getLogger(__name__)

BEAT_MS = 2_000
HUNG_MS = 10_000
"""A process without a sign of life for so long counts as hung."""

JVM_ENDED_MS = 30_000
"""A JVM without an answer for so long is ended. It stands still while it collects garbage, and another one takes
seconds to start.
"""

ENDED_MS = 2_000
"""A process that was ended and is there after so long can't be ended."""

GAP_MS = 1_000
"""Most time between two looks that counts as time without a sign of life: the watch did not look meanwhile."""

WORDS_MS = 10_000
"""For so long the reason is known why a process was ended; its job fails at once."""

PREFIX = "alive-"

WorkAt = tuple[str, str]
"""A file, and the instance id of the peer to which a worker ships it."""

NO_WORK: WorkAt = ("", "")


class Work(Struct, frozen=True):
    """The present work of a process: it ships ``file`` to the peer ``cluster`` with the id ``instance``. Without a
    file it is a worker that waits for a task, or the ``parent`` of the workers.
    """

    file: str = ""
    cluster: str = ""
    instance: str = ""
    parent: bool = False

    def named(self, pid: int) -> str:
        """The process in words."""
        if self.parent:
            return f"process {pid}, the parent of the Python workers,"
        return f"process {pid}, which ships {self.file} to {self.cluster}," if self.file else f"Python worker {pid}"


class LifeFile:
    """The file of this process. It stays when the process ends; the watch removes it."""

    def __init__(self, directory: Path) -> None:
        pid = os.getpid()
        self._path = directory / f"{PREFIX}{pid}-{started_at(pid)}"
        self._is_told = False

    def write(self, work: Work) -> None:
        """A sign of life, with the work of this process."""
        self._try(lambda: self._path.write_bytes(msgspec.json.encode(work)))

    def touch(self) -> None:
        """A sign of life."""
        self._try(lambda: os.utime(self._path))

    def _try(self, change: Callable[[], object]) -> None:
        try:
            change()
        except OSError as error:  # the replay process has removed the directory, or the disk is full
            if not self._is_told:
                LOG.info("this process leaves no sign of life: %s", error)
            self._is_told = True


class TaskLife:
    """The steps of a task process, see :class:`bookkeeper.replay.stream.steps.Steps`. A thread beside the tasks touches
    the file, but within a task only when it has taken a step since, or waits for another process. The thread of the
    tasks calls all methods.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        """Begin to give signs."""
        self._file = LifeFile(directory)
        self._clock = clock
        self._steps = self._seen = 0
        self._waits_until_ns = 0
        self._in_task = False
        self._file.write(Work())
        threading.Thread(target=self._beat, name="alive", daemon=True).start()

    @contextmanager
    def task(self) -> Iterator[None]:
        """The block takes steps."""
        self.step()
        self._in_task = True
        try:
            yield
        finally:
            self._in_task = False
            self._file.write(Work())

    def begin(self, r: Range) -> None:
        """See :class:`Steps`."""
        self.step()
        self._file.write(Work(r.file, r.target.cluster, r.peer_instance_id))

    def step(self, wait_ms: float = 0) -> None:
        """See :class:`Steps`."""
        self._waits_until_ns = self._clock.boot_ns() + int(wait_ms * 1_000_000)
        self._steps += 1

    def wait(self, wait_ms: float) -> None:
        """A step within a wait, or without one: the task waits for another process, for at most ``wait_ms`` from now. A
        longer wait goes on.
        """
        self._waits_until_ns = max(self._waits_until_ns, self._clock.boot_ns() + int(wait_ms * 1_000_000))
        self._steps += 1

    def gets_on(self) -> bool:
        """Whether this process gets on, as seen since the last call. The thread beside calls it."""
        steps = self._steps
        has_stepped, self._seen = steps != self._seen, steps
        return has_stepped or not self._in_task or self._clock.boot_ns() < self._waits_until_ns

    def _beat(self) -> None:
        never = threading.Event()
        while not self._clock.wait(never, BEAT_MS):
            if self.gets_on():
                self._file.touch()


class _Seen(Struct):
    """A process as the watch knows it: ``silent_ms`` of looking without a sign of life."""

    touched_ns: int
    silent_ms: float = 0
    work: Work | None = None
    """The work of the process when this watch ended it; None = the watch has not ended it."""


class SignsOfLife:
    """The watch over one JVM and the Python processes of this machine. One thread asks the JVM, another one looks, and
    any one asks for words.
    """

    def __init__(
        self,
        directory: Path,
        jvm_pid: int,
        ask: Callable[[], object],
        clock: Clock,
        end: Callable[[int, int], None] | None = None,
    ) -> None:
        """``ask`` returns once the JVM has answered. ``end`` ends the process with a number and a start time; None =
        with SIGKILL.
        """
        self._directory = directory
        self._jvm_pid = jvm_pid
        self._ask = ask
        self._clock = clock
        self._end = end or end_process
        self._looked_ns = clock.boot_ns()
        self._jvm_silent_ms = 0.0
        self._jvm_started = started_at(jvm_pid)
        self._processes: dict[str, _Seen] = {}
        """By the names of their files."""
        self._lock = threading.Lock()
        self._stuck: dict[WorkAt, str] = {}
        self._ended: dict[WorkAt, tuple[int, str, str]] = {}
        """When a worker was ended, the words, and the peer to which it shipped."""

    def ask_jvm(self, over: threading.Event) -> None:
        """Ask again and again until ``over``."""
        while not self._clock.wait(over, BEAT_MS):
            self._ask()
            self.note_answer()

    def note_answer(self) -> None:
        """The JVM has answered now."""
        self._jvm_silent_ms = 0.0

    def look(self) -> str:
        """End the processes that hang; returns in words what keeps all others from work, "" = nothing. One thread."""
        now_ns = self._clock.boot_ns()
        gap_ms, self._looked_ns = min((now_ns - self._looked_ns) / 1e6, GAP_MS), now_ns
        self._look_at_processes(gap_ms, now_ns)
        self._jvm_silent_ms += gap_ms
        if self._jvm_silent_ms > JVM_ENDED_MS and self._jvm_started is not None:
            self._end(self._jvm_pid, self._jvm_started)
        if self._jvm_silent_ms > HUNG_MS:
            return f"its JVM (process {self._jvm_pid}) hangs: it does not answer"
        return ""

    def take_ended(self, ranges: Sequence[Range]) -> dict[WorkAt, str]:
        """Why those of these ranges failed whose worker was ended a moment ago, in words. If it had no task when it was
        stopped, or was the parent of the workers, the key is :data:`NO_WORK`. Each end is told once.
        """
        with self._lock:
            self._forget_ended()
            wanted = {work_at(r) for r in ranges} & self._ended.keys() or {NO_WORK} & self._ended.keys()
            return {key: self._ended.pop(key)[1] for key in wanted}

    def ended_task(self, cluster: str) -> str:
        """Why a task that follows for a peer failed, if its worker was ended a moment ago; "" = it was not."""
        with self._lock:
            self._forget_ended()
            return next((words for _, words, peer in self._ended.values() if peer in (cluster, "")), "")

    def _forget_ended(self) -> None:
        since_ns = self._clock.boot_ns() - WORDS_MS * 1_000_000
        self._ended = {key: told for key, told in self._ended.items() if told[0] >= since_ns}

    def stuck(self, ranges: Sequence[Range]) -> str:
        """Which process ships one of these ranges, hangs and can't be ended; "" = none."""
        with self._lock:
            return next((self._stuck[work_at(r)] for r in ranges if work_at(r) in self._stuck), "")

    def _look_at_processes(self, gap_ms: float, now_ns: int) -> None:
        before, self._processes = self._processes, {}
        stuck: dict[WorkAt, str] = {}
        for path in self._directory.glob(f"{PREFIX}*"):
            pid, started = (int(part) for part in path.name.removeprefix(PREFIX).split("-"))
            if started_at(pid) != started:
                path.unlink(missing_ok=True)
                continue
            seen = seen_again(before.get(path.name), path, gap_ms)
            if seen is None:
                continue
            self._processes[path.name] = seen
            if seen.silent_ms <= HUNG_MS:
                continue
            if seen.work is None:
                seen.work = work_of(path)
                words = f"{seen.work.named(pid)} hung: it gave no sign of life for {HUNG_MS // 1000} s"
                LOG.warning("%s, and is ended", words)
                with self._lock:
                    told = now_ns, f"{words}, and was ended", seen.work.cluster
                    self._ended[seen.work.file, seen.work.instance] = told
                self._end(pid, started)
            elif seen.silent_ms > HUNG_MS + ENDED_MS:
                stuck[seen.work.file, seen.work.instance] = f"{seen.work.named(pid)} hangs and can't be ended"
        with self._lock:
            self._stuck = stuck


def seen_again(before: _Seen | None, path: Path, gap_ms: float) -> _Seen | None:
    """The state of a process after a look at its file; None when the file has just gone."""
    try:
        touched_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    if before is None or before.touched_ns != touched_ns:
        return _Seen(touched_ns)
    before.silent_ms += gap_ms
    return before


def work_of(path: Path) -> Work:
    """The work in a file of a process; without a file when it was not written whole."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Work)
    except (OSError, msgspec.DecodeError):
        return Work()


def started_at(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None when it has ended. A number of a process may come again, the
    two together do not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def end_process(pid: int, started: int) -> None:
    """Kill a process, unless its number is that of another one by now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if started_at(pid) == started:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def work_at(r: Range) -> WorkAt:
    """The file of a range, and the peer to which a worker ships it."""
    return r.file, r.peer_instance_id
