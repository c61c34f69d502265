"""When nothing of a log is under way any more (rule R22): rounds of questions over clusters that go on meanwhile.

The model: clusters hand records of one log on along edges; what came to a cluster lies in logs of its own, and a log
goes when all who are to get it have it. Between any two questions something may move. The law: while anybody still owes
some of it, it is never called over; and when nothing is left and everybody answers, it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.master import root_waves
from bookkeeper.master.root_books import RootRow, hand_down, is_long_gone, is_unheard_of, standing
from bookkeeper.master.root_waves import Round, Route, ask_round, in_order_of_telling
from bookkeeper.metadata import keys
from bookkeeper.roots import RootLog
from bookkeeper.rpc.messages import RootStanding
from tests.support.faults import fault

LOG = RootLog("a", "file:///a/1.wal")


@dataclass
class Cluster:
    """``logs``: those that hold records of it, each with the peers that lack them still, and how they came here."""

    peers: list[str]
    logs: dict[int, tuple[set[str], frozenset[str]]] = field(default_factory=dict)
    handed: dict[tuple[str, str], int] = field(default_factory=dict)
    made: int = 0

    def take(self, passed: frozenset[str]) -> None:
        """A record that has passed these clusters comes."""
        self.made += 1
        self.logs[self.made] = ({peer for peer in self.peers if peer not in passed}, passed)


class World:
    """Any graph; a's log has just gone."""

    def __init__(self, edges: Mapping[str, Sequence[str]], rng: Random) -> None:
        self.rng = rng
        self.clusters = {name: Cluster(list(peers)) for name, peers in edges.items()}
        self.silent: set[str] = set()
        for peer in edges["a"]:
            self.clusters[peer].take(frozenset(("a", peer)))

    @property
    def owes(self) -> bool:
        """Whether anybody does."""
        return any(cluster.logs for cluster in self.clusters.values())

    def move(self) -> None:
        """A record goes along an edge, or a log that all have goes."""
        busy = [(name, number) for name, cluster in self.clusters.items() for number in cluster.logs]
        if not busy:
            return
        name, number = self.rng.choice(busy)
        cluster = self.clusters[name]
        lacking, passed = cluster.logs[number]
        if lacking:
            peer = self.rng.choice(sorted(lacking))
            lacking.remove(peer)
            self.clusters[peer].take(passed | {peer})
            cluster.handed.setdefault((peer, f"{number}.wal"), 0)
        else:
            del cluster.logs[number]

    def ask(self, route: Route, logs: Sequence[RootLog]) -> list[RootStanding]:
        """Somebody at the end of a route answers, and everybody goes on a little."""
        for _ in range(self.rng.choice((0, 0, 0, 0, 0, 0, 1, 2, 3))):
            self.move()
        for here, there in zip(("a", *route), route, strict=False):
            if there not in self.clusters[here].peers:
                raise NotFoundError(f"{there} is not defined at {here}")
            if there in self.silent:
                raise UnavailableError(f"{there} does not answer")
        cluster = self.clusters[route[-1]]
        gone = {key: 1 for key in cluster.handed if int(key[1].split(".")[0]) not in cluster.logs}
        row = RootRow(LOG, 1, gone)
        return [standing(row, bool(cluster.logs), cluster.peers)] * len(logs)

    def two_rounds(self, *, without_the_lost: bool = False) -> tuple[bool, Round]:
        """The verdict, and the second round."""
        starts = {LOG: self.clusters["a"].peers}
        first, second = ask_round(starts, "a", self.ask), ask_round(starts, "a", self.ask)
        return root_waves.is_over(LOG, first, second, without_the_lost), second


