"""Promises of ZooKeeper's servers to the store (``bookkeeper.coordination.zookeeper.ensemble.Ensemble``).

The real one, and the simulated one of ``tests.support.simulation.ensemble``: a schedule proves nothing about servers
that promise something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.ensemble import (
    ANY,
    Check,
    Create,
    Ensemble,
    Node,
    NotAsExpectedError,
    Remove,
    Write,
)
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl, parse_url
from tests.support.coordination_process import new_root
from tests.support.simulation.ensemble import Link, Quorum, SimAccess, SimEnsemble
from tests.support.simulation.kernel import Kernel
from tests.support.zookeeper import ZooKeeperServer

Servers = Ensemble | SimEnsemble


@pytest.fixture(params=["real", "simulated"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Servers, Servers]]:
    """The connections of two processes to the same empty root."""
    if request.param == "simulated":
        quorum = Quorum(Kernel(Random(0)))
        quorum.commit([Create("/root")])
        accesses = [SimAccess(ZooKeeperUrl("zk:1", "/root"), quorum, Link(None)) for _ in range(2)]
        first, second = (SimEnsemble(access, None, 1_000) for access in accesses)
        yield first, second
        return
    server: ZooKeeperServer = request.getfixturevalue("zookeeper")
    url = parse_url(new_root(server, tmp_path).split(" ")[0])
    with (
        closing(Ensemble(Access(url), SystemClock(), 5_000)) as one,
        closing(Ensemble(Access(url), SystemClock(), 5_000)) as other,
    ):
        yield one, other


def refused(servers: Servers, *changes: Check | Create | Remove | Write) -> tuple[int, bool]:
    """The first change that finds its node otherwise, and whether there is none."""
    with pytest.raises(NotAsExpectedError) as caught:
        servers.commit(*changes)
    return caught.value.index, caught.value.is_missing


def test_a_transaction_names_what_it_finds_otherwise_and_changes_nothing(two: tuple[Servers, Servers]) -> None:
    servers, _ = two
    a, b = servers.at("a"), servers.at("b")
    assert servers.commit(Create(a, b"1"), Write(a, b"2", 0), Check(a, 1)) == [0, 1, 0]
    assert servers.commit(Write(a, b"3", ANY), Check(a)) == [2, 0]
    assert refused(servers, Create(b), Create(a)) == (1, False)
    assert refused(servers, Create(b), Write(a, b"4", 1)) == (1, False)
    assert refused(servers, Create(b), Write(f"{a}x", b"4", ANY)) == (1, True)
    assert refused(servers, Create(b), Check(f"{a}x")) == (1, True)
    assert refused(servers, Create(b), Check(a, 1)) == (1, False)
    assert refused(servers, Remove(a, 1), Create(b)) == (0, False)
    assert refused(servers, Remove(b, ANY)) == (0, True)
    assert refused(servers, Create(f"{b}/under")) == (0, True)
    assert servers.read(a, b) == [Node(b"3", 2), None]


def test_a_node_that_was_made_anew_has_its_first_version(two: tuple[Servers, Servers]) -> None:
    servers, other = two
    a = servers.at("a")
    servers.commit(Create(a), Write(a, b"1", 0))
    assert servers.commit(Remove(a, 1), Create(a, b"2")) == [0, 0]
    assert other.read(a) == [Node(b"2", 0)]
    (written,) = other.written(a)
    assert written is not None
    assert written.version == 0


def test_an_answer_names_the_newest_transaction_that_its_server_knows(two: tuple[Servers, Servers]) -> None:
    servers, other = two
    a, b = servers.at("a"), servers.at("b")
    servers.commit(Create(a), Create(b))
    before = servers.newest_zxid
    servers.commit(Write(a, b"1", 0))
    between = servers.newest_zxid
    servers.commit(Write(b, b"1", 0))
    of_a, of_b, missing = other.written(a, b, servers.at("missing"))
    assert of_a is not None
    assert of_b is not None
    assert missing is None
    assert before < of_a.zxid <= between < of_b.zxid <= servers.newest_zxid
    assert other.newest_zxid >= of_b.zxid


def test_names_are_sorted_and_their_changes_counted(two: tuple[Servers, Servers]) -> None:
    servers, other = two
    servers.commit(Create(servers.at("b")), Create(servers.at("a")))
    _, (before,) = other.watched(lists=[servers.at()])
    servers.commit(Remove(servers.at("b"), 0))
    _, (now,) = other.watched(lists=[servers.at()])
    assert {"a", "b"} <= set(before.names)
    assert before.names == sorted(before.names)
    assert set(before.names) - set(now.names) == {"b"}
    assert now.changes == before.changes + 1
    assert other.names(servers.at()) == now.names


def test_news_are_what_has_changed_since_it_was_watched(two: tuple[Servers, Servers]) -> None:
    servers, other = two
    a = servers.at("a")
    assert other.has_news([a])
    assert other.has_news(lists=[servers.at()])
    other.watched([a], [servers.at()])
    assert not other.has_news([a], [servers.at()])
    servers.commit(Create(a))
    assert other.watched([a], [servers.at()])[0] == [Node(b"", 0)]
    servers.commit(Write(a, b"1", 0))
    other.read(a)
    assert other.watched(lists=[servers.at()])[0] == []
    assert other.has_news([a])
    assert not other.has_news(lists=[servers.at()])
