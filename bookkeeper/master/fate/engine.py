"""The engine of FATE: executes operations of several steps, also those of earlier masters.

The engine persists each step before it begins the next one (``fate_store``), so a crash repeats at most one step; steps
are idempotent. A client that waits for an operation when the master dies repeats its request and joins the operation at
the next master.

Each thread that calls :meth:`FateEngine.serve` executes one operation at a time; a waiting operation occupies no
thread. Operations that share a lock run one after another, in order of beginning; operations with a :func:`shared` lock
run at the same time. Operators see a bounded number of failed operations for a limited time.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, islice
from typing import Protocol

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    LeaseLostError,
    NotLeaderError,
    OverloadedError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from bookkeeper.master.fate.fate_store import FIRST_STEP, FateRecord, FateStore
from bookkeeper.master.index.shipments import retry_after_ns
from bookkeeper.metadata.values import FateOp, FateStep, Json

LOG = logging.getLogger(__name__)

Args = Mapping[str, Json]
State = Mapping[str, Json]

SHARED = "shared "

FAILED_STEP = "failed"
"""Step of an operation that ended with an error; its state has code and message."""

FAILED_RETENTION_NS = 600 * 1_000_000_000
"""How long a master retains the record of a failure, counted from its own start or from the failure."""

FAILED_MAX = 1_000
"""Most retained failures; the engine drops the oldest first. A new master takes over the failures in the books."""

OPERATIONS_MAX = 10_000
"""Most operations at once; the engine refuses more with OverloadedError."""


class Call(Struct, frozen=True):
    """The input of a step. ``since_ns`` is when this master first had the operation (boot clock). ``report`` tells
    operators how much of the step is left, and in which unit: ``bytes``, or a plural.
    """

    txid: str
    args: Args
    state: State
    since_ns: int
    report: Callable[[int, str], None] = lambda left, unit: None  # noqa: ARG005


class Next(Struct, frozen=True):
    """The step is done; the next one is ``step``."""

    step: str
    state: State


class Wait(Struct, frozen=True):
    """The step is not done yet; the engine calls it again after ``after_ms``. Operators see ``reason``."""

    reason: str
    after_ms: int = 100


class Done(Struct, frozen=True):
    """The operation is complete; its caller gets ``result``."""

    result: Json = None


class Failed(Struct, frozen=True):
    """The operation ends with this error, as after a PermanentError of a step."""

    error: BookkeeperError


Outcome = Next | Wait | Done | Failed
Step = Callable[[Call], Outcome]


class Operation(Protocol):
    """A kind of operation: its steps and its locks."""

    @property
    def first(self) -> str:
        """Name of the first step."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """The function of each step, by name. A step is idempotent: the engine repeats it after a TransientError, and
        the next master repeats it after a crash.
        """

    def locks(self, args: Args, /) -> Collection[str]:
        """The names of the operation's locks. Operations with a common lock exclude each other; see :func:`shared`."""


class Running(Struct):
    """An operation in this master's memory, and the handle of its waiting callers."""

    txid: str
    op: FateOp
    step: str
    state: State
    locks: frozenset[str]
    since_ns: int
    ready_ns: int = 0
    failures: int = 0
    busy: bool = False
    note: str = ""
    left: int | None = None
    """How much of the present step is left, in units; None = not known."""
    unit: str | None = None
    result: Json = None
    error: BookkeeperError | None = None
    ended: bool = False
    started: bool = True
    """False while the record may be missing in the books; the engine executes no step before it is there."""

    def take(self) -> None:
        """Reserve the operation for the calling thread."""
        self.busy = True

    def release(self) -> None:
        """End the reservation."""
        self.busy = False

    def confirm_start(self) -> None:
        """Note that the record is in the books."""
        self.started = True

    def note_left(self, left: int, unit: str) -> None:
        """Note how much of the present step is left."""
        self.left, self.unit = left, unit

    def try_later(self, error: TransientError, ready_ns: int) -> None:
        """Note a transient error of a step; try again at ``ready_ns``."""
        self.note = error.message
        self.ready_ns = ready_ns

    def count_failure(self) -> int:
        """Count one more failure in a row; return the count."""
        self.failures += 1
        return self.failures

    def wait(self, reason: str, ready_ns: int) -> None:
        """Note that a step is not done yet; call it again at ``ready_ns``."""
        self.note = reason
        self.ready_ns = ready_ns

    def advance(self, step: str, state: State) -> None:
        """Go to the next step."""
        self.step, self.state = step, state
        self._clear_note()

    def complete(self, result: Json) -> None:
        """End the operation with a result."""
        self.result, self.ended = result, True
        self._clear_note()

    def fail(self, error: BookkeeperError, expires_ns: int) -> None:
        """End the operation with an error, which is retained until ``expires_ns``."""
        self.error, self.ended, self.step = error, True, FAILED_STEP
        self.ready_ns = expires_ns
        self._clear_note()

    def expire(self) -> None:
        """Make the failure ready to be dropped."""
        self.ready_ns = 0

    def _clear_note(self) -> None:
        self.failures, self.note = 0, ""
        self.left, self.unit = None, None


