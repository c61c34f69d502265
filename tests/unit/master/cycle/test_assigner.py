"""Which range goes where next: order, barriers, bounds, and peers that do not delay each other."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.cycle import assigner
from bookkeeper.master.cycle.assigner import (
    PROBES,
    PeerQueue,
    PlanInput,
    QueueKey,
    WorkRange,
    barrier_limit,
    in_order,
    next_range,
    peer_allowance,
    plan_peer,
    queue_key,
    waiting_work,
    work_key,
)
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Flight, Shipments
from bookkeeper.model import TargetKey
from tests.support.faults import fault
from tests.support.master_values import EAST, NORTH, by_name, entry, name, plan_world, report, scopes, shipping

W1, W2, W3 = name("s1"), name("s2"), name("s3")
BOTH = scopes(EAST, NORTH)


def _queue(*entries: FileEntry, key: TargetKey = EAST) -> PeerQueue:
    queue = PeerQueue(1_000)
    for made in entries:
        queue.add(queue_key(made, key, True))
    return queue


def _plan(world: PlanInput, queue: PeerQueue, cluster: str = "east") -> list[WorkRange]:
    """Plan as the dispatcher does: each planned range is in flight before the next one."""
    works = []
    for work in plan_peer(world, cluster, queue):
        works.append(work)
        world.shipping.hand_out(work_key(work), Flight(work.session, "t", work.first, work.last, world.now_ns))
    return works


def _ranges(works: list[WorkRange]) -> list[tuple[bytes, int, int, str]]:
    return [(work.file, work.first, work.last, work.session) for work in works]


# ---- ranges


def test_a_range_begins_behind_the_finished_offset_of_the_books_or_a_later_report() -> None:
    made, work = entry(W1, 9, done={EAST: 3}), shipping()
    assert next_range(made, EAST, Outstanding(), work) == (4, 9)
    work.report(report(W1, 6), 0)
    assert next_range(made, EAST, Outstanding(), work) == (7, 9)
    work.report(report(W1, 9), 0)
    assert next_range(made, EAST, Outstanding(), work) is None


def test_finished_100_and_needed_300_leaves_101_to_300() -> None:
    assert next_range(entry(W1, 300, done={EAST: 100}), EAST, Outstanding(), shipping()) == (101, 300)


def test_no_record_is_shipped_beyond_the_safe_offset() -> None:
    assert next_range(entry(W1, 9, safe=4), EAST, Outstanding(), shipping()) == (1, 4)
    assert next_range(entry(W1, 9, safe=0), EAST, Outstanding(), shipping()) is None


@pytest.mark.parametrize(("finished", "limit"), [(0, 3), (6, 3), (7, 5), (9, 5)])
def test_a_range_stops_before_a_barrier_until_its_file_is_finished_that_far(finished: int, limit: int) -> None:
    first = entry(W1, 9, done={EAST: finished})
    second = entry(W2, 5, barriers=[(4, W1, 7)])
    assert barrier_limit(second, EAST, by_name(first, second), shipping())[0] == limit


def test_a_barrier_of_a_file_that_is_not_outstanding_is_passed() -> None:
    assert barrier_limit(entry(W2, 5, barriers=[(4, W1, 7)]), EAST, Outstanding(), shipping()) == (5, None)


def test_a_barrier_counts_for_each_target_by_itself() -> None:
    first = entry(W1, 9, done={EAST: 9}, known=BOTH)
    second = entry(W2, 5, barriers=[(4, W1, 7)], known=BOTH)
    files = by_name(first, second)
    assert [barrier_limit(second, key, files, shipping())[0] for key in (EAST, NORTH)] == [5, 3]


def test_a_barrier_behind_the_end_of_a_closed_file_is_passed_at_its_end() -> None:
    first = entry(W1, 5, closed=True, done={EAST: 5})
    second = entry(W2, 9, barriers=[(4, W1, 7)])
    assert barrier_limit(second, EAST, by_name(first, second), shipping())[0] == 9


def test_without_barriers_a_delete_overtakes_its_put() -> None:
    first, second = entry(W1, 9), entry(W2, 5, barriers=[(1, W1, 9)])
    assert next_range(second, EAST, by_name(first, second), shipping()) is None
    with fault("barriers-do-not-hold"):
        assert next_range(second, EAST, by_name(first, second), shipping()) == (1, 5)


@given(st.integers(0, 2**32))
def test_barriers_never_deadlock_and_never_let_a_record_pass_too_early(seed: int) -> None:
    """Tablets write and move between servers in real time; then everything is shipped by arbitrary workers."""
    rng = random.Random(seed)
    servers = [name("s", number) for number in range(3)]
    length, home = dict.fromkeys(servers, 0), {tablet: rng.choice(servers) for tablet in range(4)}
    last: dict[int, tuple[bytes, int]] = {}
    barriers: dict[bytes, list[tuple[int, bytes, int]]] = {server: [] for server in servers}
    written: dict[int, list[tuple[bytes, int]]] = {tablet: [] for tablet in range(4)}
    for _ in range(40):
        tablet = rng.randrange(4)
        if rng.random() < 0.3:
            home[tablet] = rng.choice(servers)
        server = home[tablet]
        length[server] += 1
        if tablet in last and last[tablet][0] != server:
            barriers[server].append((length[server], *last[tablet]))
        last[tablet] = (server, length[server])
        written[tablet].append(last[tablet])
    finished = dict.fromkeys(servers, 0)
    while finished != length:
        files = by_name(
            *(entry(s, length[s], barriers=barriers[s], done={EAST: finished[s]}) for s in servers),
        )
        ready = {s: found for s in servers if (found := next_range(files[s], EAST, files, shipping())) is not None}
        assert ready, "nothing may move: deadlock"
        server = rng.choice(sorted(ready))
        first, final = ready[server]
        assert first == finished[server] + 1
        finished[server] = rng.randint(first, final)
        for places in written.values():
            arrived = [offset <= finished[file] for file, offset in places]
            assert arrived == sorted(arrived, reverse=True), "a later record of a tablet arrived before an earlier one"


# ---- who ships


def test_the_tserver_that_wrote_a_file_ships_it_while_it_lives() -> None:
    made = entry(W2, 5)
    assert _ranges(_plan(plan_world(by_name(made)), _queue(made))) == [(W2, 1, 5, "s2")]


def test_a_dead_tservers_file_stays_with_the_one_that_has_it_and_else_goes_to_the_least_busy() -> None:
    made = entry(W3, 5)
    assert _plan(plan_world(by_name(made), chosen={W3: "s2"}), _queue(made))[0].session == "s2"
    work = shipping()
    work.hand_out((W1, EAST), Flight("s1", "t", 1, 2, 0))
    assert _plan(plan_world(by_name(made), work=work), _queue(made))[0].session == "s2"


def _one_for_all_targets() -> None:
    """The load of each peer's lane alone would send a dead tserver's file to two others."""
    made = entry(W3, 5, known=BOTH)
    work = shipping()
    work.hand_out((W1, EAST), Flight("s1", "t", 1, 2, 0))
    work.hand_out((W2, NORTH), Flight("s2", "t", 1, 2, 0))
    world = plan_world(by_name(made), work=work)
    works = [*_plan(world, _queue(made)), *_plan(world, _queue(made, key=NORTH), "north")]
    assert [(work.target.key, work.session) for work in works] == [(EAST, "s2"), (NORTH, "s2")], (
        "two tservers ship one file"
    )


def test_one_tserver_ships_a_file_to_all_targets() -> None:
    _one_for_all_targets()
    made = entry(W2, 5, known=BOTH)
    world = plan_world(by_name(made))
    works = [*_plan(world, _queue(made)), *_plan(world, _queue(made, key=NORTH), "north")]
    assert [work.session for work in works] == ["s2", "s2"], "the one that wrote it"


def test_by_what_each_peer_has_to_do_alone_two_would() -> None:
    with fault("each-target-has-a-tserver"), pytest.raises(AssertionError, match="two tservers ship one file"):
        _one_for_all_targets()


def test_without_a_live_tserver_nothing_is_handed_out() -> None:
    made = entry(W1, 5)
    assert _plan(plan_world(by_name(made), live=()), _queue(made)) == []


def test_a_file_does_not_change_hands_because_its_tserver_is_busy() -> None:
    first, second, other = entry(name("s1", 1), 5), entry(name("s1", 2), 5), entry(name("s2", 1), 5)
    world = plan_world(by_name(first, second, other), lane_max=1)
    assert [work.file for work in _plan(world, _queue(first, second, other))] == [first.file, other.file]


# ---- order and bounds


def test_files_of_a_target_are_handed_out_in_order_of_creation() -> None:
    young, old = entry(W1, 5, created=2_000), entry(W2, 5, created=1_000)
    works = _plan(plan_world(by_name(young, old)), _queue(young, old))
    assert [work.file for work in works] == [W2, W1]


def test_a_blocked_file_does_not_block_those_behind_it() -> None:
    first = entry(W1, 5, safe=0, created=1)
    blocked = entry(W2, 5, barriers=[(1, W1, 5)], created=2)
    free = entry(W3, 5, created=3)
    works = _plan(plan_world(by_name(first, blocked, free), live=("s1", "s2", "s3")), _queue(first, blocked, free))
    assert [work.file for work in works] == [W3]


def test_a_peer_gets_no_more_than_its_bound() -> None:
    entries = [entry(name("s1", number), 5) for number in range(10)]
    world = plan_world(by_name(*entries), peer_max=3)
    queue = _queue(*entries)
    assert len(_plan(world, queue)) == 3
    assert _plan(world, queue) == []
    world.shipping.report(report(entries[0].file, 5, txid="t"), 0)
    assert [work.file for work in _plan(world, queue)] == [entries[3].file]


def test_a_flight_is_extended_when_there_is_more_and_not_repeated() -> None:
    made, work = entry(W1, 5), shipping()
    queue = _queue(made)
    world = plan_world(by_name(made), work=work)
    assert _ranges(_plan(world, queue)) == [(W1, 1, 5, "s1")]
    assert _plan(world, queue) == []
    made.need(8, made.status)
    made.reach(8)
    assert _ranges(_plan(world, queue)) == [(W1, 1, 8, "s1")]
    assert work.load("s1", "east") == 1


def test_finished_work_leaves_the_queue_and_waiting_work_stays() -> None:
    done, waiting = entry(W1, 5, done={EAST: 5}), entry(W2, 5, safe=0)
    queue = _queue(done, waiting)
    assert _plan(plan_world(by_name(done, waiting)), queue) == []
    assert [key[1] for key in queue.keys] == [W2]


def test_r11_work_of_removed_files_or_targets_is_void() -> None:
    made = entry(W1, 5)
    queue = _queue(made)
    assert _plan(plan_world(Outstanding()), queue) == []
    assert queue.keys == []
    stranger = _queue(made, key=NORTH)
    assert _plan(plan_world(by_name(made)), stranger, "north") == []


# ---- peers


def _failing(work: Shipments, cluster: TargetKey, now_ns: int = 0) -> None:
    work.report(report(W1, 0, key=cluster, error="connection refused"), now_ns)


def test_a_peer_that_fails_waits_and_another_does_not() -> None:
    made = entry(W1, 5, known=BOTH)
    work = shipping()
    _failing(work, EAST)
    world = plan_world(by_name(made), work=work)
    assert _plan(world, _queue(made)) == []
    assert len(_plan(world, _queue(made, key=NORTH), "north")) == 1


def test_a_peer_that_failed_is_probed_with_little_until_it_answers() -> None:
    entries = [entry(name("s1", number), 5) for number in range(5)]
    work = shipping()
    _failing(work, EAST)
    later = work.peers["east"].next_try_ns
    world, queue = plan_world(by_name(*entries), work=work, now_ns=later), _queue(*entries)
    assert len(_plan(world, queue)) == PROBES
    work.report(report(entries[0].file, 5, txid="t"), later)
    assert len(_plan(plan_world(by_name(*entries), work=work, now_ns=later), queue)) == 4


def test_without_backoff_an_offline_peer_is_tried_all_the_time() -> None:
    made, work = entry(W1, 5), shipping()
    _failing(work, EAST)
    world = plan_world(by_name(made), work=work)
    assert peer_allowance(world, "east") <= 0
    with fault("backing-off-is-optional"):
        assert len(_plan(world, _queue(made))) == 1


def test_a_permanent_error_holds_back_its_own_range_only() -> None:
    bad, good, work = entry(W1, 5), entry(W2, 5), shipping()
    work.report(report(W1, 0, error="damaged", transient=False), 0)
    works = _plan(plan_world(by_name(bad, good), work=work), _queue(bad, good))
    assert [found.file for found in works] == [W2]


# ---- queues


def test_a_queue_holds_the_first_and_says_that_there_is_more() -> None:
    keys: list[QueueKey] = [(number, name("s", number), EAST) for number in range(6)]
    queue = PeerQueue(4)
    queue.refill(iter(keys))
    assert (queue.keys, queue.overflow) == (keys[:4], True)
    queue.add(keys[5])
    assert queue.keys == keys[:4], "it belongs behind what did not fit"
    queue.add(keys[0])
    assert queue.keys == keys[:4]
    queue.refill(iter(keys[2:5]))
    queue.add(keys[0])
    assert (queue.keys, queue.overflow) == ([keys[0], *keys[2:5]], False)
    queue.add(keys[1])
    assert (queue.keys, queue.overflow) == (keys[:4], True), "a full cycle has to bring the keys that it drops"
    queue.add(keys[5])
    assert queue.keys == keys[:4]


def check_first_of_many() -> None:
    """The clock went back an hour before the server that others' tablets moved to began its logs."""
    oldest = entry(name("s9"), 5, created=4_000_000)
    younger = [
        entry(name("s1", n), 5, created=400_000 + n, barriers=[(1, oldest.file, 5)], closed=True) for n in range(1, 20)
    ]
    files, work = by_name(oldest, *younger), shipping()
    queue = PeerQueue(4)
    queue.refill(
        in_order(waiting_work(sorted(files.values(), key=lambda made: made.file))["east"], "east", True),
        partial(assigner.may_go, files=files, shipping=work),
    )
    assert queue.overflow
    assert [found.file for found in _plan(plan_world(files, work=work), queue)] == [oldest.file], (
        "R24: the log that all others wait for is not in the queue"
    )


