"""The service ``Replay``: runs of ranges, many at once, over one warm Spark session.

The lanes of tservers send range descriptors and get one result row for each range. A run waits for the Spark session,
for task slots of its peer, and for its job; each wait has a limit. When a job fails (a task process was killed), the
service runs its files one by one, so that a bad range does not fail the others. The journal has a line for each result
before the caller gets it. When the JVM dies, a job hangs, or all jobs fail for :data:`FAILING_MS`, the process exits
with :data:`EXIT_BROKEN` and its supervisor starts another one.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError, InvalidInputError, UnavailableError, unavailable
from bookkeeper.model import TargetKey
from bookkeeper.replay.journal import Journal
from bookkeeper.replay.progress import StreamProgress
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RANGES_MAX,
    RESULT_SCHEMA,
    TASK_FAILED_CODE,
    Range,
    RangeError,
    RangeResult,
    decode_table,
    encode_table,
    ranges_from_table,
    results_from_table,
    results_to_batch,
    unshipped,
)
from bookkeeper.replay.slots import FollowerSlots, TaskSlots
from bookkeeper.replay.spark.follow_job import run_follow_job
from bookkeeper.replay.spark.signs_of_life import SignsOfLife, WorkAt, work_at
from bookkeeper.replay.spark.spark_job import run_job
from bookkeeper.replay.spark.spark_session import (
    SCRATCH,
    ask_jvm,
    drop_scratch,
    expect_end,
    jvm_process,
    start_session,
)
from bookkeeper.replay.stream.following import Ended
from bookkeeper.replay.stream.range_shipping import files_of

LOG = logging.getLogger(__name__)

EXIT_BROKEN = 70
"""Exit code of a process that can't work any more; its supervisor starts another one."""

SLOT_WAIT_MS = 3_000
"""A run that got no task slot for so long returns: the master then knows that it waits for one, and sends it again."""

FAILING_MS = 10_000
"""After so long without a job that succeeds, a further failure ends the process: a new one makes its scratch files, its
JVM and its tasks anew.
"""

RESULT_ROUND_S = 1.0
"""Time between two looks at a run for a process of it that can't be ended."""

RUNS_MAX = 24
"""Most runs that wait or work; other threads of the server stay free for ``status`` and ``warm``."""


