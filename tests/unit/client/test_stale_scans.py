"""Scans with a stated age: followers answer while they do, the leader else, and no page goes back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from bookkeeper.client import Client
from bookkeeper.client.stale_choice import followers_to_ask, may_ask_followers
from tests.support.fake_cluster import NOW_MS, FakeCluster
from tests.support.faults import fault

LETTERS = b"abcdefghij"
STALE_MS = 500
FRESH = NOW_MS - 100


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """One tablet, whose leader is the first of three tservers; the others hold a copy of all."""
    with FakeCluster(tservers=3) as made:
        for tserver in made.tservers:
            tserver.records += [
                {
                    "row": bytes([letter]),
                    "family": b"f",
                    "qualifier": b"q",
                    "visibility": b"",
                    "timestamp": 5,
                    "delete": False,
                    "value": b"v",
                }
                for letter in LETTERS
            ]
        for tserver in made.tservers[1:]:
            tserver.follows[made.extents[0]] = (7, FRESH)
        yield made


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    with Client.connect(cluster.quorum, rng=random.Random(1)) as made:
        yield made


def rows(batches: list[pa.RecordBatch]) -> bytes:
    return b"".join(row for batch in batches for row in batch.column("row").to_pylist())


def test_a_follower_answers_all_pages_and_the_scan_says_as_of_when(cluster: FakeCluster, client: Client) -> None:
    scanner = client.scan("t", stale_ms=STALE_MS)
    assert rows(list(scanner)) == LETTERS
    assert scanner.as_of_ms == FRESH
    assert cluster.tservers[0].scans == 0
    assert sorted(tserver.scans for tserver in cluster.tservers[1:]) == [0, 5], "pages of a tablet change the host"


def test_without_an_age_the_leader_answers(cluster: FakeCluster, client: Client) -> None:
    scanner = client.scan("t")
    assert rows(list(scanner)) == LETTERS
    assert scanner.as_of_ms is None
    assert [tserver.scans for tserver in cluster.tservers] == [5, 0, 0]


def test_a_scan_that_followers_are_too_old_for_is_the_leaders(cluster: FakeCluster, client: Client) -> None:
    for tserver in cluster.tservers[1:]:
        tserver.follows[cluster.extents[0]] = (7, NOW_MS - STALE_MS - 1)
    scanner = client.scan("t", stale_ms=STALE_MS)
    assert rows(list(scanner)) == LETTERS
    assert scanner.as_of_ms is None
    assert [tserver.scans for tserver in cluster.tservers] == [5, 1, 1], "a follower is asked again behind its leader"


def test_red_followers_are_asked_behind_the_leader(cluster: FakeCluster, client: Client) -> None:
    with fault("followers-behind-the-leader"), pytest.raises(AssertionError, match="asked again behind its leader"):
        test_a_scan_that_followers_are_too_old_for_is_the_leaders(cluster, client)


def test_followers_answer_while_nobody_leads(cluster: FakeCluster, client: Client) -> None:
    cluster.move(_0=None)
    scanner = client.scan("t", stale_ms=STALE_MS)
    assert rows(list(scanner)) == LETTERS
    assert scanner.as_of_ms == FRESH


def test_a_follower_that_is_away_is_passed_over(cluster: FakeCluster, client: Client) -> None:
    list(client.scan("t"))
    cluster.tserver_servers[1].stop()
    for _ in range(4):
        scanner = client.scan("t", stale_ms=STALE_MS)
        assert rows(list(scanner)) == LETTERS
        assert scanner.as_of_ms == FRESH
    assert cluster.tservers[2].scans == 20


def test_pages_of_a_tablet_never_go_back(cluster: FakeCluster, client: Client) -> None:
    extent = cluster.extents[0]
    got = b""
    scanner = client.scan("t", stale_ms=STALE_MS)
    for number, batch in enumerate(scanner):
        got += rows([batch])
        if number == 0:
            for tserver in cluster.tservers[1:]:
                tserver.follows[extent] = (6, FRESH + 50)
    assert got == LETTERS
    assert scanner.as_of_ms == FRESH
    assert cluster.tservers[0].scans > 0, "a page of an older state follows one of a newer state"
    asked = [least for tserver in cluster.tservers for least in tserver.least_states]
    assert set(asked) == {None, 7}


def test_the_age_is_that_of_the_oldest_page(cluster: FakeCluster, client: Client) -> None:
    extent = cluster.extents[0]
    scanner = client.scan("t", stale_ms=STALE_MS)
    for batch in scanner:
        assert batch.num_rows
        for tserver in cluster.tservers[1:]:
            tserver.follows[extent] = (8, FRESH + 50)
    assert scanner.as_of_ms == FRESH
    list(scanner)
    assert scanner.as_of_ms == FRESH + 50, "another iteration is another scan"


@pytest.mark.parametrize(
    ("stale_ms", "is_first", "state_id", "may"),
    [(None, True, None, False), (5, True, None, True), (5, False, 3, True), (5, False, None, False)],
)
def test_behind_a_page_of_the_leader_only_the_leader_answers(
    stale_ms: int | None, is_first: bool, state_id: int | None, may: bool
) -> None:
    assert may_ask_followers(stale_ms, is_first, state_id) == may


def test_the_host_of_the_page_before_is_first_and_the_others_are_by_chance() -> None:
    hosts = [f"h{number}" for number in range(5)]
    orders = {tuple(followers_to_ask(hosts, "h0", "h3", {"h1"}, random.Random(seed))) for seed in range(30)}
    assert orders == {("h3", "h2", "h4"), ("h3", "h4", "h2")}
    firsts = {followers_to_ask(hosts, None, None, (), random.Random(seed))[0] for seed in range(99)}
    assert firsts == set(hosts)
