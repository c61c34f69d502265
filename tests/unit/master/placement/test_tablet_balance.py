"""The choice of a tserver for each tablet."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.master.index.tablet_index import TabletCounts, TabletIndex
from bookkeeper.master.placement.tablet_balance import (
    Assignment,
    assign_free,
    even_out,
    fair_share,
    is_uneven,
    misplaced,
    missing_sessions,
)
from tests.support.faults import fault
from tests.support.master_values import tablet

LIVE = ("a", "b", "c")
sessions = st.sampled_from([None, "a", "b", "c", "dead"])


@given(st.lists(sessions, max_size=30))
def test_every_free_tablet_gets_a_live_session_and_no_other_is_touched(homes: list[str | None]) -> None:
    tablets = [tablet(b"%03d" % n, None, home) for n, home in enumerate(homes)]
    counts = TabletIndex(tablets).counts
    chosen = {a.tablet.row: a.session for a in assign_free(tablets, LIVE, (), counts)}
    assert set(chosen) == {t.row for t in tablets if t.session not in LIVE}
    assert set(chosen.values()) <= set(LIVE)


@given(st.integers(0, 40))
def test_new_tablets_are_spread_evenly(count: int) -> None:
    chosen = assign_free([tablet(b"%03d" % n) for n in range(count)], LIVE, (), TabletCounts())
    load = Counter(a.session for a in chosen)
    assert count == 0 or max(load.values()) - min(load[s] for s in LIVE) <= 1


def test_each_table_is_spread_by_itself() -> None:
    tablets = [tablet(b"%03d" % n, None, None, str(n % 3 + 1)) for n in range(9)]
    chosen = assign_free(tablets, LIVE, (), TabletCounts())
    assert set(Counter((a.session, a.tablet.extent.table_id) for a in chosen).values()) == {1}


def test_without_a_live_tserver_nothing_is_assigned() -> None:
    assert assign_free([tablet(b"m")], (), (), TabletCounts()) == []


def test_tablets_of_a_dead_session_wait_until_its_logs_are_sealed() -> None:
    waiting = [tablet(b"m", None, "dead")]
    assert assign_free(waiting, LIVE, {"dead"}, TabletCounts()) == []
    assert len(assign_free(waiting, LIVE, (), TabletCounts())) == 1
    with fault("unsealed-tablets-move"):
        assert len(assign_free(waiting, LIVE, {"dead"}, TabletCounts())) == 1, (
            "without R15 it is loaded without its last writes"
        )


def test_a_parked_tablet_is_free_unless_its_last_tserver_left_an_open_log() -> None:
    for had in ("a", "dead"):
        parked = [replace(tablet(b"m"), parked_at=had)]
        assert len(assign_free(parked, LIVE, (), TabletCounts())) == 1
        assert len(assign_free(parked, LIVE, {"dead"}, TabletCounts())) == (had == "a")


@given(st.lists(st.sampled_from(LIVE), max_size=30), st.integers(0, 30))
def test_moves_even_out_and_come_to_an_end(homes: list[str], moves_max: int) -> None:
    tablets = {t.row: t for t in (tablet(b"%03d" % n, None, home) for n, home in enumerate(homes))}
    moves = even_out(TabletIndex(tablets.values()), LIVE, moves_max, {}, lambda _tablet: True)
    assert len(moves) <= moves_max
    load = Counter(homes)
    for move in moves:
        assert move.source is not None
        assert move.source == tablets[move.tablet.row].session
        assert load[move.source] - load[move.session] >= 2
        load[move.source] -= 1
        load[move.session] += 1
    if len(moves) < moves_max:
        assert max((load[s] for s in LIVE), default=0) - min(load[s] for s in LIVE) <= 1


def test_reported_tablets_are_compared_with_assigned_ones() -> None:
    tablets = [tablet(b"a", None, "a"), tablet(b"b", b"a", "a"), tablet(None, b"b", "b")]
    held = {"a": {b"1;a", b"9;x"}, "b": {b"1;b"}}
    missing, strays = misplaced(tablets, held)
    assert [t.row for t in missing] == [b"1;b", b"1<"]
    assert strays == [("a", b"9;x"), ("b", b"1;b")]


def test_tservers_that_did_not_answer_are_left_out() -> None:
    assert misplaced([tablet(b"a", None, "a")], {}) == ([], [])


def test_no_tserver_gets_more_than_its_share_and_other_tablets_wait() -> None:
    free = [tablet(b"%03d" % n) for n in range(10)]
    assert len(assign_free(free, ("a",), (), TabletCounts(), tablets_max=4)) == 4
    counts = TabletCounts()
    counts.add("a", "1", 3)
    chosen = Counter(a.session for a in assign_free(free, ("a", "b"), (), counts, tablets_max=4))
    assert chosen == {"a": 1, "b": 4}


def test_the_master_expects_tservers_back_only_after_an_outage_of_all() -> None:
    gone = [tablet(b"a", None, "x"), tablet(b"b", b"a", "y"), replace(tablet(None, b"b"), parked_at="z")]
    assert missing_sessions(TabletIndex(gone), LIVE) == 3
    assert missing_sessions(TabletIndex([*gone[:2], tablet(None, b"b", "a")]), LIVE) == 0
    assert missing_sessions(TabletIndex([tablet(None)]), LIVE) == 0, "a new table is nobody's yet"
    assert [fair_share(count, 3) for count in (0, 1, 9, 10)] == [0, 1, 3, 4]


@given(st.dictionaries(st.sampled_from(LIVE), st.integers(0, 60)))
def test_tablets_that_are_within_a_tenth_of_the_mean_stay_where_they_are(loads: dict[str, int]) -> None:
    homes = [session for session, count in loads.items() for _ in range(count)]
    index = TabletIndex(tablet(b"%03d" % n, None, home) for n, home in enumerate(homes))
    mean = len(homes) / len(LIVE)
    if is_uneven(index, LIVE):
        assert even_out(index, LIVE, 1, {}, lambda _tablet: True)
    else:
        assert all(abs(loads.get(s, 0) - mean) <= max(1, 0.1 * mean) for s in LIVE)


def test_moves_under_way_count_as_done_and_tablets_that_may_not_move_stay() -> None:
    tablets = [tablet(b"%d" % n, None, "a") for n in range(6)]
    index = TabletIndex(tablets)
    leaving = {move.tablet.row: move for move in even_out(index, ("a", "b"), 2, {}, lambda _tablet: True)}
    assert set(leaving) == {b"1;5", b"1;4"}
    found = even_out(index, ("a", "b"), 9, leaving, lambda moved: moved.row != b"1;3")
    assert found == [Assignment(tablets[2], "b", "a")]
