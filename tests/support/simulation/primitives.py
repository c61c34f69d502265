"""Primitives on which tasks wait: the used parts of ``threading``, ``concurrent.futures`` and ``queue``.

Each class has the interface of its namesake as far as the product needs it. ``KERNEL`` is the kernel of the world that
runs now; there is one at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from random import Random
from types import TracebackType
from typing import Any

from tests.support.simulation.kernel import Kernel, KilledError, Process, Task


class Running:
    """Which kernel runs now."""

    kernel: Kernel | None = None


def kernel() -> Kernel:
    """The kernel that runs now."""
    assert Running.kernel is not None, "no simulation runs"
    return Running.kernel


class SimLock:
    """A mutex between tasks."""

    def __init__(self) -> None:
        self._holder: Task | None = None

    def acquire(self, blocking: bool = True) -> bool:
        if not self._is_free():
            if not blocking:
                return False
            kernel().wait("a lock", self._is_free, None)
        self._holder = kernel().current
        return True

    def _is_free(self) -> bool:
        return self._holder is None or self._holder.process.dead

    def release(self) -> None:
        self._holder = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimCondition(SimLock):
    """A condition: notified waiters look again. It may share the lock of others."""

    def __init__(self, lock: SimLock | None = None) -> None:
        super().__init__()
        self._lock = lock
        self._turn = 0

    def acquire(self, blocking: bool = True) -> bool:
        return super().acquire(blocking) if self._lock is None else self._lock.acquire(blocking)

    def release(self) -> None:
        if self._lock is None:
            super().release()
        else:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        turn = self._turn
        self.release()
        found = kernel().wait(
            "a condition", lambda: self._turn != turn, None if timeout is None else int(timeout * 1e9)
        )
        self.acquire()
        return found

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify_all(self) -> None:
        self._turn += 1

    def notify(self, n: int = 1) -> None:
        del n
        self._turn += 1


class SimThread:
    """A thread is a task of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: Collection[object] = (),
        daemon: bool = True,
    ) -> None:
        del group, daemon
        self.name = name
        self._target = target
        self._args = tuple(args)
        self._task: Task | None = None

    def start(self) -> None:
        target = self._target
        assert target is not None
        self._task = kernel().spawn(kernel().process_of_current(), self.name, lambda: void(target(*self._args)))

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is not None and task is not kernel().current:
            kernel().wait(f"the end of {self.name}", lambda: task.done, None if timeout is None else int(timeout * 1e9))


def void(_result: object) -> None:
    """Nothing."""


class SimThreading:
    """Stands for the module ``threading``."""

    Lock = SimLock
    RLock = SimLock
    Condition = SimCondition
    Thread = SimThread
    Event = threading.Event
    local = threading.local


class SimFuture:
    """A future that a task waits for."""

    def __init__(self) -> None:
        self._state = "pending"
        self._result: Any = None
        self._error: BaseException | None = None

    def __class_getitem__(cls, item: object) -> type[SimFuture]:
        del item
        return cls

    def set_running_or_notify_cancel(self) -> bool:
        self._state = "running"
        return True

    def running(self) -> bool:
        return self._state == "running"

    def done(self) -> bool:
        return self._state == "done"

    def set_result(self, result: Any) -> None:
        self._result, self._state = result, "done"

    def set_exception(self, error: BaseException) -> None:
        self._error, self._state = error, "done"

    def result(self, timeout: float | None = None) -> Any:
        if not kernel().wait("an answer", self.done, None if timeout is None else int(timeout * 1e9)):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


class SimExecutor:
    """Each job is a task."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "pool") -> None:
        del max_workers
        self._name = thread_name_prefix

    def submit(self, function: Callable[..., Any], *arguments: Any) -> SimFuture:
        future = SimFuture()

        def run() -> None:
            try:
                future.set_result(function(*arguments))
            except KilledError:
                raise
            except Exception as error:  # noqa: BLE001 - handed to the task that waits
                future.set_exception(error)

        kernel().spawn(kernel().process_of_current(), self._name, run)
        return future

    def shutdown(self) -> None:
        """Nothing is kept."""


class SimExecutors:
    """One task a lane (see ``bookkeeper.master.calls.keyed_executors``)."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Callable[[], None]]] = {}
        self._stopped = False

    def submit(self, lane: str, job: Callable[[], None]) -> bool:
        if self._stopped:
            return False
        if lane not in self._lanes:
            self._lanes[lane] = deque()
            jobs = self._lanes[lane]
            kernel().spawn(kernel().process_of_current(), f"lane-{lane}", lambda: self._serve(lane, jobs))
        self._lanes[lane].append(job)
        return True

    def _serve(self, lane: str, jobs: deque[Callable[[], None]]) -> None:
        from bookkeeper.errors import BookkeeperError

        while True:
            kernel().wait("a job", lambda: bool(jobs) or self._lanes.get(lane) is not jobs, None)
            if not jobs:
                return
            job = jobs.popleft()
            try:
                job()
            except BookkeeperError as error:
                kernel().note(f"lane {lane}: {error}")

    def retain(self, lanes: Collection[str]) -> None:
        for lane in [lane for lane in self._lanes if lane not in lanes]:
            del self._lanes[lane]

    def stop(self) -> None:
        self._stopped = True
        self.retain(())


class SimClock:
    """The kernel's time (see ``bookkeeper.clock.Clock``). ``skew_ms`` is how wrong the wall clock is. The boot clock is
    that of ``process``: it stands still while the machine is paused.
    """

    def __init__(self, skew_ms: int = 0, process: Process | None = None) -> None:
        self.skew_ms = skew_ms
        self.process = process

    def wall_ms(self) -> int:
        return kernel().now_ns // 1_000_000 + self.skew_ms

    def boot_ns(self) -> int:
        now_ns = kernel().now_ns
        return now_ns if self.process is None else self.process.boot_ns(now_ns)

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        timeout_ns = 0 if timeout_ms <= 0 else int(timeout_ms * 1_000_000) + 1_000  # a rest below 1 ns ends as well
        return kernel().wait_for_event("wait", event, timeout_ns)


class SimRandomModule:
    """Stands for the module ``random``: all generators are the kernel's."""

    @staticmethod
    def Random() -> Random:  # noqa: N802 - the name in the module it stands for
        return kernel().rng


def end_process(reason: str) -> None:
    """Stands for :func:`bookkeeper.runtime.process_exit.end_process`."""
    kernel().die(reason)
