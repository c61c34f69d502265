"""Pure parts of the replay service, and the watch over defined peers."""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import InvalidInputError, UnavailableError
from bookkeeper.replay import service as replay_service
from bookkeeper.replay.journal import read_journal
from bookkeeper.replay.process import PeerWatch
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeError,
    RangeResult,
    check_range,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
    results_to_batch,
    unshipped,
)
from bookkeeper.replay.service import (
    EXIT_BROKEN,
    FAILING_MS,
    ReplayService,
    by_peer,
    one_line,
    peer_works,
    warm_up_ranges,
)
from bookkeeper.replay.spark.signs_of_life import ENDED_MS, GAP_MS, HUNG_MS, SignsOfLife, started_at
from bookkeeper.replay.spark.spark_session import session_conf, spark_master
from bookkeeper.replay.stream.following import Ended
from bookkeeper.storage.volume.opening import open_volume
from tests.support.jumping_clock import TestClock
from tests.support.ranges import a_range
from tests.support.wal_files import EAST, NORTH

AWAY = RangeError("unavailable", "away", transient=True)
GONE = RangeError("not_found", "gone", transient=False)


def result(range_id: int, acked: int, error: RangeError | None = None) -> RangeResult:
    return RangeResult(range_id, acked, 0, None, 0, 0, 0, 0, 0, 0, 0, error, "h", 1, 0.0)


def test_ranges_of_one_call_are_parted_by_peer() -> None:
    ranges = [a_range(f"{n}", 1, 9, range_id=n, instance=(EAST, NORTH)[n % 2]) for n in range(4)]
    assert [[r.range_id for r in share] for share in by_peer(ranges)] == [[0, 2], [1, 3]]


def test_a_peer_is_suspect_when_nothing_gets_through_and_something_may_later() -> None:
    ranges = [a_range("a", 1, 9, range_id=1), a_range("b", 5, 9, range_id=2)]
    assert not peer_works(ranges, [result(1, 0, AWAY), result(2, 4, AWAY)])
    assert not peer_works(ranges, [result(1, 0, AWAY), result(2, 4, GONE)])
    assert peer_works(ranges, [result(1, 3, AWAY), result(2, 4, AWAY)])
    assert peer_works(ranges, [result(1, 0, GONE), result(2, 4)])


def test_of_a_range_without_a_result_nothing_is_claimed_beyond_the_books() -> None:
    row = unshipped(a_range("a", 5, 9, range_id=7), AWAY)
    assert (row.range_id, row.acked_offset, row.records, row.error) == (7, 4, 0, AWAY)


