"""When nothing of a log is under way any more (rule R22): a round of questions over clusters that go on meanwhile.

The model: clusters hand records of one log on along edges; the received records lie in logs of the cluster's own, and a
log goes when all its targets have it, or get it no more: then a message may wait in the peer. Between any two questions
records may move. The law: while a cluster owes some of the log, or may come to owe it, the log is never called over;
when nothing is left and every cluster answers, it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.master.origins import origin_termination
from bookkeeper.master.origins.origin_books import (
    RootRow,
    is_forgotten_by_time,
    is_long_gone,
    may_ask_about,
    recipient_puts,
    standing,
)
from bookkeeper.master.origins.origin_termination import Round, Route, ask_round, farthest_first
from bookkeeper.metadata import keys
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import HandedOn, RootQuestion, RootStanding
from tests.support.faults import fault

LOG = RootLog("a", "a/1.wal")


@dataclass
class Cluster:
    """``logs``: those that hold records of it, each with the peers that lack them still, and how they came here.
    ``waiting``: messages that a process here has not taken yet, of which logs of which cluster, and how they came.
    """

    peers: list[str]
    logs: dict[int, tuple[set[str], frozenset[str]]] = field(default_factory=dict)
    handed: dict[tuple[str, str], int] = field(default_factory=dict)
    waiting: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    senders: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def take(self, passed: frozenset[str], sender: str) -> None:
        """A record that has passed these clusters comes."""
        self.made += 1
        self.senders[sender] = 1
        self.logs[self.made] = ({peer for peer in self.peers if peer not in passed}, passed)


class World:
    """Any graph; the log of a was just deleted."""

    def __init__(self, edges: Mapping[str, Sequence[str]], rng: Random, disabled: float = 0) -> None:
        self.rng = rng
        self.disabled = disabled
        self.clusters = {name: Cluster(list(peers)) for name, peers in edges.items()}
        self.silent: set[str] = set()
        for peer in edges["a"]:
            self._arrive(peer, ("a", LOG.file), frozenset(("a", peer)))

    @property
    def owes(self) -> bool:
        """Whether anybody does, or may come to."""
        return any(cluster.logs or cluster.waiting for cluster in self.clusters.values())

    def move(self) -> None:
        """A record goes along an edge, or waits there when its target is disabled; a log that all have goes; a process
        goes on, and takes what waited, or drops it.
        """
        busy = [(name, number) for name, cluster in self.clusters.items() for number in cluster.logs]
        held = [(name, stream) for name, cluster in self.clusters.items() for stream in cluster.waiting]
        if held and (not busy or self.rng.random() < 0.1):
            name, stream = self.rng.choice(held)
            passed = self.clusters[name].waiting.pop(stream)
            if self.rng.random() < 0.5:
                self.clusters[name].take(passed, stream[0])
        elif busy:
            self._send(*self.rng.choice(busy))

    def _send(self, name: str, number: int) -> None:
        cluster = self.clusters[name]
        lacking, passed = cluster.logs[number]
        if not lacking:
            del cluster.logs[number]
            return
        peer = self.rng.choice(sorted(lacking))
        lacking.remove(peer)
        cluster.handed.setdefault((peer, f"{number}.wal"), 0)
        self._arrive(peer, (name, f"{number}.wal"), passed | {peer})

    def _arrive(self, peer: str, stream: tuple[str, str], passed: frozenset[str]) -> None:
        if self.rng.random() < self.disabled:
            self.clusters[peer].waiting[stream] = passed
        else:
            self.clusters[peer].take(passed, stream[0])

    def ask(self, route: Route, questions: Sequence[RootQuestion]) -> list[RootStanding]:
        """The cluster at the end of a route answers; all clusters go on a little."""
        for _ in range(self.rng.choice((0, 0, 0, 0, 0, 0, 1, 2, 3))):
            self.move()
        for here, there in zip(("a", *route), route, strict=False):
            if there not in self.clusters[here].peers:
                raise NotFoundError(f"{there} is not defined at {here}")
            if there in self.silent:
                raise UnavailableError(f"{there} does not answer")
        if not all(self._may_speak(here, there) for here, there in zip(("a", *route), route, strict=False)):
            return [RootStanding(False, False, (), True)]
        cluster = self.clusters[route[-1]]
        gone = {key: 1 for key in cluster.handed if int(key[1].split(".")[0]) not in cluster.logs}
        row = RootRow(LOG, 1, gone)
        (question,) = questions
        waits = any((stream.instance_id, stream.file) in cluster.waiting for stream in question.streams)
        return [standing(row, bool(cluster.logs), waits, cluster.peers)]

    def _may_speak(self, asking: str, asked: str) -> bool:
        """Whether a cluster of the route answers the one before it."""
        senders = self.clusters[asked].senders
        return may_ask_about(LOG, RootRow(LOG, 1 if senders else None, {}, senders), asking, asked)

    def round(self, *, is_wait_over: bool = False) -> tuple[bool, Round]:
        """The verdict, and the answers."""
        said = ask_round({LOG: [HandedOn(peer, LOG.file) for peer in self.clusters["a"].peers]}, "a", self.ask)
        return origin_termination.is_over(LOG, said, is_wait_over), said


GRAPHS: dict[str, Mapping[str, Sequence[str]]] = {
    "one peer": {"a": "b", "b": ""},
    "a chain": {"a": "b", "b": "c", "c": "d", "d": ""},
    "two paths": {"a": "bc", "b": "c", "c": ""},
    "a circle": {"a": "b", "b": "c", "c": "a"},
    "each with each": {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"},
    "two relays": {"a": "bc", "b": "d", "c": "d", "d": ""},
    "a tail behind a circle": {"a": "b", "b": "c", "c": "bd", "d": "e", "e": "cb"},
}


def play(graph: str, seed: int) -> None:
    world = World(GRAPHS[graph], Random(seed), disabled=0.2 * (seed % 2))
    for _ in range(400):
        verdict, _ = world.round()
        if verdict:
            assert not world.owes, f"called over, and a cluster owes records: {world.clusters}"
            return
    raise AssertionError(f"never over: {world.clusters}")


@pytest.mark.parametrize("graph", GRAPHS)
def test_r22_it_ends_and_never_before_nothing_is_owed(graph: str) -> None:
    for seed in range(100):
        play(graph, seed)


@pytest.mark.parametrize(
    "switch", ["clusters-are-read-once", "a-cluster-with-records-may-be-over", "a-receiving-cluster-may-be-over"]
)
def test_r22_red_without_its_rule(switch: str) -> None:
    def play_all() -> None:
        for seed in range(300):
            play("each with each", seed)
            play("a tail behind a circle", seed)

    with fault(switch), pytest.raises(AssertionError, match="a cluster owes records"):
        play_all()


def test_r22_either_relay_ends_a_log_that_only_relays_brought() -> None:
    """D gets records of a from b and from c; each time only one of them has records for it."""
    for seed in range(200):
        play("two relays", seed)


def test_r22_a_relay_that_brought_nothing_is_no_way_and_the_one_that_did_is() -> None:
    world = World(GRAPHS["two relays"], Random(1))
    while world.owes:
        world.move()
    world.clusters["d"].senders = {"c": 1}
    verdict, said = world.round()
    assert verdict
    assert ("c", "d") in said.routes
    assert ("b", "d") not in said.routes
    world.clusters["c"].peers = []  # deletecluster
    verdict, said = world.round()
    assert not verdict
    assert set(said.lost[LOG]) == {"d"}


def test_r22_of_a_log_speak_the_one_that_wrote_it_and_those_that_brought_it() -> None:
    row = RootRow(LOG, 1, {}, {"c": 1})
    assert [may_ask_about(LOG, row, asking, "d") for asking in "abc"] == [True, False, True]
    assert may_ask_about(LOG, None, "b", "d")
    assert may_ask_about(LOG, RootRow(LOG, None, {}, {"c": 1}), "b", "d"), "no records of it are here (any more)"
    assert not may_ask_about(LOG, None, "b", "a"), "of its own a cluster is asked by nobody"
    assert may_ask_about(LOG, None, "a", "a")


def test_r22_a_silent_cluster_delays_the_end_and_not_the_questions_to_others() -> None:
    world = World(GRAPHS["each with each"], Random(1))
    while world.owes:
        world.move()
    world.silent = {"b"}
    verdict, said = world.round(is_wait_over=True)
    assert not verdict
    assert {route[-1] for route in said.routes} == {"c", "d"}, "they hear of it, and do not forget by time"
    assert "b does not answer" in said.silent[LOG]
    world.silent = set()
    assert world.round()[0]


def test_r22_an_unreachable_cluster_delays_the_end_for_a_limited_time() -> None:
    world = World(GRAPHS["a chain"], Random(1))
    while world.owes:
        world.move()
    world.clusters["b"].peers = []  # deletecluster
    verdict, said = world.round()
    assert not verdict
    assert set(said.lost[LOG]) == {"c"}
    assert world.round(is_wait_over=True)[0]


def test_r22_another_route_leads_to_whom_one_does_not() -> None:
    world = World({"a": "bc", "b": "d", "c": "d", "d": ""}, Random(1))
    while world.owes:
        world.move()
    world.clusters["b"].peers = []
    verdict, said = world.round()
    assert verdict
    assert ("c", "d") in said.routes


def test_r22_the_farthest_clusters_are_notified_first() -> None:
    world = World(GRAPHS["a chain"], Random(1))
    while world.owes:
        world.move()
    _, said = world.round()
    assert [route for route, _ in farthest_first(said, [LOG])] == [("b", "c", "d"), ("b", "c"), ("b",)]
    assert farthest_first(said, []) == []


# ---- rows


def test_r22_a_log_that_goes_says_whom_it_brought_what() -> None:
    own, other, over = RootLog("b", "b/1.wal"), LOG, RootLog("a", "a/0.wal")
    puts = recipient_puts(own, [other, over], ["c"], [other])
    assert [put.key for put in puts] == [keys.root_row(own), keys.root_row(other)]
    assert {column for put in puts for column in put.values} == {keys.destination_cell(own, "c", own.file).column}
    assert recipient_puts(own, [other], [], [other]) == [], "records without a receiver need nothing"


def test_r22_time_counts_from_the_last_news_of_a_log() -> None:
    assert not is_forgotten_by_time(RootRow(LOG, 100, {}), 200, 100)
    assert is_forgotten_by_time(RootRow(LOG, 100, {}), 201, 100)
    assert is_forgotten_by_time(RootRow(LOG, None, {}, {"c": 100}), 201, 100), "a mark of a sender that was put late"
    assert not is_forgotten_by_time(RootRow(LOG, None, {("c", "w"): 1}), 10**6, 100)
    assert is_long_gone(RootRow(LOG, None, {("c", "w"): 100}), 201, 100)
    assert not is_long_gone(RootRow(LOG, None, {("c", "w"): 100}), 200, 100)
