"""The streams that a task follows: what it gets, which of its results count, and who ships while it does not ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.older_peers import lost_since
from bookkeeper.errors import IncompatibleError, NoSpaceError, PeerOlderError
from bookkeeper.model import BlockRange
from bookkeeper.replay.ranges import (
    TASK_FAILED_CODE,
    Range,
    RangeError,
)
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.runtime.threads import SELDOM_MS
from bookkeeper.tserver.shipping.follower import (
    FOLLOW_MS,
    OVERLAP_MS,
    PAUSE_BASE_MS,
    QUIET_MS,
    RECORDS_MAX,
    SILENT_MS,
    is_for_runs,
)
from bookkeeper.tserver.shipping.lane_books import Unreported
from bookkeeper.tserver.shipping.worker_plan import Outcome, StreamProgress
from tests.support.faults import fault
from tests.support.followed_scene import LATER, LIMIT_S, LOG, PLACE, Scene, acked, followed_scene
from tests.support.ranges import a_range
from tests.support.wal_files import EAST, TO_EAST

RED_LIMIT_S = 4.0
AWAY = RangeError("unavailable", "east is away", transient=True)
REFUSED = RangeError("invalid_input", "too long", transient=False)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with followed_scene(tmp_path) as made:
        yield made


def assert_in_time(event: threading.Event) -> None:
    assert event.wait(LIMIT_S)


def test_a_task_gets_a_record_when_it_is_durable_and_brings_what_the_peer_has(scene: Scene) -> None:
    run = scene.open()
    asked: list[list[Range] | None] = []
    waiting = threading.Thread(target=lambda: asked.append(scene.poll(run, wait_ms=60_000)))
    waiting.start()
    scene.logs.note_end(LOG, 5)
    waiting.join(LIMIT_S)
    assert asked[0] is not None
    (r,) = asked[0]
    assert (r.file, r.first, r.last, r.finished, r.peer_quorum) == (LOG, 2, 5, 1, "memory://east")
    assert scene.poll(run, acked(r)) == []
    scene.wait_finished(5)
    assert len(scene.replay.runs) == 1, "the range before"


def check_late_results(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    lost = scene.one(run)
    again = scene.one(run)  # without results: the answer did not reach the task
    assert (again.first, again.last) == (2, 5)
    found = scene.poll(run, acked(lost)) or []
    assert [(r.first, r.last) for r in found] == [(2, 5)], "a result of an older batch counts"
    scene.poll(run, acked(found[0]))
    scene.wait_finished(5)


def test_results_of_an_older_batch_do_not_count(scene: Scene) -> None:
    check_late_results(scene)


def test_without_their_own_ids_results_of_an_older_batch_count(scene: Scene) -> None:
    with fault("ids-of-ranges-repeat"), pytest.raises(AssertionError, match="a result of an older batch counts"):
        check_late_results(scene)


def test_what_a_task_may_have_sent_and_never_told_is_in_the_journal_as_lost(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    scene.one(run)
    is_told = threading.Event()
    scene.replay.before = lambda _ranges: assert_in_time(is_told)
    scene.replay.endings[run].put("its process was killed")
    scene.wait_for(lambda: bool(scene.replay.noted), "a line")
    ((line, row),) = scene.replay.noted
    assert (line.first, row.acked_offset) == (2, 1)
    assert row.error is not None
    assert (row.error.code, row.error.message) == (TASK_FAILED_CODE, "its process was killed")
    scene.wait_for(lambda: any(one.error == "its process was killed" for one in scene.reports), "the cause")
    is_told.set()
    scene.wait_finished(5)


def check_too_much(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    scene.logs.note_end(LOG, 9)
    scene.poll(run, acked(r, 9))
    scene.wait_for(lambda: any(report.error_code == "incompatible" for report in scene.reports), "an error")
    assert scene.finished() == 1


def test_a_result_above_what_was_handed_out_is_an_error_and_counts_nothing(scene: Scene) -> None:
    check_too_much(scene)


def test_without_its_rule_a_result_above_what_was_handed_out_breaks_the_lane(scene: Scene) -> None:
    with fault("results-go-above-their-range"), pytest.raises(IncompatibleError, match="more than it was asked for"):
        check_too_much(scene)


def check_silent_task(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    replay = scene.worker._tools.settings.replay
    scene.jump(replay.message_timeout_ms + replay.run_budget_ms + 1)
    scene.wait_finished(5)
    assert [r.first for r in scene.replay.runs[-1]] == [2], "a run ships what the task had"
    assert scene.poll(run, acked(r)) is None, "the task is over"


def test_ranges_are_taken_back_from_a_task_that_brings_no_results(scene: Scene) -> None:
    check_silent_task(scene)


def test_without_its_rule_a_silent_task_stops_its_streams(scene: Scene) -> None:
    scene.limit_s = RED_LIMIT_S
    with fault("silent-tasks-keep-their-ranges"), pytest.raises(AssertionError, match="never: the books have 5"):
        check_silent_task(scene)


def check_dead_poll(scene: Scene) -> None:
    run = scene.open()
    answers: list[list[Range] | None] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.poll(run, wait_ms=60_000)))
    waiting.start()
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: follower._tasks[run].polls == 2, "the poll waits")
    scene.replay.endings[run].put("its process was killed")
    scene.wait_for(lambda: run not in follower._tasks, "the end of the task is known")
    scene.logs.note_end(LOG, 5)
    waiting.join(LIMIT_S)
    assert answers == [None], "a poll of a dead task takes ranges"


def test_a_poll_whose_task_died_takes_no_range(scene: Scene) -> None:
    check_dead_poll(scene)


def test_without_its_rule_a_poll_outlives_its_task(scene: Scene) -> None:
    with fault("polls-outlive-their-tasks"), pytest.raises(AssertionError, match="a poll of a dead task"):
        check_dead_poll(scene)


def test_a_task_that_dies_while_its_ranges_are_prepared_gets_none_and_no_error_is_told(scene: Scene) -> None:
    run = scene.open()
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.logs.note_end(LOG, 5)
    with scene.worker._lanes["east"]._lock:
        batch = follower._next(run, follower._tasks[run], 0)
    assert batch
    scene.replay.endings[run].put("its process was killed")
    scene.wait_for(lambda: run not in follower._tasks, "the end of the task is known")
    assert follower._hand_out(run, batch) == []
    scene.wait_finished(5)
    assert [r.first for r in scene.replay.runs[-1]] == [2], "a run ships it"
    assert not scene.replay.noted
    assert not [report for report in scene.reports if report.error]


def test_only_the_last_poll_of_a_task_gets_ranges(scene: Scene) -> None:
    run = scene.open()
    answers: list[list[Range] | None] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.poll(run, wait_ms=60_000)))
    waiting.start()
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: follower._tasks[run].polls == 2, "it waits")
    assert scene.poll(run) == [], "the task has asked again: its connection broke"
    scene.logs.note_end(LOG, 5)
    waiting.join(LIMIT_S)
    assert answers == [[]]
    assert scene.one(run).last == 5


def test_the_next_task_begins_before_the_last_one_ends_and_ships_behind_its_batch(scene: Scene) -> None:
    run = scene.open()
    scene.jump(FOLLOW_MS - OVERLAP_MS - 1)
    assert scene.poll(run) == []
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    scene.jump(2)
    following = scene.replay.begun.get(timeout=LIMIT_S)
    scene.logs.note_end(LOG, 9)
    assert scene.poll(following) == [], "a batch is under way"
    answers: list[list[Range] | None] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.poll(following, wait_ms=600_000)), daemon=True)
    waiting.start()
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: follower._waiting == 1, "the next task waits")
    assert scene.poll(run, acked(r)) is None, "the next task asks already"
    waiting.join(scene.limit_s)
    assert run in follower._tasks, "a record waits for the end of the last task"
    (last,) = answers[0] or []
    assert (last.first, last.last) == (6, 9)
    scene.poll(following, acked(last))
    scene.wait_finished(9)
    assert len(scene.replay.runs) == 1, "no run ships at the change"


def check_run_hands_over(scene: Scene) -> None:
    run = scene.open()
    entered, goes_on = threading.Event(), threading.Event()

    def hold(_ranges: object) -> None:
        entered.set()
        assert_in_time(goes_on)

    scene.replay.before = hold
    scene.jump(SILENT_MS + 1)
    scene.logs.note_end(LOG, 5)
    assert_in_time(entered)
    assert scene.poll(run) == [], "a run has the stream"
    scene.logs.note_end(LOG, 9)
    scene.worker.assign([scene.item(6, 9, txid="later")])
    goes_on.set()
    found: list[Range] = []

    def is_shipped() -> bool:
        found.extend(scene.poll(run) or ())
        return bool(found) or scene.finished() == 9

    scene.wait_for(is_shipped, "somebody ships the rest")
    assert [(r.first, r.last) for r in found] == [(6, 9)], "a run ships what the task could"


def test_a_run_hands_its_stream_over_to_the_task_also_when_the_master_has_handed_out_more(scene: Scene) -> None:
    check_run_hands_over(scene)


def test_without_its_rule_runs_keep_a_stream_as_long_as_it_grows(scene: Scene) -> None:
    with fault("runs-keep-their-streams"), pytest.raises(AssertionError, match="a run ships what the task could"):
        check_run_hands_over(scene)


def check_first_task(scene: Scene, none_within_s: float = 1.0) -> None:
    entered = threading.Event()
    scene.replay.before = lambda _ranges: entered.set()
    scene.wal(LOG)
    scene.worker.assign([scene.item(1, 1)])
    run = scene.replay.begun.get(timeout=LIMIT_S)
    assert not entered.wait(none_within_s), "a run ships the first record"
    assert scene.one(run, wait_ms=60_000).last == 1


def test_the_first_record_waits_for_the_task_that_begins_with_it(scene: Scene) -> None:
    check_first_task(scene)


def test_without_its_rule_a_run_ships_the_first_record(scene: Scene) -> None:
    with fault("first-records-go-in-runs"), pytest.raises(AssertionError, match="a run ships the first record"):
        check_first_task(scene, LIMIT_S)


def test_a_run_ships_the_first_record_when_the_task_does_not_ask(scene: Scene) -> None:
    run = scene.open_for_runs()
    assert len(scene.replay.runs) == 1
    assert scene.poll(run) == []


def check_owed_report(scene: Scene) -> None:
    run = scene.open()
    before = len(scene.reports)
    scene.worker.assign([scene.item(2, 5, txid="later")])
    assert len(scene.reports) == before, "no report without news: it would end a row of failures"
    scene.logs.note_end(LOG, 5)
    found = scene.poll(run)
    assert found, "a range of the master starts a run beside the task"
    scene.poll(run, acked(found[0]))
    scene.wait_for(lambda: any(report.txid == "later" for report in scene.reports), "the master's range is reported")
    (report,) = scene.reports[before:]
    assert (report.finished_offset, report.records, report.error) == (5, 4, None)
    scene.worker.assign([scene.item(2, 5, txid="again")])
    scene.wait_for(lambda: any(report.txid == "again" for report in scene.reports), "a finished range is reported")
    assert len(scene.replay.runs) == 1, "no run for a stream that a task follows"


def test_a_range_of_the_master_starts_no_run_and_is_reported_when_it_is_finished(scene: Scene) -> None:
    check_owed_report(scene)


def test_without_its_rule_the_master_waits_for_a_report(scene: Scene) -> None:
    scene.limit_s = RED_LIMIT_S
    with fault("followed-ranges-owe-no-report"), pytest.raises(AssertionError, match="never: a finished range"):
        check_owed_report(scene)


def test_without_its_rule_a_range_of_the_master_starts_a_run(scene: Scene) -> None:
    with fault("followed-ranges-start-runs"), pytest.raises(AssertionError, match="a run beside the task"):
        check_owed_report(scene)


def test_progress_is_reported_when_it_is_in_the_books(scene: Scene) -> None:
    run = scene.open()
    before = len(scene.reports)
    for number, end in enumerate((5, 9), 1):
        scene.logs.note_end(LOG, end)
        scene.poll(run, acked(scene.one(run)))
        scene.wait_for(lambda number=number: len(scene.reports) == before + number, "a report")  # type: ignore[misc]
        assert scene.finished() == end
    assert [(report.finished_offset, report.records) for report in scene.reports[before:]] == [(5, 4), (9, 4)]


def test_a_report_needs_news() -> None:
    item = WorkItem("tx", LOG, TO_EAST, 1, 9, "memory://east", EAST, 1)
    idle = Unreported(item, Outcome(StreamProgress(5, 5), None, None), None)
    assert not idle.has_news
    idle.is_owed = True
    assert not idle.has_news
    assert replace(idle, outcome=Outcome(StreamProgress(9, 9), None, None)).has_news
    assert replace(idle, outcome=Outcome(StreamProgress(5, 5), None, AWAY)).has_news


def test_the_books_learn_of_needed_offsets_a_little_later_while_a_task_ships_all_of_them(scene: Scene) -> None:
    assert not scene.logs.is_followed(), "no stream is open"
    run = scene.open()
    assert scene.logs.is_followed()
    scene.logs.note_end(LOG, 5)
    scene.poll(run, acked(scene.one(run), 1, AWAY))
    assert not scene.logs.is_followed(), "the peer is away: the master shows what it lacks"
    scene.jump(501)
    assert scene.logs.is_followed()
    scene.poll(run, acked(scene.one(run), 1, REFUSED))
    assert not scene.logs.is_followed(), "the master shows what the peer refuses"
    scene.worker.assign([scene.item(2, 5)])
    assert scene.logs.is_followed()
    scene.replay.endings[run].put("it was killed")
    scene.wait_for(lambda: not scene.logs.is_followed(), "runs ship")


@pytest.mark.parametrize("error", [AWAY, REFUSED, RangeError(NoSpaceError.code, "full", transient=True)])
def test_an_error_is_reported_at_once_with_its_cause_and_only_a_transient_one_is_tried_again(
    scene: Scene, error: RangeError
) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 9)
    r = scene.one(run)
    assert scene.poll(run, acked(r, 5, error)) == [], "a pause, or for ever"
    scene.wait_for(lambda: any(report.error == error.message for report in scene.reports), "the cause")
    scene.wait_finished(5)
    scene.jump(501)
    again = scene.poll(run)
    assert [(r.first, r.last) for r in again or ()] == ([(6, 9)] if error.transient else [])


def check_quarantine(scene: Scene) -> None:
    run = scene.open()
    bad = BlockRange(2, 5, 0, 0)
    scene.logs.note_end(LOG, 9)
    scene.poll(run, acked(scene.one(run), 1, REFUSED))
    scene.worker.assign([scene.item(2, 9, passed=(bad,))])
    followed = [r.first for r in scene.poll(run) or ()]
    assert not followed, "R19: a task gets quarantined records"
    scene.wait_finished(9)
    assert scene.peer.rows == [b"w1-%d" % n for n in (1, 6, 7, 8, 9)]


def test_a_run_goes_past_quarantined_records_and_the_task_goes_on_behind(scene: Scene) -> None:
    check_quarantine(scene)
    assert not is_for_runs(scene.item(6, 9, passed=(BlockRange(2, 5, 0, 0),)), 5)


def test_without_its_rule_a_task_ships_quarantined_records(scene: Scene) -> None:
    with fault("tasks-ship-quarantined-records"), pytest.raises(AssertionError, match="R19: a task gets"):
        check_quarantine(scene)


def test_a_backlog_is_for_runs() -> None:
    item = WorkItem("tx", LOG, TO_EAST, 1, RECORDS_MAX + 5, "memory://east", EAST, 1)
    assert is_for_runs(item, 4)
    assert not is_for_runs(item, 5)


def check_one_way(scene: Scene, none_within_s: float = 1.0) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    entered = threading.Event()
    scene.replay.before = lambda _ranges: entered.set()
    scene.worker.assign([scene.item(2, 5, passed=(BlockRange(6, 9, 0, 0),))])
    lane = scene.worker._lanes["east"]
    scene.jump(1)
    assert not entered.wait(none_within_s), "a run ships a stream that a task ships"
    assert lane._plan.queue
    scene.poll(run, acked(r))
    scene.wait_for(lambda: not lane._plan.queue, "the lane takes it when the task has brought its results")


def test_a_run_waits_for_the_task_that_ships_its_stream(scene: Scene) -> None:
    check_one_way(scene)


def test_without_its_rule_a_stream_has_a_run_and_a_task(scene: Scene) -> None:
    with fault("runs-and-tasks-ship-the-same"), pytest.raises(AssertionError, match="a stream that a task ships"):
        check_one_way(scene, LIMIT_S)


def test_a_peer_that_came_back_older_is_noted_before_a_later_record_goes_there(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    assert (r.confirm_file, r.confirm_first) == (LOG, 1)
    older = RangeError(PeerOlderError.code, "east lacks 1 record", transient=False)
    again = scene.one(run, acked(r, 1, older))
    assert (again.first, again.last, again.confirm_first) == (2, 5, 0), "it is not asked again"
    assert lost_since(scene.worker._tools.coordination, EAST) is not None
    scene.poll(run, acked(again))
    scene.wait_finished(5)


def test_the_stream_goes_on_in_the_next_log_and_ends_with_its_target(scene: Scene) -> None:
    run = scene.open()
    scene.wal(LATER)
    r = scene.one(run, wait_ms=60_000)
    assert (r.file, r.first, r.last) == (LATER, 1, 1)
    scene.poll(run, acked(r))
    del scene.places[TO_EAST]
    scene.logs.note_end(LATER, 9)
    assert not scene.poll(run), "the lane may have ended the stream before"
    assert scene.poll(run) is None, "nothing is left to follow"


def test_a_lane_without_a_stream_to_follow_waits(scene: Scene) -> None:
    run = scene.open()
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    assert 0 < follower.wait_ms <= SILENT_MS
    scene.replay.endings[run].put("its process was killed")
    scene.wait_for(lambda: not follower._tasks, "the end of the task is known")
    assert follower.wait_ms == PAUSE_BASE_MS
    scene.places.clear()
    scene.clock.now_ns += (PAUSE_BASE_MS + 1) * 1_000_000
    assert follower.wait_ms == SILENT_MS, "the lane spins"
    scene.clock.now_ns += QUIET_MS * 1_000_000
    assert follower.wait_ms == SELDOM_MS


def test_a_directory_is_not_followed(scene: Scene) -> None:
    scene.places[TO_EAST] = replace(PLACE, takes_small_messages=False)
    scene.wal(LOG)
    scene.worker.assign([scene.item(1, 1)])
    scene.wait_finished(1)
    scene.worker.assign([scene.item(2, 9)])
    scene.wait_finished(9)
    assert scene.replay.begun.empty()


@pytest.mark.parametrize("lacks_the_call", [False, True])
def test_without_a_task_runs_ship_and_a_task_is_tried_again_after_a_pause(scene: Scene, lacks_the_call: bool) -> None:
    """A replay process of an earlier version, and one that has no slot."""
    dispatcher = scene.replay.server._dispatcher
    if lacks_the_call:
        del dispatcher._call_bytes_max["follow"]
    scene.wal(LOG)
    scene.worker.assign([scene.item(1, 1)])
    if not lacks_the_call:
        scene.replay.endings[scene.replay.begun.get(timeout=LIMIT_S)].put("no slot")
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: follower._failures == 1, "the call failed")
    scene.logs.note_end(LOG, 9)
    scene.wait_finished(9)
    assert scene.replay.begun.empty(), "a pause"
    dispatcher._call_bytes_max["follow"] = 1 << 20
    scene.jump(PAUSE_BASE_MS + 1)
    assert scene.replay.begun.get(timeout=LIMIT_S)


def test_without_a_replay_process_the_reports_say_so_until_there_is_one(scene: Scene) -> None:
    scene.replay.session.close()
    scene.wal(LOG)
    scene.worker.assign([scene.item(1, 1)])
    scene.wait_for(lambda: any("no replay process" in (report.error or "") for report in scene.reports), "the cause")
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: follower._failures == 1, "the pause before the next task has begun")
    scene.replay.session = scene.replay.coordination.open_session("replay", scene.replay.server.address)
    scene.jump(PAUSE_BASE_MS + 1)
    assert scene.replay.begun.get(timeout=LIMIT_S)


def check_names_of_tasks(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    r = scene.one(run)
    scene.next_session()
    scene.wal(LATER)
    scene.worker.assign([scene.item(1, 1, file=LATER)])
    following = scene.replay.begun.get(timeout=LIMIT_S)
    again = scene.one(following, wait_ms=60_000)
    assert (again.file, again.range_id) == (LATER, r.range_id)
    assert scene.poll(run, acked(r)) is None, "a result for the tserver before counts for this one"


def test_a_result_for_the_tserver_that_had_this_address_before_changes_nothing(scene: Scene) -> None:
    check_names_of_tasks(scene)


def test_without_sessions_in_their_names_tasks_are_taken_for_each_other(scene: Scene) -> None:
    with fault("names-of-tasks-repeat"), pytest.raises(AssertionError, match="the tserver before counts"):
        check_names_of_tasks(scene)


def test_after_minutes_without_a_record_the_task_ends_and_the_next_record_begins_one(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    scene.poll(run, acked(scene.one(run)))
    scene.jump(QUIET_MS + 1)
    assert scene.poll(run) is None
    scene.replay.endings[run].put("")
    follower = scene.worker._lanes["east"]._follower
    assert follower is not None
    scene.wait_for(lambda: not follower._tasks, "its thread is free")
    assert scene.replay.begun.empty()
    scene.logs.note_end(LOG, 9)
    following = scene.replay.begun.get(timeout=LIMIT_S)
    assert scene.one(following, wait_ms=60_000).last == 9


def test_a_task_of_another_session_or_of_no_lane_is_over(scene: Scene) -> None:
    assert scene.poll("s-0/east/1") is None
    scene.open()
    scene.logs.note_end(LOG, 5)
    assert scene.poll("s-0/east/7", acked(a_range(LOG, 2, 5, range_id=0))) is None
    assert scene.finished() == 1


def test_a_task_ends_with_its_tserver(scene: Scene) -> None:
    run = scene.open()
    answers: list[list[Range] | None] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.poll(run, wait_ms=60_000)))
    waiting.start()
    scene.worker.stop()
    waiting.join(LIMIT_S)
    assert answers == [None]


def test_a_tserver_that_stops_has_written_what_its_task_brought(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 5)
    scene.poll(run, acked(scene.one(run)))
    scene.worker.stop()
    assert scene.finished() == 5


def test_a_run_ships_what_a_task_left_behind_when_it_ended(scene: Scene) -> None:
    run = scene.open()
    scene.logs.note_end(LOG, 9)
    r = scene.one(run)
    lane = scene.worker._lanes["east"]
    follower = lane._follower
    assert follower is not None
    assert follower._out is not None
    with lane._lock:  # its results are here, and its next poll is not
        follower._settle(follower._out, {0: replace(acked(r, 5), range_id=0)}, "")
    scene.replay.endings[run].put("its process was killed")
    scene.wait_finished(9)
    assert [r.first for r in scene.replay.runs[-1]] == [6], "the rest waits for a task"