def test_warm_up_ranges_are_ranges_of_files_that_do_not_exist(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    ranges = warm_up_ranges(settings, 3)
    assert len({r.file for r in ranges}) == 3
    for r in ranges:
        check_range(r)
        assert not open_volume(settings).exists(r.file)


def test_every_core_gets_the_slots_of_the_settings_and_another_master_is_left_alone(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    replay = settings.replay
    assert spark_master(settings) == f"local[{replay.tasks_max + 2 * replay.followers_max}]"
    cluster = replace(settings.replay, spark_master="spark://host:7077")
    assert spark_master(replace(settings, replay=cluster)) == "spark://host:7077"


def test_tasks_are_never_tried_twice_at_once_and_small_tables_are_not_cut_again(tmp_path: Path) -> None:
    conf = session_conf(new_settings(tmp_path, "west"), tmp_path)
    assert conf["spark.speculation"] == "false"
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert conf["spark.sql.execution.arrow.localRelationThreshold"] == "0"
    assert conf["spark.python.daemon.module"] == "bookkeeper.replay.spark.daemon"
    assert all(value for value in conf.values())


def test_sparks_own_ports_ask_for_a_secret_where_it_runs_by_itself(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    assert session_conf(settings, tmp_path)["spark.authenticate"] == "true"
    cluster = replace(settings.replay, spark_master="spark://host:7077")
    assert "spark.authenticate" not in session_conf(replace(settings, replay=cluster), tmp_path)


def test_what_spark_says_becomes_one_line() -> None:
    assert one_line(ValueError("\n  first\nsecond")) == "ValueError: first"
    assert one_line(ValueError()) == "ValueError"


def held_process(directory: Path) -> tuple[ReplayService, subprocess.Popen[bytes], queue.Queue[int]]:
    """A service that holds a process which, as the JVM does, ends with its standard input."""
    left: queue.Queue[int] = queue.Queue()
    service = ReplayService(new_settings(directory, "west"), SystemClock(), left.put)
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    service._watch_for_end(process)
    return service, process, left


def test_a_jvm_that_dies_takes_the_process_along(tmp_path: Path) -> None:
    _, process, left = held_process(tmp_path)
    process.kill()
    assert left.get(timeout=60) == EXIT_BROKEN


def test_a_process_that_stops_ends_its_jvm_and_does_not_call_that_a_failure(tmp_path: Path) -> None:
    service, process, left = held_process(tmp_path)
    service.stop(grace_ms=60_000)
    assert process.returncode == 0
    assert left.empty()


class HurriedClock(TestClock):
    """A clock on which waiting takes no time."""

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """See the protocol."""
        self.jump(timeout_ms)
        return event.is_set()


@pytest.mark.parametrize("stops", [False, True])
def test_a_jvm_that_has_ended_in_the_middle_of_a_call_is_no_news_for_a_process_that_stops(
    stops: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = HurriedClock()
    service = ReplayService(new_settings(tmp_path, "west"), clock)

    def ask() -> None:
        if stops:
            service.stop()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    service._ask_jvm(SignsOfLife(tmp_path, os.getpid(), ask, clock))
    said = [] if stops else ["the JVM is not asked any more: ConnectionRefusedError: [Errno 111] Connection refused"]
    assert caplog.messages == said


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_without_java_says_so_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    left: queue.Queue[int] = queue.Queue()
    service = ReplayService(new_settings(tmp_path, "west"), SystemClock(), left.put)
    told: queue.Queue[str] = queue.Queue()
    service.report_problems(told.put)
    service.start()
    problem = told.get(timeout=60)
    assert problem.startswith("the Spark session did not start: there is no Java at JAVA_HOME or on the PATH")
    assert left.get(timeout=60) == EXIT_BROKEN
    for thread in threading.enumerate():
        if thread.name == "replay-start":  # it is over where a process ends
            thread.join(60)
    assert not service.is_warm


class FullSpark:
    """A session whose temporary files do not fit on their disk."""

    def createDataFrame(self, data: object) -> None:  # noqa: N802
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(data)[:0])


def test_ranges_that_spark_has_no_disk_for_are_tried_again_and_say_why(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    settings.logs_dir.mkdir()
    service = ReplayService(settings, SystemClock())
    service._spark, service._started = FullSpark(), True  # type: ignore[assignment]
    service._warm.set()
    ranges = [a_range("a", 1, 9, range_id=1), a_range("b", 5, 9, range_id=2)]
    answer = service.run(encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA))
    found = results_from_table(decode_table(answer, RESULT_SCHEMA))
    assert [(r.range_id, r.acked_offset) for r in found] == [(1, 0), (2, 4)]
    for error in [r.error for r in found]:
        assert error is not None
        assert (error.code, error.transient) == ("no_space", True)
        assert "make room there" in error.message


class LosingSpark:
    """A session whose first job fails because its worker was ended, and whose second one has no disk."""

    def __init__(self, lose: Callable[[], None], again: Sequence[str]) -> None:
        self._lose = lose
        self._again = again
        self.jobs = 0

    def createDataFrame(self, data: pa.Table) -> None:  # noqa: N802
        self.jobs += 1
        if self.jobs == 1:
            self._lose()
            raise PySparkException("Python worker exited unexpectedly")
        assert data.column("file").to_pylist() == self._again, "a file that a worker shipped that hung goes at once"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def hung_worker(directory: Path, clock: TestClock, file: str, instance: str) -> SignsOfLife:
    """A watch that knows of this process, as a worker that ships a file, gives no sign of life, and can't be ended."""
    pid = os.getpid()
    (directory / f"alive-{pid}-{started_at(pid)}").write_bytes(json.dumps(work_in(file, instance)).encode())
    return SignsOfLife(directory, 7, lambda: None, clock, lambda _pid, _started: None)


def work_in(file: str, instance: str) -> dict[str, str]:
    return {"file": file, "cluster": "east", "instance": instance}


def look_on(signs: SignsOfLife, clock: TestClock, ms: int) -> None:
    """Look each second for so long."""
    for _ in range(ms // GAP_MS + 2):
        signs.look()
        clock.jump(GAP_MS)


def service_with(directory: Path, clock: TestClock, spark: object, signs: SignsOfLife) -> ReplayService:
    settings = new_settings(directory, "west")
    settings.logs_dir.mkdir()
    service = ReplayService(settings, clock)
    service._spark, service._started, service._signs = spark, True, signs  # type: ignore[assignment]
    service._warm.set()
    return service


def outcome(service: ReplayService, ranges: Sequence[Range]) -> dict[int, RangeError | None]:
    """The errors of a run."""
    answer = service.run(encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA))
    return {r.range_id: r.error for r in results_from_table(decode_table(answer, RESULT_SCHEMA))}


def test_of_a_run_whose_worker_hung_only_what_it_shipped_fails_and_names_it(tmp_path: Path) -> None:
    clock = TestClock()
    ranges = [a_range("a", 1, 9, range_id=1), a_range("b", 1, 9, range_id=2)]
    signs = hung_worker(tmp_path, clock, "a", ranges[0].peer_instance_id)
    spark = LosingSpark(lambda: look_on(signs, clock, HUNG_MS), ["b"])
    found = outcome(service_with(tmp_path, clock, spark, signs), ranges)
    assert spark.jobs == 2
    hung, other = found[1], found[2]
    assert hung is not None
    assert other is not None
    assert (hung.code, hung.transient, hung.failed_at) == ("task_failed", True, "replay")
    assert f"process {os.getpid()}, which ships a to east, hung" in hung.message
    assert other.code == "no_space"


def test_a_run_that_got_a_worker_which_hung_before_goes_again_at_once(tmp_path: Path) -> None:
    clock = TestClock()
    ranges = [a_range("a", 1, 9, range_id=1), a_range("b", 1, 9, range_id=2)]
    signs = hung_worker(tmp_path, clock, "", "")
    spark = LosingSpark(lambda: look_on(signs, clock, HUNG_MS), ["a", "b"])
    found = outcome(service_with(tmp_path, clock, spark, signs), ranges)
    assert spark.jobs == 2
    assert {error.code for error in found.values() if error is not None} == {"no_space"}


def test_a_run_whose_worker_can_not_be_ended_is_answered_and_names_it(tmp_path: Path) -> None:
    clock, release = TestClock(), threading.Event()

    class Waiting:
        def createDataFrame(self, _data: pa.Table) -> None:  # noqa: N802
            look_on(signs, clock, HUNG_MS + ENDED_MS)
            release.wait(60)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    ranges = [a_range("a", 1, 9, range_id=1)]
    signs = hung_worker(tmp_path, clock, "a", ranges[0].peer_instance_id)
    try:
        found = outcome(service_with(tmp_path, clock, Waiting(), signs), ranges)[1]
    finally:
        release.set()
    assert found is not None
    assert (found.code, found.transient, found.failed_at) == ("unavailable", True, "replay")
    assert found.message == f"process {os.getpid()}, which ships a to east, hangs and can't be ended"


def test_a_process_whose_jobs_all_fail_ends_with_its_last_words(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    settings.logs_dir.mkdir()
    clock, left, told = TestClock(), queue.Queue[int](), queue.Queue[str]()
    service = ReplayService(settings, clock, left.put)
    service.report_problems(told.put)
    service._spark, service._started = FullSpark(), True  # type: ignore[assignment]
    service._warm.set()
    ranges = encode_table(ranges_to_table([a_range("a", 1, 9, range_id=1)]).to_batches(), RANGE_SCHEMA)
    for pause_ms in (0, FAILING_MS / 2):
        clock.jump(pause_ms)
        service.run(ranges)
    assert left.empty(), "it has tried for less than this time"
    clock.jump(FAILING_MS / 2)
    service.run(ranges)
    assert left.get(timeout=60) == EXIT_BROKEN
    assert told.get(timeout=60).startswith("its runs fail: the ranges could not be passed to Spark")


def test_spark_waits_until_a_peer_is_defined(tmp_path: Path) -> None:
    coordination = open_coordination(new_settings(tmp_path, "west"))
    try:
        watch = PeerWatch(coordination)
        assert not watch.are_defined()
        value = {"quorum": "a:1", "instance_id": EAST, "name": "east"}
        coordination.put("/clusters/east", json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
        assert watch.are_defined()
        coordination.delete("/clusters/east")
        assert not watch.are_defined()
    finally:
        coordination.close()


def table_of(ranges: Sequence[Range]) -> bytes:
    return encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)


def rows_of(results: Sequence[RangeResult]) -> bytes:
    return encode_table([results_to_batch(results)], RESULT_SCHEMA)


def test_what_tasks_followed_is_in_the_journal_and_the_next_run_goes_on_behind_it(tmp_path: Path) -> None:
    clock = TestClock()
    signs = SignsOfLife(tmp_path, 7, lambda: None, clock, lambda _pid, _started: None)
    service = service_with(tmp_path, clock, FullSpark(), signs)
    followed = [a_range("a", 1, 9, range_id=0), a_range("b", 1, 4, range_id=1)]
    service.note(table_of(followed), rows_of([result(0, 9), result(1, 0, AWAY)]))
    journal = read_journal(service._settings)
    assert [line.ranges for line in journal.began] == [2]
    assert [(line.file, line.acked, line.error_code) for line in journal.shipped] == [
        ("a", 9, None),
        ("b", 0, "unavailable"),
    ]
    answer = service.run(table_of([a_range("a", 1, 9, range_id=5)]))
    (row,) = results_from_table(decode_table(answer, RESULT_SCHEMA))
    assert (row.acked_offset, row.error) == (9, None), "the worker of a killed tserver ships it again"
    with pytest.raises(InvalidInputError, match="1 result rows are not those of 2 ranges"):
        service.note(table_of(followed), rows_of([result(0, 9)]))


FOLLOWED = (a_range("a", 1, 4, range_id=3), a_range("a", 5, 9, range_id=4), a_range("b", 1, 2, range_id=5))
BROUGHT = (result(3, 4), result(4, 9), result(5, 0, AWAY))


@pytest.mark.parametrize(
    ("ended", "error", "noted"),
    [
        (Ended(), None, []),
        (Ended("it is away"), "it is away", []),
        (Ended("it is away", FOLLOWED, BROUGHT), "it is away", [("a", 5, 9)]),
        (PySparkException("Python worker exited unexpectedly"), "the task died: PySparkException: Python worker", []),
    ],
)
def test_the_end_of_a_task_that_follows_has_its_reason_and_its_last_results_are_noted_once(
    ended: Ended | PySparkException,
    error: str | None,
    noted: list[tuple[str, int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = TestClock()
    signs = SignsOfLife(tmp_path, 7, lambda: None, clock, lambda _pid, _started: None)
    service = service_with(tmp_path, clock, FullSpark(), signs)
    service.note(table_of(FOLLOWED[:1]), rows_of(BROUGHT[:1]))  # the tserver has noted it before it died
    asked: list[tuple[object, ...]] = []

    def job(_spark: object, *order: object) -> Ended:
        asked.append(order[:3])
        assert service.status()["followers"] == "1"
        if isinstance(ended, PySparkException):
            raise ended
        return ended

    monkeypatch.setattr(replay_service, "run_follow_job", job)
    if error is None:
        service.follow("hosta:1", "east", "s-1/east/1")
    else:
        with pytest.raises(UnavailableError, match=error):
            service.follow("hosta:1", "east", "s-1/east/1")
    assert asked == [("hosta:1", "east", "s-1/east/1")]
    assert service.status()["followers"] == "0"
    journal = read_journal(service._settings)
    assert [(line.file, line.first, line.acked) for line in journal.shipped[1:]] == noted
    assert sum(line.ranges for line in journal.began) == len(journal.shipped)
