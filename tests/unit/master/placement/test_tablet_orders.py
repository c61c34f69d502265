"""Orders on their way: none is lost when many come, tables take turns, and a tablet that is waited for goes first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest
from msgspec import field

from bookkeeper.master.calls.keyed_executors import QUEUE_MAX, Job, KeyedExecutors
from bookkeeper.master.placement.tablet_orders import ORDER_LANES, TabletOrders, order_lanes
from tests.support.tservers import wait_until


class ByHand(KeyedExecutors):
    """Lanes whose jobs a test carries out."""

    jobs: deque[Job] = field(default_factory=deque)

    def submit(self, lane: str, job: Job) -> bool:
        assert lane in order_lanes("t")
        self.jobs.append(job)
        return True

    def run(self, times: int) -> None:
        for _ in range(times):
            self.jobs.popleft()()


def _table_of(row: bytes) -> str:
    return row[:1].decode()


@pytest.fixture
def done() -> list[bytes]:
    return []


@pytest.fixture
def lanes() -> ByHand:
    return ByHand()


@pytest.fixture
def give(lanes: ByHand, done: list[bytes]) -> tuple[TabletOrders, Callable[[bytes], None]]:
    orders = TabletOrders(lanes, _table_of)

    def add(row: bytes) -> None:
        orders.give("t", row, lambda: done.append(row))

    return orders, add


def test_tables_take_turns(
    lanes: ByHand, give: tuple[TabletOrders, Callable[[bytes], None]], done: list[bytes]
) -> None:
    _, add = give
    for number in range(100):
        add(b"1%02d" % number)
    add(b"2")
    lanes.run(2 * ORDER_LANES)
    assert b"2" in done
    assert done[0] == b"100"


def test_a_tablet_that_a_client_waits_for_goes_first(
    lanes: ByHand, give: tuple[TabletOrders, Callable[[bytes], None]], done: list[bytes]
) -> None:
    orders, add = give
    for number in range(100):
        add(b"1%02d" % number)
    orders.hurry("t", b"177")
    orders.hurry("other", b"188")
    orders.hurry("t", b"2")
    lanes.run(2)
    assert done == [b"177", b"100"], "only orders that are open can be hurried"


def test_a_tablet_has_one_order_at_a_time(
    lanes: ByHand, give: tuple[TabletOrders, Callable[[bytes], None]], done: list[bytes]
) -> None:
    _, add = give
    add(b"1")
    add(b"1")
    lanes.run(len(lanes.jobs))
    lanes.run(len(lanes.jobs))
    assert done == [b"1"]
    add(b"1")
    lanes.run(len(lanes.jobs))
    assert done == [b"1", b"1"], "the first one is over"


def test_orders_of_the_dead_are_dropped(
    lanes: ByHand, give: tuple[TabletOrders, Callable[[bytes], None]], done: list[bytes]
) -> None:
    orders, add = give
    for number in range(10):
        add(b"1%d" % number)
    orders.retain(())
    lanes.run(len(lanes.jobs))
    assert done == []
    assert not lanes.jobs
    add(b"11")
    lanes.run(1)
    assert done == [b"11"]


def test_more_orders_than_a_lane_holds_are_all_carried_out() -> None:
    lanes, count, lock = KeyedExecutors(), [0], threading.Lock()
    orders = TabletOrders(lanes, _table_of)

    def one() -> None:
        with lock:
            count[0] += 1

    total = 3 * QUEUE_MAX
    for number in range(total):
        orders.give("t", b"1%d" % number, one)
    wait_until(lambda: count[0] == total, "all orders carried out")
    lanes.stop()
