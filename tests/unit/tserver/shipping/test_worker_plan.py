"""The next ranges of a lane: merged, right behind the progress of the stream, within the range, each in its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import (
    AT_BOOKS,
    AT_REPLAY,
    FAILED_AT,
    IncompatibleError,
    OverloadedError,
    PeerOlderError,
    UnavailableError,
)
from bookkeeper.model import BlockRange
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.tserver.shipping.worker_plan import (
    GAPS_MAX,
    PROGRESS_MAX,
    Confirmed,
    LanePlan,
    Outcome,
    Queued,
    StreamProgress,
    behind_earlier_log,
    failed,
    is_stale,
    merged_item,
    must_read_books,
    outcome_after,
    outcome_of,
    ranges_of,
    report_of,
    skip_quarantined,
    stream_of,
)
from tests.support.wal_files import EAST, TO_EAST, WEST

AWAY = RangeError("unavailable", "away", transient=True)
GAP = RangeError("gap", "less here", transient=True)


def item(first: int, last: int, file: str = "w", epoch: int = 1, txid: str = "tx") -> WorkItem:
    return WorkItem(txid, file, TO_EAST, first, last, "east:1", EAST, epoch)


def result(
    acked: int, position: int = 0, high_water: int | None = None, error: RangeError | None = None
) -> RangeResult:
    return RangeResult(0, acked, position, high_water, 10, 1000, 2, 1, 1, 10, 1000, error, "h", 1, 0.1)


def plan_with(*items: WorkItem, ranges_max: int = 10) -> LanePlan:
    plan = LanePlan(ranges_max)
    for one in items:
        plan.offer(one)
    return plan


# ---- what is in quarantine

HELD = BlockRange(5, 9, 40, 90)


@pytest.mark.parametrize(
    ("progress", "passed", "after"),
    [
        (StreamProgress(4, 4, 40), [HELD], StreamProgress(9, 9, 90)),
        (StreamProgress(3, 3, 30), [HELD], StreamProgress(3, 3, 30)),
        (StreamProgress(9, 9, 90), [HELD], StreamProgress(9, 9, 90)),
        (StreamProgress(4, 4, 40), [BlockRange(10, 10, 90, 0), HELD], StreamProgress(10, 10, 0)),
        (StreamProgress(4, 20), [HELD], StreamProgress(9, 20, 90)),
        (StreamProgress(0, 0), [BlockRange(1, 4, 0, 40), BlockRange(6, 7, 50, 60)], StreamProgress(4, 4, 40)),
    ],
)
def test_r19_progress_moves_past_quarantined_ranges_right_behind_it(
    progress: StreamProgress, passed: list[BlockRange], after: StreamProgress
) -> None:
    assert skip_quarantined(progress, passed, lambda _blocks: (0, 0)) == after


def test_what_is_in_quarantine_is_not_lacked_twice() -> None:
    said = {HELD: (7, 700), BlockRange(10, 10, 90, 0): (0, 0)}
    progress = skip_quarantined(StreamProgress(4, 4, 40, 3, 300), said, said.__getitem__)
    assert progress == StreamProgress(10, 10, 0, 7, 700), "a damaged block says nothing, and no sum falls"


def test_a_range_ends_before_what_is_in_quarantine_and_the_rest_stays_queued() -> None:
    queued = Queued(replace(item(1, 20), passed=(HELD, BlockRange(15, 16, 0, 0))), 1)
    for progress, span in (
        (StreamProgress(0, 0), (1, 4)),
        (StreamProgress(9, 9), (10, 14)),
        (StreamProgress(16, 16), (17, 20)),
    ):
        (shipped,) = ranges_of([queued], [progress], WEST)
        assert (shipped.first, shipped.last) == span
    assert outcome_after(queued, StreamProgress(0, 0), result(4)).queued == queued


def test_a_range_that_is_handed_out_again_with_a_new_quarantine_is_not_taken_for_a_repeat() -> None:
    plan = plan_with(item(1, 20))
    plan.take()
    plan.offer(replace(item(1, 20), passed=(HELD,)))
    (queued,) = plan.take()
    assert queued.item.passed == (HELD,)


def test_a_run_of_its_own_is_a_stream_of_its_own() -> None:
    run = replace(item(5, 9), run_id="again", passed=(BlockRange(1, 4, 0, 40),))
    plan = plan_with(item(1, 20), run)
    assert [(queued.item.run_id) for queued in plan.take()] == ["", "again"]
    progress = skip_quarantined(StreamProgress(0, 0), run.passed, lambda _blocks: (0, 0))
    (shipped,) = ranges_of([Queued(run, 1)], [progress], WEST)
    assert (shipped.first, shipped.last, shipped.finished, shipped.position_hint) == (5, 9, 4, 40)
    assert shipped.stream.run_id == "again"


def test_a_report_names_what_failed_for_good() -> None:
    refused = replace(result(4, error=RangeError("invalid_input", "too long", transient=False)), failed=HELD)
    report = report_of(item(1, 20), outcome_of(Queued(item(1, 20), 1), StreamProgress(0, 0), refused), refused, 0)
    assert (report.error_code, report.failed, report.finished_offset) == ("invalid_input", HELD, 4)
    assert report_of(item(1, 20), Outcome(StreamProgress(4, 4), None, None), refused, 0).failed is None


# ---- queueing


def test_the_same_range_again_changes_nothing() -> None:
    once, twice = plan_with(item(1, 10)), plan_with(item(1, 10), item(1, 10))
    assert once.take() == twice.take()


@given(st.permutations([item(1, 10), item(1, 20), item(11, 15), item(5, 7)]))
def test_extensions_of_a_range_become_one_up_to_the_farthest(items: list[WorkItem]) -> None:
    (queued,) = plan_with(*items).take()
    assert queued.item.last_offset == 20


def test_the_words_of_a_deposed_master_do_not_replace_those_of_the_new_one() -> None:
    new, old = item(1, 10, epoch=5, txid="new"), item(1, 20, epoch=4, txid="old")
    assert merged_item(new, old) == replace(new, last_offset=20) == merged_item(old, new)


def test_a_full_lane_says_so_and_still_takes_extensions() -> None:
    plan = plan_with(item(1, 10, "a"), item(1, 10, "b"), ranges_max=2)
    with pytest.raises(OverloadedError):
        plan.offer(item(1, 10, "c"))
    plan.offer(item(1, 20, "a"))
    assert [q.item.last_offset for q in plan.take()] == [20, 10]
    with pytest.raises(OverloadedError):
        plan.offer(item(1, 10, "c"))
    assert len(plan) == 2


def test_what_is_handed_out_again_while_it_runs_is_not_run_twice() -> None:
    plan = plan_with(item(1, 10))
    (queued,) = plan.take()
    plan.offer(item(1, 10))
    assert not plan.queue
    plan.offer(item(1, 30))
    plan.settle([(queued, Outcome(StreamProgress(10, 10, 99), None, None))])
    (more,) = plan.take()
    assert (more.item.last_offset, plan.progress_of[stream_of(more.item)].offset) == (30, 10)


def test_a_new_master_gets_an_answer_in_its_own_words_about_a_range_under_way() -> None:
    plan = plan_with(item(1, 10))
    (queued,) = plan.take()
    plan.offer(item(1, 10, epoch=2, txid="new"))
    plan.settle([(queued, Outcome(StreamProgress(10, 10), None, None))])
    (again,) = plan.take()
    assert again.item.txid == "new"
    assert is_stale(plan.progress_of[stream_of(again.item)], again.item)


def test_the_least_recently_served_goes_first() -> None:
    plan = plan_with(item(1, 100, "a"))
    (a,) = plan.take()
    plan.offer(item(1, 10, "b"))
    plan.settle([(a, outcome_after(a, StreamProgress(0, 0), result(50)))])
    assert [q.item.file for q in plan.take()] == ["b", "a"]


def test_who_was_not_served_for_lack_of_time_goes_before_those_who_were() -> None:
    plan = plan_with(item(1, 100, "a"), item(1, 100, "b"))
    for first, second in (("a", "b"), ("b", "a"), ("a", "b")):
        served, starved = plan.take()
        assert (served.item.file, starved.item.file) == (f"{first}", f"{second}")
        unserved = replace(result(0), blocks=0)
        plan.settle(
            [
                (served, outcome_after(served, StreamProgress(0, 0), result(5))),
                (starved, outcome_after(starved, StreamProgress(0, 0), unserved)),
            ]
        )


def test_what_is_remembered_of_streams_is_bounded() -> None:
    plan = LanePlan(1)
    for n in range(PROGRESS_MAX + 5):
        plan.remember((f"{n}", TO_EAST, ""), StreamProgress(n, n))
    assert len(plan.progress_of) == PROGRESS_MAX
    assert ("0", TO_EAST, "") not in plan.progress_of


# ---- what is shipped


def test_a_range_starts_right_behind_the_progress_of_its_stream() -> None:
    queued = Queued(item(21, 30), 1)
    (r,) = ranges_of([queued], [StreamProgress(10, 10, 555)], WEST)
    assert (r.first, r.last, r.finished, r.position_hint, r.own_instance_id) == (11, 30, 10, 555, WEST)


def test_a_range_that_is_finished_already_is_not_shipped_and_reported_as_done() -> None:
    queued = Queued(item(1, 10), 1)
    assert ranges_of([queued], [StreamProgress(12, 12)], WEST) == []
    outcome = outcome_of(queued, StreamProgress(12, 12), None)
    assert report_of(queued.item, outcome, None, 0).finished_offset == 12


def test_the_books_are_read_when_nothing_is_known_or_the_master_knows_more() -> None:
    assert must_read_books(None, item(1, 10))
    assert must_read_books(StreamProgress(5, 5), item(9, 10))
    assert not must_read_books(StreamProgress(5, 5), item(6, 10))
    assert not must_read_books(StreamProgress(5, 5), item(1, 10))


@given(
    items=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=8),
    progress_of=st.lists(st.integers(0, 60), min_size=1, max_size=8),
)
def test_nothing_is_ever_shipped_past_what_was_handed_out(items: list[tuple[int, int]], progress_of: list[int]) -> None:
    plan = LanePlan(100)
    for first, length in items:
        plan.offer(item(first, first + length))
    farthest = max(first + length for first, length in items)
    for offset in progress_of:
        for r in ranges_of(plan.take(), [StreamProgress(offset, offset)], WEST):
            assert offset < r.first <= r.last <= farthest, "a range is shipped past what was handed out"
        plan.offer(item(*items[0]))


# ---- what an outcome means


def test_a_complete_range_leaves_the_queue() -> None:
    assert outcome_after(Queued(item(1, 10), 1), StreamProgress(0, 0), result(10, 777)) == Outcome(
        StreamProgress(10, 10, 777), None, None
    )


def test_a_short_one_without_an_error_stays_queued_behind_what_is_done() -> None:
    queued = Queued(item(1, 10), 1)
    assert outcome_after(queued, StreamProgress(0, 0), result(6, 99)) == Outcome(StreamProgress(6, 6, 99), queued, None)


def test_an_error_keeps_what_was_acknowledged_and_leaves_the_rest_to_the_master() -> None:
    outcome = outcome_after(Queued(item(1, 10), 1), StreamProgress(0, 0), result(6, 99, error=AWAY))
    assert outcome == Outcome(StreamProgress(6, 6, 99), None, AWAY), "what was sent counts as finished"
    report = report_of(item(1, 10), outcome, result(6, error=AWAY), 3)
    assert (report.finished_offset, report.error, report.error_transient, report.queued_ranges) == (6, "away", True, 3)


def test_after_a_gap_reading_goes_on_behind_the_peers_high_water() -> None:
    queued = Queued(item(11, 20), 1)
    outcome = outcome_after(queued, StreamProgress(10, 10, 500), result(10, high_water=4, error=GAP))
    assert outcome == Outcome(StreamProgress(4, 10), replace(queued, gaps=1), None)
    (r,) = ranges_of([queued], [outcome.progress], WEST)
    assert (r.first, r.finished, r.position_hint) == (5, 4, 0)


def test_what_is_shipped_again_after_a_gap_does_not_turn_the_books_back() -> None:
    outcome = outcome_after(Queued(item(11, 20), 1, gaps=1), StreamProgress(4, 10), result(7, 300))
    assert (outcome.progress.offset, outcome.progress.recorded) == (7, 10)
    outcome = outcome_after(Queued(item(11, 20), 1, gaps=1), StreamProgress(4, 10), result(20, 900))
    assert (outcome.progress.offset, outcome.progress.recorded) == (20, 20)


def test_a_gap_that_contradicts_the_progress_is_reported_and_not_tried_for_ever() -> None:
    outcome = outcome_after(Queued(item(11, 20), 1), StreamProgress(10, 10), result(10, high_water=10, error=GAP))
    assert (outcome.queued, outcome.error) == (None, GAP)
    outcome = outcome_after(
        Queued(item(11, 20), 1, gaps=GAPS_MAX), StreamProgress(10, 10), result(10, high_water=4, error=GAP)
    )
    assert (outcome.queued, outcome.error) == (None, GAP)


OLDER = RangeError(PeerOlderError.code, "east lacks 3 records", transient=False)
LAST = Confirmed(5, 40, 1_000)


def test_the_last_acknowledged_block_goes_with_the_next_range_and_has_the_check_in_of_its_run() -> None:
    queued = Queued(item(1, 20), 1)
    acked = replace(result(8, 99), block_first=5, block_position=40)
    progress = outcome_after(queued, StreamProgress(0, 0), acked, checked_in_ms=1_000).progress
    assert progress.confirmed == LAST
    (r,) = ranges_of([queued], [progress], WEST)
    assert (r.confirm_file, r.confirm_first, r.confirm_position) == ("w", 5, 40)
    later = outcome_after(queued, progress, result(9, 120), checked_in_ms=2_000).progress
    assert later.confirmed == LAST, "a run that sent nothing acknowledged nothing"
    quarantined = skip_quarantined(later, [BlockRange(10, 12, 120, 150)], lambda _blocks: (0, 0))
    assert (quarantined.offset, quarantined.confirmed) == (12, LAST)


def test_after_an_older_peer_was_noted_the_rest_is_shipped_without_the_question() -> None:
    queued = Queued(item(1, 20), 1)
    outcome = outcome_after(queued, StreamProgress(8, 8, 99, confirmed=LAST), result(8, error=OLDER))
    assert outcome == Outcome(StreamProgress(8, 8, 99), queued, None)


def test_a_new_log_asks_for_the_last_block_of_the_one_before() -> None:
    (begun,) = ranges_of([Queued(item(1, 5, file="w4"), 1)], [StreamProgress(0, 0)], WEST)
    known = {(f"w{n}", TO_EAST, ""): StreamProgress(8, 8, confirmed=replace(LAST, first=n)) for n in (1, 2, 3, 5)}
    known["w3", TO_EAST, ""] = StreamProgress(8, 8)
    known["w2", TO_EAST, "run"] = StreamProgress(8, 8, confirmed=LAST)

    def asks(r: Range, gone: str = "") -> tuple[str, int]:
        found = behind_earlier_log(r, known, lambda file: file != gone)
        return found.confirm_file, found.confirm_first

    assert asks(begun) == ("w2", 2)
    assert asks(begun, gone="w2") == ("w1", 1)
    assert asks(begun, gone="w4") == ("", 0), "a log of another session"
    assert asks(replace(begun, run_id="run")) == ("", 0)
    assert asks(replace(begun, finished=1, first=2)) == ("", 0)
    assert asks(replace(begun, target=replace(TO_EAST, incarnation=9))) == ("", 0)


def test_a_failed_run_finishes_nothing() -> None:
    outcome = failed(StreamProgress(5, 5), UnavailableError("no replay process"))
    assert (outcome.progress, outcome.queued) == (StreamProgress(5, 5), None)
    assert outcome.error == RangeError("unavailable", "no replay process", transient=True, failed_at=AT_BOOKS)
    no_run = UnavailableError("no replay process", {FAILED_AT: AT_REPLAY})
    assert failed(StreamProgress(5, 5), no_run).error == RangeError("unavailable", "no replay process", transient=True)


def test_records_that_nobody_handed_out_can_not_be_finished() -> None:
    queued = Queued(item(101, 300), 1)
    assert outcome_after(queued, StreamProgress(100, 100), result(300)).progress.recorded == 300
    with pytest.raises(IncompatibleError, match=r"offset 301 would pass the 300 that are needed"):
        outcome_after(queued, StreamProgress(100, 100), result(301))
