"""The masters to ask: those of a list, or those that a root in ZooKeeper named last, and then those of a new read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.coordination.masters import READ_AGAIN_MS, READ_LIMIT_MS, MasterFinder, normal_quorum, parse_masters
from bookkeeper.coordination.zookeeper.masters_node import MASTERS_MAX, PublicMasters, content_of, masters_of
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl
from bookkeeper.errors import InvalidInputError, OtherInstanceError, UnavailableError
from bookkeeper.rpc.address import Address
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock
from tests.support.must_raise import must_raise

ROOT = "zk://z1:2181,z2:2181/a/east"


class Roots:
    """The answers of ZooKeeper, one after the other; the last one again and again."""

    def __init__(self, *answers: tuple[str, ...] | str) -> None:
        self.answers = list(answers)
        self.limits_ms: list[int] = []

    def read(self, url: ZooKeeperUrl, limit_ms: int) -> PublicMasters:
        assert str(url) == ROOT
        self.limits_ms.append(limit_ms)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise UnavailableError(answer)
        return PublicMasters("i-east", answer)


def asked(finder: MasterFinder, limit_ms: int = 2_000, instance_id: str = "") -> list[str]:
    return [one.address for one in finder.addresses(ROOT, limit_ms, instance_id)]


def test_a_quorum_names_masters_or_a_root() -> None:
    assert parse_masters("h:1,g:2") == (Address("h", 1), Address("g", 2))
    for text in (ROOT, ROOT.removeprefix("zk://")):
        assert parse_masters(text) == ZooKeeperUrl("z1:2181,z2:2181", "/a/east")
    assert [normal_quorum(text) for text in (" h:1,h:1", "z1:2181/east ", "parquet:///x")] == [
        "h:1",
        "zk://z1:2181/east",
        "parquet:///x",
    ]
    for bad in ("", "h", "zk://h:1", "h:1/", "/east", "zk://h:x/east", "h:1//east"):
        with pytest.raises(InvalidInputError):
            normal_quorum(bad)


def test_a_list_is_asked_as_it_is() -> None:
    roots = Roots(("h:9",))
    finder = MasterFinder(TestClock(), roots.read)
    assert [(one.address, one.instance_id) for one in finder.addresses("h:1,g:2", 100)] == [("h:1", ""), ("g:2", "")]
    assert roots.limits_ms == []


def test_a_root_is_read_when_no_known_master_answers_and_no_more_often() -> None:
    clock, roots = TestClock(), Roots(("h:1", "h:2"), ("h:2", "h:3"))
    finder = MasterFinder(clock, roots.read)
    assert next(finder.addresses(ROOT, 100)).instance_id == "i-east"
    assert next(finder.addresses(ROOT, 100)).address == "h:1"
    assert asked(finder) == ["h:1", "h:2"], "a read of this second is read again"
    clock.jump(READ_AGAIN_MS)
    assert next(finder.addresses(ROOT, 100)).address == "h:1"
    assert len(roots.limits_ms) == 1
    assert asked(finder) == ["h:1", "h:2", "h:3"]
    assert asked(finder) == ["h:2", "h:3"]
    assert len(roots.limits_ms) == 2


def test_a_read_that_fails_keeps_what_is_known_and_is_no_reason_to_ask_often() -> None:
    clock, roots = TestClock(), Roots(("h:1",), "no server answers", ("h:2",))
    finder = MasterFinder(clock, roots.read)
    assert asked(finder) == ["h:1"]
    clock.jump(READ_AGAIN_MS)
    for _ in range(3):
        found = finder.addresses(ROOT, 100)
        assert next(found).address == "h:1"
        with pytest.raises(UnavailableError, match="no server answers"):
            next(found)
    assert len(roots.limits_ms) == 2
    clock.jump(READ_AGAIN_MS)
    assert asked(finder) == ["h:1", "h:2"]


def test_a_read_takes_no_longer_than_its_caller_has() -> None:
    clock, roots = TestClock(), Roots(("h:1",))
    finder = MasterFinder(clock, roots.read)
    asked(finder, limit_ms=300)
    clock.jump(READ_AGAIN_MS)
    asked(finder, limit_ms=600_000)
    assert roots.limits_ms == [300, READ_LIMIT_MS]


def a_root_of_another_instance_names_nobody() -> None:
    """R23: the root belongs to another cluster now, or an attacker writes it."""
    clock, roots = TestClock(), Roots(("h:1",))
    finder = MasterFinder(clock, roots.read)
    for _ in range(2):
        with must_raise(
            OtherInstanceError, "R23: masters of another instance are asked", match="is the root of instance"
        ):
            asked(finder, instance_id="i-north")
    assert asked(finder, instance_id="i-east") == ["h:1"]
    assert len(roots.limits_ms) == 1


def test_r23_a_root_of_another_instance_names_nobody() -> None:
    a_root_of_another_instance_names_nobody()


def test_without_r23_masters_of_another_instance_are_asked() -> None:
    with fault("zookeeper-masters-of-anybody"), pytest.raises(AssertionError, match="of another instance are asked"):
        a_root_of_another_instance_names_nobody()


def many_streams_read_once() -> None:
    """All streams of a peer miss its masters at once."""
    begun, go_on = threading.Event(), threading.Event()
    roots = Roots(("h:1",))

    def read(url: ZooKeeperUrl, limit_ms: int) -> PublicMasters:
        begun.set()
        assert go_on.wait(60)
        return roots.read(url, limit_ms)

    finder = MasterFinder(TestClock(), read)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(asked, finder, 60_000) for _ in range(8)]
        assert begun.wait(60)
        go_on.set()
        assert [one.result() for one in found] == [["h:1"]] * 8
    assert len(roots.limits_ms) == 1, "each stream connects to ZooKeeper"


def test_many_streams_read_once() -> None:
    many_streams_read_once()


def test_without_turns_each_stream_reads() -> None:
    with fault("zookeeper-masters-read-by-each"), pytest.raises(AssertionError, match="each stream connects"):
        many_streams_read_once()


def test_a_caller_without_time_does_not_wait_for_the_read_of_another() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def read(_url: ZooKeeperUrl, _limit_ms: int) -> PublicMasters:
        begun.set()
        assert go_on.wait(60)
        return PublicMasters("i-east", ("h:1",))

    finder = MasterFinder(TestClock(), read)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(asked, finder)
        assert begun.wait(60)
        with pytest.raises(UnavailableError, match="does not answer yet where the masters"):
            asked(finder, limit_ms=1)
        go_on.set()
        assert first.result() == ["h:1"]


def test_the_leading_master_comes_first_and_the_node_has_a_bound() -> None:
    assert masters_of(content_of("i-east", ["h:2", "h:1", "h:3", "h:1"], "h:3")).masters == ("h:3", "h:1", "h:2")
    assert masters_of(content_of("i-east", ["h:1"], None)) == PublicMasters("i-east", ("h:1",))
    many = [f"host-{number}.example:65535" for number in range(1_000)]
    assert len(masters_of(content_of("i-east", many, many[-1])).masters) == MASTERS_MAX
