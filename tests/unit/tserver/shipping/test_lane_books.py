"""The books of a lane: while they are away, streams that they know go on, all else waits, and then all is written.

Runs and tasks have the same rules. A report says no offset that the books lack; nothing is sent twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.replay.ranges import Range
from tests.support.faults import fault
from tests.support.followed_scene import LATER, LIMIT_S, LOG, Scene, acked, followed_scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with followed_scene(tmp_path) as made:
        yield made


def is_put(call: str, _columns: Sequence[bytes]) -> bool:
    return call == "put"


def check_task(scene: Scene) -> None:
    run = scene.open()
    before = len(scene.reports)
    with scene.metadata.failing(is_put):
        scene.logs.note_end(LOG, 5)
        r = scene.one(run)
        scene.logs.note_end(LOG, 9)
        following = scene.one(run, acked(r))
        assert (following.first, following.last) == (6, 9)
        scene.poll(run, acked(following))
        failures = scene.metadata.failures
        # A round puts, and then it reports: the second put shows that a round is over.
        scene.wait_for(lambda: scene.metadata.failures > failures + 1, "a round of the books is over")
        scene.wait_for(lambda: bool(scene.replay.noted), "the journal has it")
        assert scene.finished() == 1
        assert len(scene.reports) == before, "a report says what the books lack"
    scene.wait_finished(9)
    scene.wait_for(lambda: len(scene.reports) > before, "the report comes")
    (report,) = scene.reports[before:]
    assert (report.finished_offset, report.records, report.error) == (9, 8, None)
    assert len(scene.replay.runs) == 1, "no run ships what a task has shipped"


def test_a_task_goes_on_while_the_books_are_away_and_one_report_comes_after_them(scene: Scene) -> None:
    check_task(scene)


def test_without_its_rule_a_report_says_what_the_books_lack(scene: Scene) -> None:
    with fault("reports-come-before-the-books"), pytest.raises(AssertionError, match="what the books lack"):
        check_task(scene)


def check_runs(scene: Scene) -> None:
    """The task does not ask: the lane ships in runs."""
    scene.open_for_runs()
    scene.wait_for(lambda: any(report.txid == "tx" for report in scene.reports), "the run for the range is over")
    before = len(scene.reports)
    with scene.metadata.failing(is_put):
        for end in (5, 9):
            scene.logs.note_end(LOG, end)
            scene.wait_for(lambda end=end: len(scene.peer.rows) == end, f"{end} records at the peer")  # type: ignore[misc]
        assert scene.finished() == 1
        assert len(scene.reports) == before, "a report says what the books lack"
    scene.wait_finished(9)
    scene.wait_for(lambda: len(scene.reports) > before, "the report comes")
    (report,) = scene.reports[before:]
    assert (report.finished_offset, report.records, report.error) == (9, 8, None)
    assert scene.peer.rows == [b"w1-%d" % n for n in range(1, 10)], "nothing is sent twice"


def test_runs_go_on_while_the_books_are_away_and_one_report_comes_after_them(scene: Scene) -> None:
    check_runs(scene)


def test_without_its_rule_a_report_of_a_run_says_what_the_books_lack(scene: Scene) -> None:
    with fault("reports-come-before-the-books"), pytest.raises(AssertionError, match="what the books lack"):
        check_runs(scene)


def test_a_stream_that_the_books_do_not_know_waits_for_them_and_delays_no_task(scene: Scene) -> None:
    run = scene.open()
    with scene.metadata.holding(is_put) as asked:
        scene.wal(LATER)
        assert scene.poll(run) == []
        assert asked.wait(LIMIT_S), "the books are asked"
        scene.logs.note_end(LOG, 5)
        r = scene.one(run)
        assert (r.file, r.first) == (LOG, 2), "a new stream waits, and with it all others"
        assert scene.poll(run, acked(r)) == []
    again = scene.one(run, wait_ms=60_000)
    assert (again.file, again.first, again.last) == (LATER, 1, 1)
    scene.poll(run, acked(again))
    scene.wait_for(lambda: (scene.finished(LOG), scene.finished(LATER)) == (5, 1), "the books have both")


def check_new_stream(scene: Scene) -> None:
    """The task does not ask: the lane ships in runs."""
    scene.open_for_runs()
    with scene.metadata.holding(is_put) as asked:
        scene.wal(LATER)
        assert asked.wait(LIMIT_S)
        scene.logs.note_end(LOG, 5)
        scene.wait_for(lambda: len(scene.peer.rows) >= 5, "5 records at the peer")
        assert scene.peer.rows == [b"w1-%d" % n for n in range(1, 6)], "R20: a stream has no cell, and a message left"
    scene.wait_for(lambda: len(scene.peer.rows) == 6, "the new stream begins")
    scene.wait_for(lambda: (scene.finished(LOG), scene.finished(LATER)) == (5, 1), "the books have both")


def test_a_stream_that_the_books_do_not_know_waits_for_them_and_delays_no_run(scene: Scene) -> None:
    check_new_stream(scene)


def test_r20_without_its_rule_a_stream_begins_without_a_cell(scene: Scene) -> None:
    with fault("streams-begin-without-a-cell"), pytest.raises(AssertionError, match="R20: a stream has no cell"):
        check_new_stream(scene)


def test_a_cell_that_can_not_be_written_is_tried_again_and_the_master_hears_why(scene: Scene) -> None:
    run = scene.open()
    with scene.metadata.failing(is_put):
        scene.wal(LATER)
        assert scene.poll(run) == []
        scene.wait_for(lambda: any(report.file == LATER and report.error for report in scene.reports), "the cause")
        assert scene.poll(run) == []
        scene.logs.note_end(LOG, 5)
        r = scene.one(run)
        assert (r.file, r.first) == (LOG, 2), "its error stops other streams"
        assert scene.poll(run, acked(r)) == []
    scene.jump(1_001)
    assert scene.one(run, wait_ms=60_000).file == LATER
    errors = {(report.error_code, report.error_transient, report.failed_at) for report in scene.reports if report.error}
    assert errors == {("unavailable", True, "books")}


def test_what_runs_brought_is_in_the_books_when_a_tserver_has_stopped(scene: Scene) -> None:
    scene.open_for_runs()
    entered, may_end = threading.Event(), threading.Event()

    def held(_ranges: Sequence[Range]) -> None:
        entered.set()
        may_end.wait(LIMIT_S)

    scene.replay.before = held
    scene.logs.note_end(LOG, 5)
    assert entered.wait(LIMIT_S)
    stopping = threading.Thread(target=scene.worker.stop)
    stopping.start()
    may_end.set()
    stopping.join(LIMIT_S)
    assert scene.finished() == 5
