"""The thread that reads hosts and replicas: what somebody looks at, and for how long."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.monitor import replica_sampler as module
from bookkeeper.monitor.replica_sampler import (
    FORGET_MS,
    HOSTS,
    SUBJECTS_MAX,
    UNREAD,
    ReplicaSample,
    ReplicaSampler,
    Subject,
    read_in_time,
)
from tests.support.jumping_clock import TestClock
from tests.support.monitor_source import HOST, SetSource

INTERVAL_MS = 2_000
CITIES = Subject("cities")


def test_nothing_is_read_before_somebody_looks_and_nothing_after_nobody_does() -> None:
    clock, source = TestClock(), SetSource()
    sampler = ReplicaSampler(source, clock, INTERVAL_MS)
    sampler.sample()
    assert source.calls == []
    first = sampler.look(HOSTS)
    assert not first.done()
    sampler.sample()
    assert (source.calls, first.result().hosts[0]) == (["hosts"], HOST)
    sampler.sample()
    assert source.calls == ["hosts"], "it reads again before the pause is over"
    clock.jump(INTERVAL_MS + 1)
    sampler.sample()
    assert source.calls == ["hosts", "hosts"]
    clock.jump(FORGET_MS + 1)
    sampler.sample()
    assert source.calls == ["hosts", "hosts"], "it reads what nobody looks at"
    assert not sampler.look(HOSTS).done()


def test_viewers_share_the_latest_sample() -> None:
    clock, source = TestClock(), SetSource()
    sampler = ReplicaSampler(source, clock, INTERVAL_MS)
    looks = [sampler.look(CITIES) for _ in range(3)]
    sampler.sample()
    assert source.calls == ["tablets cities"]
    assert {id(look.result()) for look in looks} == {id(sampler.look(CITIES).result())}
    clock.jump(INTERVAL_MS + 1)
    source.found_tablets = source.found_tablets[:1]
    sampler.sample()
    assert len(sampler.look(CITIES).result().tablets) == 1


def test_an_error_keeps_the_values_of_before_and_a_missing_tablet_has_none() -> None:
    clock, source = TestClock(), SetSource()
    sampler = ReplicaSampler(source, clock, INTERVAL_MS)
    subject = Subject("cities", "t1")
    sampler.look(subject)
    sampler.sample()
    for error, shown in (
        (UnavailableError("the books are away"), (1, "the books are away", False)),
        (NotFoundError("no tablet t1"), (0, "no tablet t1", True)),
    ):
        clock.jump(INTERVAL_MS + 1)
        source.error = error
        sampler.sample()
        found = sampler.look(subject).result()
        assert (len(found.tablets), found.problem, found.is_missing) == shown


def test_the_subjects_are_bounded_and_a_look_that_is_pushed_out_gets_an_answer() -> None:
    sampler = ReplicaSampler(SetSource(), TestClock(), INTERVAL_MS)
    looks = [sampler.look(Subject(f"t{number}")) for number in range(SUBJECTS_MAX + 1)]
    assert [look.done() for look in looks] == [True] + [False] * SUBJECTS_MAX
    assert "asked for at once" in looks[0].result().problem


def test_it_samples_at_once_when_a_new_subject_is_asked_for() -> None:
    sampler, stop = ReplicaSampler(SetSource(), SystemClock(), 3_600_000), threading.Event()
    thread = threading.Thread(target=sampler.run, args=(stop,))
    thread.start()
    assert sampler.look(HOSTS).result(60).hosts
    assert sampler.look(CITIES).result(60).tablets
    stop.set()
    sampler.wake()
    thread.join(60)
    assert not thread.is_alive()


def test_an_answer_does_not_wait_for_hosts_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.0)
    pending: Future[ReplicaSample] = ReplicaSampler(SetSource(), TestClock(), INTERVAL_MS).look(HOSTS)
    found = asyncio.run(read_in_time(pending))
    assert (found.problem, found.has_values) == (UNREAD, False)
    assert not pending.cancelled()