class ReplayService:
    """Handler of the contract's ``Replay``. ``exit_process`` ends the process with an exit code."""

    def __init__(self, settings: Settings, clock: Clock, exit_process: Callable[[int], None] = os._exit) -> None:
        """Nothing runs before :meth:`start`."""
        self._settings = settings
        self._clock = clock
        self._exit_process = exit_process
        replay = settings.replay
        self._cores = min(os.cpu_count() or 1, max(1, replay.tasks_max // 2))
        self._journal = Journal(settings, clock)
        self._progress = StreamProgress(clock)
        self._followers = FollowerSlots(replay.followers_max)
        self._slots = TaskSlots(replay.tasks_max, self._cores, clock)
        self._jobs = ThreadPoolExecutor(RUNS_MAX, thread_name_prefix="replay-job")
        self._spark: SparkSession | None = None
        self._jvm: subprocess.Popen[bytes] | None = None
        self._warm = threading.Event()
        self._jvm_ended = threading.Event()
        self._stopping = False
        self._failing_since_ns: int | None = None
        """Boot clock at the first failed job since one succeeded."""
        self._start_lock = threading.Lock()
        self._started = False
        self._signs: SignsOfLife | None = None
        self._hung = ""
        """The JVM, if it hung when :meth:`problem` looked last, in words."""
        self._on_problem: Callable[[str], None] = log_problem
        """Gets the reason before the process ends because of it."""

    def report_problems(self, tell: Callable[[str], None]) -> None:
        """Tell the reason before the process ends, instead of logging it."""
        self._on_problem = tell

    # ---- start and stop

    def start(self) -> None:
        """Start the session in the background, once; the process ends when that fails or takes too long."""
        with self._start_lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._warm_up, name="replay-start", daemon=True).start()
        threading.Thread(target=self._watch_start, name="replay-start-watch", daemon=True).start()

    @property
    def is_warm(self) -> bool:
        """Whether runs are fast."""
        return self._warm.is_set()

    def _break(self, problem: str) -> None:
        """End the process, whose supervisor starts another one."""
        self._on_problem(problem)
        self._exit_process(EXIT_BROKEN)

    def stop(self, grace_ms: int = 5_000) -> None:
        """End the JVM and with it every task; callers send the ranges of running jobs again. Errors of running jobs are
        expected and not logged.
        """
        self._stopping = True
        if self._spark is not None:
            expect_end(self._spark)
        jvm = self._jvm
        if jvm is None:
            return
        if jvm.stdin is not None:
            jvm.stdin.close()
        if not self._clock.wait(self._jvm_ended, grace_ms):
            jvm.kill()
        drop_scratch(self._settings.directory / SCRATCH)

    def _warm_up(self) -> None:
        try:
            self._spark = spark = start_session(self._settings)
            jvm = jvm_process(spark)
            self._watch_for_end(jvm)
            ask = partial(ask_jvm, spark)
            self._signs = signs = SignsOfLife(self._settings.directory / SCRATCH, jvm.pid, ask, self._clock)
            threading.Thread(target=self._ask_jvm, args=(signs,), name="replay-jvm-asks", daemon=True).start()
            run_job(spark, warm_up_ranges(self._settings, self._cores), self._cores, self._settings)
        except BaseException as error:
            if self._stopping:
                return
            LOG.critical("the Spark session did not start: %s", error, exc_info=True)
            self._break(f"the Spark session did not start: {one_line(error)}")
            raise
        self._warm.set()
        LOG.info("the Spark session is warm, with %d task slots", self._settings.replay.tasks_max)

    def _watch_for_end(self, jvm: subprocess.Popen[bytes]) -> None:
        self._jvm = jvm
        threading.Thread(target=self._watch_jvm, args=(jvm,), name="replay-jvm-watch", daemon=True).start()

    def _watch_start(self) -> None:
        if not self._clock.wait(self._warm, self._settings.replay.start_timeout_ms):
            LOG.critical("the Spark session did not start in %d ms", self._settings.replay.start_timeout_ms)
            self._break(f"the Spark session did not start in {self._settings.replay.start_timeout_ms} ms")

    def _watch_jvm(self, jvm: subprocess.Popen[bytes]) -> None:
        code = jvm.wait()
        self._jvm_ended.set()
        if not self._stopping:
            LOG.critical("the JVM %d ended with %d", jvm.pid, code)
            self._break(f"{self._hung}, and was ended" if self._hung else f"its JVM ended with code {code}")

    def _ask_jvm(self, signs: SignsOfLife) -> None:
        try:
            signs.ask_jvm(self._jvm_ended)
        except (Py4JError, OSError) as error:
            if not self._stopping:
                LOG.info("the JVM is not asked any more: %s", one_line(error))  # the watch for its end says why

    def problem(self) -> str:
        """The JVM, if it hangs, in words; empty = it works. Ends the processes that hang. One thread."""
        found = "" if self._signs is None else self._signs.look()
        if found and found != self._hung:
            LOG.warning("%s", found)
        self._hung = found
        return found

    # ---- calls

    def status(self) -> Mapping[str, str]:
        """State (idle, starting, warm), the JVM's pid, slots in use by peer, and the JVM if it hangs."""
        in_use = ", ".join(f"{peer} {count}" for peer, count in sorted(self._slots.in_use().items()))
        return {
            "state": "warm" if self._warm.is_set() else "starting" if self._started else "idle",
            "pid": str(os.getpid()),
            "jvm_pid": str(self._jvm.pid) if self._jvm else "",
            "slots": f"{self._settings.replay.tasks_max}",
            "slots_held": in_use,
            "followers": f"{len(self._followers)}",
            "problem": self._hung,
        }

    def warm(self) -> None:
        """Return once runs are fast; raises UnavailableError when that takes too long."""
        self._session()

    def run(self, ranges: bytes) -> bytes:
        """Ship all ranges and return the result of each, in any order. Raises InvalidInputError when ``ranges`` is no
        such table, UnavailableError while the session starts.
        """
        wanted = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        if len(wanted) > RANGES_MAX or len({r.range_id for r in wanted}) != len(wanted):
            raise InvalidInputError(f"{len(wanted)} ranges: at most {RANGES_MAX}, each with a unique id")
        self._session()
        runs = [(of_peer, self._jobs.submit(self._run_peer, of_peer)) for of_peer in by_peer(wanted)]
        results = [result for of_peer, run in runs for result in self._outcome(of_peer, run)]
        return encode_table([results_to_batch(results)], RESULT_SCHEMA)

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """Run a task that follows, until the tserver ends it. Raises OverloadedError when there is no slot for another
        one, UnavailableError while the session starts, and when the task died or lost the tserver.
        """
        spark = self._session()
        with self._followers.acquire(tserver, cluster):
            try:
                ended = run_follow_job(spark, tserver, cluster, run, self._settings)
            except (PySparkException, Py4JError, OSError) as error:
                if self._stopping:
                    raise UnavailableError("the replay process stops") from error
                hung = "" if self._signs is None else self._signs.ended_task(cluster)
                raise UnavailableError(hung or f"the task died: {one_line(error)}") from error
        if ended.error:
            self._note_rest(ended)
            raise UnavailableError(ended.error)

    def note(self, ranges: bytes, results: bytes) -> None:
        """Write the journal's lines of ranges that tasks followed, and remember how far their streams are. Raises
        InvalidInputError, and UnavailableError when the journal can't be written.
        """
        followed = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        rows = results_from_table(decode_table(results, RESULT_SCHEMA))
        if sorted(r.range_id for r in followed) != sorted(row.range_id for row in rows):
            raise InvalidInputError(f"{len(rows)} result rows are not those of {len(followed)} ranges")
        self._note(followed, rows)

    def _note_rest(self, ended: Ended) -> None:
        """Note what a tserver that can't be asked any more may not have noted: what goes above the known progress."""
        known = self._progress.missing(ended.ranges)
        rows = {row.range_id: row for row in ended.results}
        rest = [
            r
            for r, part in zip(ended.ranges, known, strict=True)
            if part and rows[r.range_id].acked_offset >= part.first
        ]
        if rest:
            self._note(rest, [rows[r.range_id] for r in rest])

    def _note(self, followed: Sequence[Range], rows: Sequence[RangeResult]) -> None:
        self._journal.end(self._journal.begin(len(followed)), followed, rows)
        self._progress.record(followed, rows)

    def _session(self) -> SparkSession:
        self.start()
        if not self._clock.wait(self._warm, self._settings.replay.start_timeout_ms) or self._spark is None:
            raise UnavailableError("the Spark session of the replay process has not started yet")
        return self._spark

    def _outcome(self, ranges: Sequence[Range], run: Future[list[RangeResult]]) -> list[RangeResult]:
        try:
            return self._result(ranges, run)
        except BookkeeperError as error:
            return [unshipped(r, RangeError.of(error)) for r in ranges]
        except FutureTimeoutError:
            LOG.critical("a run took more than %d ms: it hangs", self._settings.replay.run_timeout_ms)
            self._break(f"a run took more than {self._settings.replay.run_timeout_ms} ms")
            raise UnavailableError("the replay process hangs and restarts") from None
        except Exception as error:
            if not self._stopping:
                raise
            ended = UnavailableError(f"the replay process stops: {one_line(error)}")
            return [unshipped(r, RangeError.of(ended)) for r in ranges]

    def _result(self, ranges: Sequence[Range], run: Future[list[RangeResult]]) -> list[RangeResult]:
        """The results of a run. Raises what it raises, TimeoutError, and UnavailableError when a process of this run
        can't be ended: the run goes on beside, and has its streams and slots until the process ends.
        """
        give_up_ns = self._clock.boot_ns() + self._settings.replay.run_timeout_ms * 1_000_000
        while not wait([run], RESULT_ROUND_S).done:
            stuck = "" if self._signs is None else self._signs.stuck(ranges)
            if stuck:
                raise UnavailableError(stuck)
            if self._clock.boot_ns() >= give_up_ns:
                raise FutureTimeoutError
        return run.result()

    def _run_peer(self, ranges: Sequence[Range]) -> list[RangeResult]:
        replay = self._settings.replay
        with self._progress.exclusive(ranges, replay.message_timeout_ms + replay.run_budget_ms) as (missing, results):
            return results + self._run_slots(missing) if missing else results

    def _run_slots(self, ranges: Sequence[Range]) -> list[RangeResult]:
        peer = ranges[0].peer_instance_id
        wanted = min(self._cores, len(files_of(ranges)))
        with self._slots.acquire(peer, wanted, SLOT_WAIT_MS) as tasks:
            results = self._run_isolating(ranges, tasks)
        self._progress.record(ranges, results)
        self._slots.record_run(peer, healthy=peer_works(ranges, results))
        return results

    def _run_isolating(self, ranges: Sequence[Range], tasks: int) -> list[RangeResult]:
        spark = self._session()
        run = self._journal.begin(len(ranges))
        try:
            results = run_job(spark, ranges, tasks, self._settings)
            self._failing_since_ns = None
        except (PySparkException, Py4JError) as error:
            if self._stopping:
                raise UnavailableError("the replay process stops") from error
            LOG.warning("a job of %d ranges failed: %s", len(ranges), one_line(error))
            hung = {} if self._signs is None else self._signs.take_ended(ranges)
            if hung:
                return self._without_hung(run, ranges, hung, tasks)
            files = files_of(ranges)
            if len(files) > 1:
                return [result for file in files for result in self._run_isolating(file, 1)]
            died = f"the task that shipped the range died: {one_line(error)}"
            results = [unshipped(r, RangeError(TASK_FAILED_CODE, died, transient=True)) for r in ranges]
            self._note_failure(died)
        except OSError as error:  # a full disk for temporary files, or a lost JVM
            refused = RangeError.of(unavailable("the ranges could not be passed to Spark", error))
            results = [unshipped(r, refused) for r in ranges]
            self._note_failure(refused.message)
        self._journal.end(run, ranges, results)
        return results

    def _without_hung(
        self, run: str, ranges: Sequence[Range], hung: Mapping[WorkAt, str], tasks: int
    ) -> list[RangeResult]:
        """The results of a run whose workers were ended: what they shipped has failed, all else goes again; also
        what a worker got that hung before it had a task.
        """
        lost = [r for r in ranges if work_at(r) in hung]
        if not lost:
            return self._run_isolating(ranges, tasks)
        results = [unshipped(r, RangeError(TASK_FAILED_CODE, hung[work_at(r)], transient=True)) for r in lost]
        self._note_failure(hung[work_at(lost[0])])
        self._journal.end(run, lost, results)
        others = [r for r in ranges if work_at(r) not in hung]
        return results + self._run_isolating(others, tasks) if others else results

    def _note_failure(self, problem: str) -> None:
        """A job failed before it reached its peer. Several threads may note one at once: each time is as good."""
        now_ns = self._clock.boot_ns()
        if self._failing_since_ns is None:
            self._failing_since_ns = now_ns
        elif now_ns - self._failing_since_ns >= FAILING_MS * 1_000_000 and not self._stopping:
            LOG.critical("all jobs have failed for %d ms: %s", FAILING_MS, problem)
            self._break(f"its runs fail: {problem}")


def by_peer(ranges: Sequence[Range]) -> list[list[Range]]:
    """The ranges of one call, by peer: no peer waits for another."""
    shares: dict[str, list[Range]] = {}
    for r in ranges:
        shares.setdefault(r.peer_instance_id, []).append(r)
    return list(shares.values())


def peer_works(ranges: Sequence[Range], results: Sequence[RangeResult]) -> bool:
    """Whether a peer works: it is suspect when it acknowledged nothing and a range has a transient error."""
    finished = {r.range_id: r.finished for r in ranges}
    progress = any(result.acked_offset > finished[result.range_id] for result in results)
    return progress or not any(result.error and result.error.transient for result in results)


def warm_up_ranges(settings: Settings, count: int) -> list[Range]:
    """Ranges of missing files: they start all parts of Spark and ship nothing."""
    target = TargetKey("nobody", "none", "none", 0)
    return [
        Range(n, f"no-such-file-{n}", 1, 1, 0, target, "nobody:1", "nobody", settings.instance.instance_id, 0, n)
        for n in range(count)
    ]


def log_problem(problem: str) -> None:
    """Nobody else is told."""
    LOG.warning("the replay process ends: %s", problem)


def one_line(error: BaseException) -> str:
    """The first line of Spark's error; the log of the process has all of it."""
    if isinstance(error, BookkeeperError):
        return error.message
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
