"""The scheduler: tasks that run one atomic step at a time, in processes that may be suspended or killed.

Arrives: functions to run as tasks. A task is a greenlet, so that the product's own code, which knows nothing of this,
stops in the middle of a call wherever an edge says ``pause``. Leaves: a trace, one line a step. Time stands still while
anything can run. What a killed process had in memory is gone: its tasks are never resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import greenlet

SLOW_ODDS = 0.1
"""How often a slow task goes on when it is drawn; otherwise another one is drawn in its place."""

STEPS_MAX = 60_000
"""Steps after which something that is waited for counts as never."""


class KilledError(BaseException):
    """Unwinds the tasks of a dead process. No code of the product catches it for good."""


class StuckError(AssertionError):
    """Nothing can run any more, or it runs for ever, before what was waited for came."""


@dataclass(eq=False)
class Process:
    """Something that dies as a whole. ``machine`` names what loses its unsynced files together."""

    name: str
    cluster: str
    dead: bool = False
    suspended: bool = False
    reason: str = ""
    steps: int = 0
    """That its tasks did."""
    on_death: list[Callable[[], None]] = field(default_factory=list)
    stood_ns: int | None = None
    """When its machine was paused; its clock stands still since then."""
    behind_ns: int = 0
    """How long its clock stood still in earlier pauses."""

    def boot_ns(self, now_ns: int) -> int:
        """What its boot clock shows."""
        return (now_ns if self.stood_ns is None else self.stood_ns) - self.behind_ns


@dataclass(eq=False)
class Task:
    """One thread. ``label`` is what it does next; ``ready`` None means now. ``event``: its flag is ``ready``."""

    number: int
    process: Process
    name: str
    run: Callable[[], None]
    hello: object = None
    label: str = "begin"
    ready: Callable[[], bool] | None = None
    event: threading.Event | None = None
    wake_ns: int | None = None
    done: bool = False
    last_step: int = 0
    let: greenlet.greenlet | None = None

    def __post_init__(self) -> None:
        self.next_step = f"{self}: {self.label}"
        """What it does next, as a line of the trace has it."""

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"

    def park(self, label: str) -> None:
        """Name the next step."""
        self.label = label
        self.next_step = f"{self}: {label}"


@dataclass(eq=False)
class Trap:
    """An act right before, or right after, the n-th step from now of the tasks that ``caught`` selects."""

    caught: Callable[[Task], bool]
    steps: int
    after: bool
    spring: Callable[[Task], None]


@dataclass(eq=False)
class Kernel:
    """Runs tasks. ``observe`` is called after each step; ``held`` tells of a task that it must not go on now."""

    rng: Random
    now_ns: int = 1_000_000_000_000
    steps: int = 0
    trace: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    current: Task | None = None
    observe: Callable[[], None] = lambda: None
    holds: dict[int, Callable[[Task], bool]] = field(default_factory=dict)
    traps: list[Trap] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stepped: Process | None = None
    """Whose task did the last step."""
    _tasks_made: int = 0
    _holds_made: int = 0
    _buried: bool = False
    _turn: int = 0

    # ---- inside a task

    def pause(self, label: str) -> None:
        """The next thing that this task does is ``label``, and it is atomic. Outside of tasks it is done at once."""
        self._park(label, None, None)

    def wait(self, label: str, ready: Callable[[], bool], timeout_ns: int | None) -> bool:
        """Wait for ``ready``; False when the time has passed first."""
        if ready():
            return True
        if self.current is None:
            raise StuckError(f"only a task may wait: {label}")
        wake_ns = None if timeout_ns is None else self.now_ns + timeout_ns
        self._park(label, ready, wake_ns)
        return ready()

    def wait_for_event(self, label: str, event: threading.Event, timeout_ns: int) -> bool:
        """As :meth:`wait`, until an event is set."""
        if event.is_set():
            return True
        if self.current is None:
            raise StuckError(f"only a task may wait: {label}")
        self._park(label, event.is_set, self.now_ns + timeout_ns, event)
        return event.is_set()

    def _park(
        self,
        label: str,
        ready: Callable[[], bool] | None,
        wake_ns: int | None,
        event: threading.Event | None = None,
    ) -> None:
        task = self.current
        if task is None:
            return
        if task.process.dead:
            raise KilledError
        task.park(label)
        task.ready, task.wake_ns, task.event = ready, wake_ns, event
        assert task.let is not None
        parent = task.let.parent
        assert parent is not None
        parent.switch()
        if task.process.dead:
            raise KilledError

    def spawn(self, process: Process, name: str, run: Callable[[], None], hello: object = None) -> Task:
        """A new thread of a process."""
        self._tasks_made += 1
        task = Task(self._tasks_made, process, name, run, hello)
        task.last_step = self.steps
        if process.dead:
            task.done = True
            return task
        self.tasks.append(task)
        return task

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The world reads state: no step of any task."""
        before, self.current = self.current, None
        try:
            yield
        finally:
            self.current = before

    def process_of_current(self) -> Process:
        """The task that runs now."""
        if self.current is None:
            raise StuckError("no task runs")
        return self.current.process

    def die(self, reason: str) -> None:
        """The process that runs ends at once."""
        process = self.process_of_current()
        self._bury(process, reason)
        raise KilledError

    # ---- outside

    def kill(self, process: Process, reason: str = "kill -9") -> None:
        """End a process between two steps."""
        self._bury(process, reason)
        self._unwind()

    def pause_machine(self, process: Process) -> None:
        """The machine of a process is paused as a whole: its clock stands still, and its waits do not end."""
        process.suspended = True
        if process.stood_ns is None:
            process.stood_ns = self.now_ns
            self.note(f"the machine of {process.name} is paused")

    def resume(self, process: Process) -> None:
        """Let a suspended process go on. A machine that was paused finds its clock where it was."""
        process.suspended = False
        if process.stood_ns is None:
            return
        stood_ns, process.stood_ns = self.now_ns - process.stood_ns, None
        process.behind_ns += stood_ns
        for task in self.tasks:
            if task.process is process and task.wake_ns is not None:
                task.wake_ns += stood_ns
        self.note(f"{process.name} goes on, its clock is {process.behind_ns // 1_000_000} ms behind")

    def _bury(self, process: Process, reason: str) -> None:
        if process.dead:
            return
        process.dead, process.reason = True, reason
        self._buried = True
        self.note(f"{process.name} is dead: {reason}")
        for tell in process.on_death:
            tell()

    def _unwind(self) -> None:
        """Let tasks of dead processes end, so that nothing of them is left."""
        while self._buried:
            self._buried = False
            doomed = [task for task in self.tasks if task.process.dead]
            self.tasks = [task for task in self.tasks if not task.process.dead]
            for task in doomed:
                task.done = True
                if task.let is not None and not task.let.dead:
                    self._enter(task, KilledError())

    def runnable(self) -> list[Task]:
        """Tasks that can go on, the one that waited longest first."""
        found = self._able(self.tasks)
        return sorted(found, key=lambda task: (task.last_step, task.number))

    def next_in_turn(self) -> Task | None:
        """The next task, in the order in which they began, that can go on."""
        tasks = self.tasks
        turn = self._turn % len(tasks) if tasks else 0
        found = next(self._able([*tasks[turn:], *tasks[:turn]]), None)
        if found is not None:
            self._turn = tasks.index(found) + 1
        return found

    def any_runnable(self, rng: Random) -> Task | None:
        """One of the tasks that can go on, each as likely as any other."""
        count = len(self.tasks)
        for _ in range(count // 2):
            task = self.tasks[int(rng.random() * count)]
            if self.can_run(task):
                return task
        waiting = list(self._able(self.tasks))
        return waiting[int(rng.random() * len(waiting))] if waiting else None

    def can_run(self, task: Task) -> bool:
        """Not suspended, not held, and what it waits for has come."""
        return next(self._able((task,)), None) is not None

    def _able(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Those that can go on."""
        now_ns, holds = self.now_ns, self.holds
        for task in tasks:
            # A step looks at a hundred tasks, and four of five wait for an event. A call costs more than this look.
            wake_ns = task.wake_ns
            if wake_ns is None or wake_ns > now_ns:
                event, ready = task.event, task.ready
                if event is not None:
                    if not event._flag:  # type: ignore[attr-defined]
                        continue
                elif ready is not None and not ready():
                    continue
            if not (task.process.suspended or task.done or (holds and self._is_held(task))):
                yield task

    def _is_held(self, task: Task) -> bool:
        return any(held(task) for held in self.holds.values())

    def step(self, task: Task) -> None:
        """Let a task do its next atomic step, unless a trap says that something else happens instead."""
        trap = self._sprung(task)
        if trap is None or trap.after:
            self._do_step(task)
        if trap is not None:
            trap.spring(task)

    def _sprung(self, task: Task) -> Trap | None:
        """The trap that this step springs."""
        for trap in self.traps:
            if trap.caught(task):
                trap.steps -= 1
                if trap.steps <= 0:
                    self.traps.remove(trap)
                    return trap
        return None

    def _do_step(self, task: Task) -> None:
        self.steps += 1
        task.process.steps += 1
        task.last_step = self.steps
        self.stepped = task.process
        self.trace.append(f"{self.steps:6} {self.now_ns // 1_000_000 - 1_000_000:7} ms  {task.next_step}")
        if task.let is None:
            task.let = greenlet.greenlet(self._body)
        self._enter(task)
        if task.done:
            self.tasks = [other for other in self.tasks if other is not task]
        self._unwind()
        self.observe()

    def _enter(self, task: Task, thrown: BaseException | None = None) -> None:
        """Let a task go on, or raise ``thrown`` where it waits."""
        before, self.current = self.current, task
        let = task.let
        assert let is not None
        let.parent = greenlet.getcurrent()
        try:
            if thrown is None:
                let.switch(task)  # the first switch calls ``_body`` with it, the others ignore it
            else:
                let.throw(thrown)
        except KilledError:
            task.done = True
        finally:
            self.current = before

    def _body(self, task: Task) -> None:
        try:
            task.run()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - a thread of the product that dies takes its process down; here it is a finding
            if not task.process.dead:
                self.failures.append(f"{task} died of {error!r}")
                self.failures.append(explain(error))
                self._bury(task.process, f"the thread {task.name} died of {error!r}")
        finally:
            task.done = True

    def note(self, line: str) -> None:
        """Something that a person wants to read in the trace."""
        self.trace.append(f"{self.steps:6} {self.now_ns // 1_000_000 - 1_000_000:7} ms  -- {line}")

    # ---- time

    def next_wake_ns(self) -> int | None:
        """When the next wait ends by itself."""
        times = [
            task.wake_ns
            for task in self.tasks
            if task.wake_ns is not None
            and task.ready is not None
            and not task.process.suspended
            and not (self.holds and self._is_held(task))
        ]
        return min(times, default=None)

    def advance(self, to_ns: int) -> None:
        """Let time pass."""
        self.now_ns = max(self.now_ns, to_ns)

    def advance_to_next(self) -> bool:
        """Let time pass until something can run; False when nothing ever will."""
        wake_ns = self.next_wake_ns()
        if wake_ns is None:
            return False
        self.advance(wake_ns)
        return True

    # ---- driving

    def hold(self, held: Callable[[Task], bool]) -> int:
        """Tasks for which ``held`` is true do not go on until :meth:`release`."""
        self._holds_made += 1
        self.holds[self._holds_made] = held
        return self._holds_made

    def release(self, number: int) -> None:
        """End a hold."""
        self.holds.pop(number, None)

    def run_until(
        self,
        condition: Callable[[], bool],
        what: str,
        limit_s: float = 300.0,
        steps_max: int = STEPS_MAX,
        look_every: int = 1,
    ) -> None:
        """Run all tasks in turn; time passes when no task can run. ``condition`` is asked after each ``look_every``-th
        step, and when nothing goes on by itself: it may start a process. Raises StuckError.
        """
        deadline_ns = self.now_ns + int(limit_s * 1e9)
        last_step, stands = self.steps + steps_max, False
        while (self.steps % look_every and not stands) or not condition():
            task = self.next_in_turn()
            if task is not None:
                self.step(task)
                stands = False
            elif stands or self.now_ns > deadline_ns:
                raise StuckError(f"never: {what}")
            else:
                stands = not self.advance_to_next()
            if self.steps > last_step:
                raise StuckError(f"not within {steps_max} steps: {what}")

    def run_for(self, seconds: float) -> None:
        """Run all tasks for a while."""
        until_ns = self.now_ns + int(seconds * 1e9)
        self.spawn_timer(until_ns)
        self.run_until(lambda: self.now_ns >= until_ns, f"{seconds} s")

    def spawn_timer(self, until_ns: int) -> None:
        """A task that waits until then, so that time can pass up to it."""
        clockwork = Process("clock", "")
        self.spawn(clockwork, "timer", lambda: self._sleep_until(until_ns))

    def _sleep_until(self, until_ns: int) -> None:
        self.wait("sleep", lambda: self.now_ns >= until_ns, until_ns - self.now_ns)

    def burst(
        self, steps: int, rng: Random, time_odds: float = 0.02, is_slow: Callable[[Task], bool] = lambda _task: False
    ) -> None:
        """Random tasks go on, slow ones seldom, and now and then time passes although some task could run."""
        for _ in range(steps):
            task = None if rng.random() < time_odds else self.any_runnable(rng)
            if task is not None and is_slow(task) and rng.random() >= SLOW_ODDS:
                task = self.any_runnable(rng)
            if task is not None:
                self.step(task)
            elif not self.advance_to_next():
                return

    def close(self) -> None:
        """End everything."""
        for task in list(self.tasks):
            task.process.dead = self._buried = True
        self.observe = lambda: None
        self._unwind()


def explain(error: BaseException) -> str:
    """The traceback, for people."""
    import traceback

    return "".join(traceback.format_exception(error))


def any_of(tasks: Iterable[Task]) -> Task:
    """The first, when there is one."""
    for task in tasks:
        return task
    raise StuckError("there is no such task")