def test_r24_the_log_that_all_others_wait_for_goes_though_a_clock_made_it_the_last() -> None:
    check_first_of_many()


def test_r24_a_queue_filled_by_age_alone_would_wait_for_ever() -> None:
    with (
        fault("queues-compare-ages-only"),
        pytest.raises(AssertionError, match="the log that all others wait for is not in the queue"),
    ):
        check_first_of_many()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), unique=True, max_size=40))
def test_waiting_work_comes_in_order_of_creation_without_reading_every_file(places: list[tuple[int, int]]) -> None:
    """Within a directory names ascend with age, as tservers make them."""
    entries = [entry(name(f"s{d}", n), 5, created=n * 7 % 31 + 100 * n + d) for d, n in sorted(places)]
    waiting = waiting_work(entries)
    found = list(in_order(waiting.get("east", []), "east", True))
    assert found == sorted(queue_key(made, EAST, True) for made in entries)
    assert {key[1] for key in in_order(waiting.get("east", []), "east", False)} == {made.file for made in entries}


def test_only_targets_that_lack_something_wait() -> None:
    half = entry(W1, 5, done={EAST: 5}, known=BOTH)
    waiting = waiting_work([half])
    found = {cluster: [key[2] for key in in_order(behind, cluster, True)] for cluster, behind in waiting.items()}
    assert found == {"east": [], "north": [NORTH]}