class FateLimits(Struct, frozen=True):
    """Pauses between tries of a step, ms, and the most retained failures."""

    retry_base_ms: int = 100
    retry_max_ms: int = 5_000
    failed_max: int = FAILED_MAX


class FateEngine(Struct):
    """Executes operations. Thread-safe."""

    store: FateStore
    kinds: Mapping[str, Operation]
    clock: Clock
    rng: random.Random
    limits: FateLimits = FateLimits()
    _running: dict[str, Running] = field(default_factory=dict)
    _failed: dict[str, Running] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _submitting: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def resume(self, records: Iterable[FateRecord]) -> None:
        """Take over the operations in the books, once, at the beginning of a reign."""
        with self._changed:
            for record in records:
                if record.op.type in self.kinds:
                    self._admit(record.txid, record.op, record.step, record.state)
                else:
                    LOG.warning("operation %s has the unknown kind %s and is left alone", record.txid, record.op.type)
            self._changed.notify_all()

    def submit(self, kind: str, args: Args) -> Running:
        """Begin an operation, or join an equal one that is running. Returns once its record is in the books.

        Raises OverloadedError if too many operations run. Raises UnavailableError if the beginning is in doubt: this
        master continues to try; the next master executes the operation only if the record was in the books in time.
        """
        with self._submitting:
            running = self._claim(kind, args)
            if running.started:
                return running
            try:
                self._begin(running)
            except TransientError as error:
                self._try_later(running, error)
                raise doubt_error(running) from error
            except PermanentError:
                self._running.pop(running.txid)
                raise
            finally:
                self._release(running)
            return running

    def _claim(self, kind: str, args: Args) -> Running:
        """The equal operation that is running, or a new one; the caller may discard a new one until it has begun."""
        with self._changed:
            running = next((r for r in self._running.values() if r.op.type == kind and r.op.args == args), None)
            if running is None:
                if len(self._running) >= OPERATIONS_MAX:
                    raise OverloadedError(f"{OPERATIONS_MAX} operations are running; try again later")
                op = FateOp(kind, args, self.clock.wall_ms())
                running = self._admit(self.store.new_txid(), op, FIRST_STEP, {}, started=False)
            if not running.started:
                if running.busy:
                    raise doubt_error(running)
                running.take()
            return running

    def wait(self, running: Running, timeout_ms: int) -> Json:
        """Wait for the end of an operation and return its result, or raise its error.

        Raises UnavailableError after the time limit (the operation continues), NotLeaderError if the reign ends.
        """
        if not self.is_over(running, timeout_ms):
            note = f" ({running.note})" if running.note else ""
            kind, step = running.op.type, running.step
            raise UnavailableError(
                f"operation {running.txid} ({kind}) is still at {step}{note}; it continues, ask again"
            )
        if running.error is not None:
            raise type(running.error)(running.error.message, running.error.details)
        return running.result

    def is_over(self, running: Running, timeout_ms: int) -> bool:
        """Wait for the end of an operation, with any result; False after the time limit. Raises NotLeaderError if the
        reign ends.
        """
        deadline_ns = self.clock.boot_ns() + timeout_ms * 1_000_000
        with self._changed:
            while not running.ended:
                left_ns = deadline_ns - self.clock.boot_ns()
                if self._stopped:
                    raise NotLeaderError("this master no longer leads; ask the next one, which continues the operation")
                if left_ns <= 0:
                    return False
                self._changed.wait(left_ns / 1e9)
        return True

    def run(self, kind: str, args: Args, timeout_ms: int) -> Json:
        """:meth:`submit`, then :meth:`wait`."""
        return self.wait(self.submit(kind, args), timeout_ms)

    def pending(self) -> list[Running]:
        """Running operations and retained failures, in order of beginning."""
        with self._changed:
            return sorted([*self._running.values(), *self._failed.values()], key=lambda running: running.txid)

    def stop(self) -> None:
        """Release threads and waiting callers."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def serve(self) -> None:
        """Execute steps until :meth:`stop`: the body of a thread. Raises LeaseLostError when the reign is over."""
        while True:
            with self._changed:
                running = self._take()
                while running is None and not self._stopped:
                    self._changed.wait(self._idle_seconds())
                    running = self._take()
                if running is None:
                    return
            self._execute(running)

    def step_once(self) -> bool:
        """Execute one step of the first ready operation; return whether there was one."""
        with self._changed:
            running = self._take()
        if running is None:
            return False
        self._execute(running)
        return True

    # ---- inside

    def _admit(self, txid: str, op: FateOp, step: str, state: State, *, started: bool = True) -> Running:
        kind = self.kinds[op.type]
        locks = frozenset(kind.locks(op.args))
        running = Running(txid, op, step or kind.first, state, locks, self.clock.boot_ns(), started=started)
        if step == FAILED_STEP:
            self._retain_failure(running, PermanentError(str(state.get("message")), {"code": str(state.get("code"))}))
        else:
            self._running[txid] = running
        return running

    def _take(self) -> Running | None:
        """The first ready operation that no earlier one excludes, or an expired failure."""
        if self._stopped:
            return None
        now_ns = self.clock.boot_ns()
        ordered = (self._running[txid] for txid in sorted(self._running))
        for running in chain(first_of_each_lock(ordered), self._failed.values()):
            if not running.busy and now_ns >= running.ready_ns:
                running.take()
                return running
        return None

    def _idle_seconds(self) -> float:
        waiting = [r.ready_ns for r in (*self._running.values(), *self._failed.values()) if not r.busy]
        left_ns = min(waiting, default=2**62) - self.clock.boot_ns()
        return min(max(left_ns / 1e9, 0.01), 1.0)

    def _execute(self, running: Running) -> None:
        try:
            if running.ended:
                self._drop_failure(running)
            else:
                self._advance(running)
        except LeaseLostError:
            raise
        except TransientError as error:
            self._try_later(running, error)
        finally:
            self._release(running)

    def _try_later(self, running: Running, error: TransientError) -> None:
        wait_ns = retry_after_ns(running.count_failure(), self.limits.retry_base_ms, self.limits.retry_max_ms, self.rng)
        running.try_later(error, self.clock.boot_ns() + wait_ns)

    def _release(self, running: Running) -> None:
        with self._changed:
            running.release()
            self._changed.notify_all()

    def _begin(self, running: Running) -> None:
        self.store.write({running.txid: running.op})
        running.confirm_start()

    def _advance(self, running: Running) -> None:
        if not running.started:
            self._begin(running)
        outcome = self._outcome(running)
        if isinstance(outcome, Wait):
            running.wait(outcome.reason, self.clock.boot_ns() + outcome.after_ms * 1_000_000)
        elif isinstance(outcome, Next):
            self.store.reach({running.txid: FateStep(outcome.step, outcome.state)})
            running.advance(outcome.step, outcome.state)
        elif isinstance(outcome, Done):
            self.store.end([running.txid])
            with self._changed:
                running.complete(outcome.result)
                self._running.pop(running.txid)
        else:
            failure = {"code": outcome.error.code, "message": outcome.error.message}
            self.store.reach({running.txid: FateStep(FAILED_STEP, failure)})
            with self._changed:
                self._running.pop(running.txid)
                self._retain_failure(running, outcome.error)

    def _outcome(self, running: Running) -> Outcome:
        self.store.check()
        step = self.kinds[running.op.type].steps.get(running.step)
        if step is None:
            return Failed(PermanentError(f"{running.op.type} has no step {running.step!r}: another version began it"))
        try:
            return step(Call(running.txid, running.op.args, running.state, running.since_ns, running.note_left))
        except PermanentError as error:
            return Failed(error)

    def _retain_failure(self, running: Running, error: BookkeeperError) -> None:
        running.fail(error, self.clock.boot_ns() + FAILED_RETENTION_NS)
        self._failed[running.txid] = running
        excess = len(self._failed) - self.limits.failed_max
        if excess > 0:
            next(islice(self._failed.values(), excess - 1, None)).expire()

    def _drop_failure(self, running: Running) -> None:
        self.store.end([running.txid])
        with self._changed:
            self._failed.pop(running.txid, None)


def doubt_error(running: Running) -> UnavailableError:
    """The error for a caller while the operation's record may be in the books or not."""
    reason = running.note or "another call writes its record"
    return UnavailableError(f"it is in doubt whether {running.op.type} begins ({reason}); ask again")


def shared(lock: str) -> str:
    """A shared lock: its operations exclude only operations with the exclusive lock of this name."""
    return SHARED + lock


def is_blocked(lock: str, taken: Collection[str]) -> bool:
    """Whether one of the taken locks blocks an operation with this lock."""
    exclusive = lock.removeprefix(SHARED)
    return exclusive in taken or (lock == exclusive and shared(lock) in taken)


def first_of_each_lock(ordered: Iterable[Running]) -> Iterable[Running]:
    """The operations that may run now: no earlier operation has one of their locks."""
    taken: set[str] = set()
    for running in ordered:
        if not any(is_blocked(lock, taken) for lock in running.locks):
            yield running
        taken |= running.locks
