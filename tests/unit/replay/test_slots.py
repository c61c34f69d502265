"""A slow or dead peer never holds the slots that others need."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.clock import SystemClock
from bookkeeper.errors import OverloadedError
from bookkeeper.replay import slots as slots_module
from bookkeeper.replay.slots import SUSPECTS_MAX, WAITING_MAX, FollowerSlots, TaskSlots

PEERS = ("a", "b", "c", "d", "e")


@given(
    total=st.integers(2, 16),
    per_peer=st.integers(1, 4),
    suspects=st.sets(st.sampled_from(PEERS)),
    asks=st.lists(st.tuples(st.sampled_from(PEERS), st.integers(1, 8)), max_size=30),
)
def test_no_order_of_asking_breaks_a_bound(
    total: int, per_peer: int, suspects: set[str], asks: list[tuple[str, int]]
) -> None:
    held: dict[str, int] = {}
    for peer, wanted in asks:
        count = slots_module.grant(total, per_peer, held, suspects, peer, wanted)
        assert 0 <= count <= wanted
        held[peer] = held.get(peer, 0) + count
        assert sum(held.values()) <= total
        assert held[peer] <= (1 if peer in suspects else max(per_peer, total // 2))
        assert sum(held.get(name, 0) for name in suspects) <= total // 2


def test_a_healthy_peer_finds_a_slot_beside_any_number_of_dead_ones() -> None:
    dead = {f"dead{n}": 0 for n in range(100)}
    for peer in dead:
        dead[peer] = slots_module.grant(8, 2, dead, dead.keys(), peer, 2)
    assert sum(dead.values()) == 4, "dead peers take more than half of the slots"
    assert slots_module.grant(8, 2, dead, dead.keys(), "alive", 2) == 2


def test_the_runs_of_many_tservers_to_one_peer_wait_for_no_other() -> None:
    held: dict[str, int] = {}
    got = []
    for _ in range(5):
        got.append(slots_module.grant(8, 2, held, (), "a", 2))
        held["a"] = held.get("a", 0) + got[-1]
    assert got == [2, 1, 1, 0, 0], "a peer takes more than half of the slots, or a run waits for the run of another"
    assert slots_module.grant(8, 2, held, (), "b", 2) == 2


def test_who_waits_goes_on_when_a_slot_is_given_back() -> None:
    slots, got = TaskSlots(2, 2, SystemClock()), threading.Event()

    def waiting() -> None:
        with slots.acquire("b", 1, timeout_ms=60_000):
            got.set()

    with slots.acquire("a", 5, timeout_ms=0) as count:
        assert count == 2
        thread = threading.Thread(target=waiting)
        thread.start()
        assert not got.is_set()
    thread.join(60)
    assert got.is_set()
    assert slots.in_use() == {}


def test_a_run_without_a_slot_in_time_is_declined() -> None:
    slots = TaskSlots(2, 2, SystemClock())
    with (
        slots.acquire("a", 2, timeout_ms=0),
        pytest.raises(OverloadedError, match="tasks_max"),
        slots.acquire("b", 1, 1),
    ):
        pass


def test_few_runs_of_one_peer_wait_and_the_next_is_declined_at_once() -> None:
    slots, declined = TaskSlots(2, 1, SystemClock()), threading.Event()

    def ask() -> None:
        try:
            with slots.acquire("slow", 1, timeout_ms=60_000):
                pass
        except OverloadedError:
            declined.set()

    with slots.acquire("slow", 1, 0):
        threads = [threading.Thread(target=ask) for _ in range(WAITING_MAX + 1)]
        for thread in threads:
            thread.start()
        assert declined.wait(60)
        with slots.acquire("other", 1, 0) as count:
            assert count == 1
    for thread in threads:
        thread.join(60)


def test_a_peer_that_failed_gets_one_slot_until_it_works_again() -> None:
    slots = TaskSlots(4, 2, SystemClock())
    slots.record_run("a", healthy=False)
    with slots.acquire("a", 2, 0) as count:
        assert count == 1
    slots.record_run("a", healthy=True)
    with slots.acquire("a", 2, 0) as count:
        assert count == 2


def test_the_memory_of_suspects_is_bounded() -> None:
    slots = TaskSlots(4, 2, SystemClock())
    for n in range(SUSPECTS_MAX + 1):
        slots.record_run(f"p{n}", healthy=False)
    with slots.acquire("p0", 2, 0) as forgotten, slots.acquire(f"p{SUSPECTS_MAX}", 2, 0) as remembered:
        assert (forgotten, remembered) == (2, 1)


def test_a_task_that_follows_has_a_slot_and_the_next_one_of_the_same_tserver_shares_it() -> None:
    slots = FollowerSlots(1)
    with slots.acquire("hosta:1", "east"):
        with slots.acquire("hosta:1", "east"):
            assert len(slots) == 1
        for tserver, cluster in (("hosta:1", "north"), ("hostb:1", "east")):
            with pytest.raises(OverloadedError, match=r"replay\.followers_max"), slots.acquire(tserver, cluster):
                pass
    assert len(slots) == 0
    with slots.acquire("hostb:1", "east"), pytest.raises(OverloadedError), FollowerSlots(0).acquire("a", "b"):
        pass