GRAPHS: dict[str, Mapping[str, Sequence[str]]] = {
    "one peer": {"a": "b", "b": ""},
    "a chain": {"a": "b", "b": "c", "c": "d", "d": ""},
    "two paths": {"a": "bc", "b": "c", "c": ""},
    "a circle": {"a": "b", "b": "c", "c": "a"},
    "each with each": {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"},
    "a tail behind a circle": {"a": "b", "b": "c", "c": "bd", "d": "e", "e": "cb"},
}


def play(graph: str, seed: int) -> None:
    world = World(GRAPHS[graph], Random(seed))
    for _ in range(400):
        verdict, _ = world.two_rounds()
        if verdict:
            assert not world.owes, f"called over, and somebody owes: {world.clusters}"
            return
    raise AssertionError(f"never over: {world.clusters}")


@pytest.mark.parametrize("graph", GRAPHS)
def test_r22_it_ends_and_never_before_nothing_is_owed(graph: str) -> None:
    for seed in range(100):
        play(graph, seed)


@pytest.mark.parametrize("switch", ["one-round-is-enough", "who-owes-may-be-over"])
def test_r22_red_without_its_rule(switch: str) -> None:
    def play_all() -> None:
        for seed in range(300):
            play("each with each", seed)
            play("a tail behind a circle", seed)

    with fault(switch), pytest.raises(AssertionError, match="somebody owes"):
        play_all()


def test_r22_who_does_not_answer_is_waited_for_and_others_are_asked_all_the_same() -> None:
    world = World(GRAPHS["each with each"], Random(1))
    while world.owes:
        world.move()
    world.silent = {"b"}
    verdict, said = world.two_rounds(without_the_lost=True)
    assert not verdict
    assert set(said.marks[LOG]) == {"c", "d"}, "they hear of it, and do not forget by time"
    assert "b does not answer" in said.silent[LOG]
    world.silent = set()
    assert world.two_rounds()[0]


def test_r22_who_can_not_be_asked_counts_no_more_when_it_has_been_long_enough() -> None:
    world = World(GRAPHS["a chain"], Random(1))
    while world.owes:
        world.move()
    world.clusters["b"].peers = []  # deletecluster
    verdict, said = world.two_rounds()
    assert not verdict
    assert set(said.lost[LOG]) == {"c"}
    assert world.two_rounds(without_the_lost=True)[0]


def test_r22_another_route_leads_to_whom_one_does_not() -> None:
    world = World({"a": "bc", "b": "d", "c": "d", "d": ""}, Random(1))
    while world.owes:
        world.move()
    world.clusters["b"].peers = []
    verdict, said = world.two_rounds()
    assert verdict
    assert ("c", "d") in said.routes


def test_r22_the_farthest_are_told_first() -> None:
    world = World(GRAPHS["a chain"], Random(1))
    while world.owes:
        world.move()
    _, said = world.two_rounds()
    assert [route for route, _ in in_order_of_telling(said, [LOG])] == [("b", "c", "d"), ("b", "c"), ("b",)]
    assert in_order_of_telling(said, []) == []


# ---- rows


def test_r22_a_log_that_goes_says_whom_it_brought_what() -> None:
    own, other, over = RootLog("b", "file:///b/1.wal"), LOG, RootLog("a", "file:///a/0.wal")
    puts = hand_down(own, [other, over], ["c"], [other])
    assert [put.key for put in puts] == [keys.root_row(own), keys.root_row(other)]
    assert {column for put in puts for column in put.values} == {keys.handed_cell(own, "c", own.file).column}
    assert hand_down(own, [other], [], [other]) == [], "what nobody got needs nothing"


def test_r22_time_counts_from_when_somebody_spoke_of_a_log_last() -> None:
    assert not is_unheard_of(RootRow(LOG, 100, {}), 200, 100)
    assert is_unheard_of(RootRow(LOG, 100, {}), 201, 100)
    assert not is_unheard_of(RootRow(LOG, None, {("c", "w"): 1}), 10**6, 100)
    assert is_long_gone(RootRow(LOG, None, {("c", "w"): 100}), 201, 100)
    assert not is_long_gone(RootRow(LOG, None, {("c", "w"): 100}), 200, 100)
