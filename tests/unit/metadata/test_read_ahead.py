"""The pages of a scan in HBase: in order, one step early at most, and none early for a caller who stops soon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.metadata.hbase.read_ahead import read_ahead


class AtOnce(Executor):
    """Does everything when it is told to, so that nothing depends on time."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_running_or_notify_cancel()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


class Busy(Executor):
    """Begins nothing: all of its threads are busy."""

    def submit(self, *_call: Any, **_named: Any) -> Future[Any]:
        return Future()


def pages(read: list[int], count: int, fails_at: int | None = None) -> Iterator[int]:
    """Numbers, which are noted in ``read`` when they are read."""
    for number in range(count):
        if number == fails_at:
            raise UnavailableError("HBase does not answer")
        read.append(number)
        yield number


@pytest.mark.parametrize("executor", [AtOnce(), Busy()])
@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("alone", [1, 2])
def test_all_pages_come_in_order(executor: Executor, count: int, alone: int) -> None:
    assert list(read_ahead(pages([], count), executor, alone)) == list(range(count))


def test_the_next_page_is_on_its_way_once_the_first_ones_are_taken() -> None:
    read: list[int] = []
    scan = read_ahead(pages(read, 9), AtOnce(), 2)
    seen = [(next(scan), len(read)) for _ in range(5)]
    assert seen == [(0, 1), (1, 2), (2, 4), (3, 5), (4, 6)]


def test_a_caller_takes_the_step_itself_when_no_thread_is_free() -> None:
    with ThreadPoolExecutor(1) as executor:
        go_on = threading.Event()
        executor.submit(go_on.wait)
        try:
            assert list(read_ahead(pages([], 6), executor, 2)) == list(range(6))
        finally:
            go_on.set()


@pytest.mark.parametrize("fails_at", range(5))
def test_an_error_comes_where_its_page_would(fails_at: int) -> None:
    found = []
    with pytest.raises(UnavailableError):  # noqa: PT012 - what came before it counts
        for number in read_ahead(pages([], 6, fails_at), AtOnce(), 2):
            found.append(number)  # noqa: PERF402
    assert found == list(range(fails_at))


def test_a_caller_that_stops_leaves_the_rest_unread() -> None:
    read: list[int] = []
    scan = read_ahead(pages(read, 100), AtOnce(), 2)
    for _ in range(4):
        next(scan)
    scan.close()  # type: ignore[attr-defined]
    assert read == [0, 1, 2, 3, 4]
