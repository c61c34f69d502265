"""The books of a lane: while they are away, streams that they know go on, all else waits, and then all is written.

Runs and tasks have the same rules. A report says no offset that the books lack; nothing is sent twice. The journal has
each range before the books have it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.replay.ranges import Range, RangeError
from bookkeeper.tserver.shipping.lane_books import JournalLine, add_line
from tests.support.faults import fault
from tests.support.followed_scene import LATER, LIMIT_S, LOG, Scene, acked, followed_scene
from tests.support.ranges import a_range

AWAY = RangeError("unavailable", "east is away", transient=True)


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
        failures = scene.metadata.failures
        scene.wait_for(lambda: scene.metadata.failures > failures + 1, "a round of the books is over")
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


def check_journal(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    scene.poll(run, acked(r))
    scene.wait_finished(5)
    assert [(line.first, row.acked_offset, row.records) for line, row in scene.replay.noted] == [(2, 5, 4)], (
        "the books are ahead of the journal"
    )


def test_the_journal_has_a_range_before_the_books_have(scene: Scene) -> None:
    check_journal(scene)


def test_without_its_rule_the_books_are_ahead_of_the_journal(scene: Scene) -> None:
    with fault("books-come-before-the-journal"), pytest.raises(AssertionError, match="ahead of the journal"):
        check_journal(scene)


def check_journal_of_a_later_result(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    in_books: list[int] = []

    def bring_more() -> None:
        """While the journal takes the first line, the task brings a later result."""
        in_books.append(scene.finished())
        if len(in_books) == 1:
            scene.logs.note_end(LOG, 9)
            scene.poll(run, acked(scene.one(run)))

    scene.replay.before_note = bring_more
    scene.poll(run, acked(r))
    scene.wait_for(lambda: len(scene.replay.noted) == 2, "both lines are in the journal")
    assert in_books == [1, 5], "the books are ahead of the journal"
    scene.wait_finished(9)


def test_a_result_that_comes_during_a_call_to_the_journal_is_in_the_books_after_its_own_line(scene: Scene) -> None:
    check_journal_of_a_later_result(scene)


def test_without_one_moment_for_both_the_books_are_ahead_of_the_journal(scene: Scene) -> None:
    with fault("cells-are-taken-behind-the-journal"), pytest.raises(AssertionError, match="ahead of the journal"):
        check_journal_of_a_later_result(scene)


def let_a_line_wait(scene: Scene) -> None:
    """A result comes while no replay process answers; now one does."""
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    scene.replay.session.close()
    scene.poll(run, acked(r))
    scene.wait_finished(5)
    assert not scene.replay.noted
    scene.replay.session = scene.replay.coordination.open_session("replay", scene.replay.server.address)


def test_lines_wait_for_a_replay_process_and_cells_do_not(scene: Scene) -> None:
    let_a_line_wait(scene)
    scene.jump(1_000)
    scene.wait_for(lambda: bool(scene.replay.noted), "the line is in the journal")


def test_a_tserver_that_stops_tries_once_more_to_write_lines_that_wait(scene: Scene) -> None:
    let_a_line_wait(scene)
    scene.worker.stop()
    assert [(line.first, row.acked_offset) for line, row in scene.replay.noted] == [(2, 5)]


def test_lines_of_a_stream_that_join_are_one() -> None:
    lines: list[JournalLine] = []
    parts = [a_range("w", 1, 2), a_range("w", 3, 4), a_range("other", 1, 2), a_range("w", 5, 6), a_range("w", 7, 9)]
    for r in parts[:3]:
        add_line(lines, JournalLine(r, acked(r)))
    for r in parts[3:]:
        add_line(lines, JournalLine(r, acked(r, r.finished, AWAY)))
    assert [(line.range.file, line.range.first, line.range.last, line.result.records) for line in lines] == [
        ("w", 1, 6, 4),
        ("other", 1, 2, 2),
        ("w", 7, 9, 0),
    ], "an error ends a line"
