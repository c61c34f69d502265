"""Rule R22: where one origin reaches a cluster by several paths, nothing is applied twice and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.faults import fault
from tests.support.path_world import Cluster, Record, check_once, runs_held, settle

Step = tuple[str, int, int, int]
ROWS = [b"a", b"c", b"e", b"k", b"p", b"z"]


@dataclass
class Map:
    """Clusters by name, and the values written to each."""

    directory: Path
    borders: dict[str, Sequence[bytes]] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    written: dict[str, list[int]] = field(default_factory=dict)
    next_value: int = 1

    def __getitem__(self, name: str) -> Cluster:
        if name not in self.clusters:
            self.clusters[name] = Cluster(name, self.directory, self.borders.get(name, ()))
            self.written[name] = []
        return self.clusters[name]

    def join(self, *edges: str) -> None:
        """``ab`` is an edge from a to b; ``abg`` one of group g."""
        for edge in edges:
            self[edge[0]].enable(self[edge[1]], tuple(edge[2:]) or None)

    def write(self, name: str, what: Sequence[Record]) -> list[int]:
        values = list(range(self.next_value, self.next_value + len(what)))
        self[name].write(what, self.next_value)
        self.written[name] += values
        self.next_value += len(what)
        return values

    def ship(self, edge: str, blocks: int = 1_000) -> None:
        """Ship the outstanding records of one edge, by the logs of its source."""
        source = self[edge[0]]
        (found,) = (found for found in source.edges if found.to.name == edge[1])
        for log in source.logs:
            source.ship(found, log.name, blocks)

    def settle(self) -> None:
        """Ship until nothing is outstanding."""
        settle(list(self.clusters.values()))

    def check(self) -> None:
        for name, cluster in self.clusters.items():
            check_once(cluster, self.written[name])


BOTH: list[Record] = [(row, family) for row in ROWS for family in (b"g", b"h")]


def test_r22_schedule_26_what_comes_straight_and_by_way_of_another_is_applied_once(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("ab", "ac", "bc")
    first, second = places.write("a", BOTH), places.write("a", BOTH)
    places.ship("ac", 1)
    places.ship("ab")
    places.ship("bc")
    places.ship("ac")
    places.check()
    assert sorted(places["c"].applied) == first + second


def test_r22_schedule_26_a_group_that_goes_another_way_is_not_lost(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("abg", "ach", "bc")
    values = places.write("a", BOTH) + places.write("a", BOTH)
    places.ship("ac")
    places.ship("ab")
    places.ship("bc")
    places.check()
    assert sorted(places["c"].applied) == values


def test_r22_what_a_path_left_out_before_it_was_enabled_again_is_not_lost(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("ab", "ac", "bc")
    values = places.write("a", BOTH)
    places.ship("ac")
    (straight,) = (edge for edge in places["a"].edges if edge.to.name == "c")
    places["a"].disable(straight)
    values += places.write("a", BOTH)
    places.join("ac")
    values += places.write("a", BOTH)
    places.ship("ac")
    places.ship("ab")
    places.ship("bc")
    places.check()
    assert sorted(places["c"].applied) == values


def test_r22_what_is_in_quarantine_on_one_path_is_not_lost(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("ab", "ac", "bc")
    values = [*places.write("a", BOTH), *places.write("a", BOTH), *places.write("a", BOTH)]
    (straight,) = (edge for edge in places["a"].edges if edge.to.name == "c")
    places.ship("ac", 1)
    places["a"].pass_over(straight, places["a"].logs[0].name)
    places.ship("ac")
    places.ship("ab")
    places.ship("bc")
    places.check()
    assert sorted(places["c"].applied) == values


def test_r22_a_cluster_behind_learns_the_origins_of_its_records_and_no_others(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("adg", "db", "ab", "ac")
    values = places.write("a", BOTH)
    places.ship("ad")
    places.ship("db")
    places.join("bc")
    places.ship("ab")
    places.ship("bc")
    places.ship("ac")
    places.check()
    assert sorted(places["c"].applied) == values


def test_r22_a_path_may_come_when_another_has_long_ended(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("ab", "ac", "bc")
    places.write("a", BOTH)
    places.ship("ac")
    places["c"].end_streams()
    places["c"].flush()
    places.ship("ab")
    places.ship("bc")
    places.check()


def test_r22_a_tserver_that_died_knows_what_came_by_which_path(tmp_path: Path) -> None:
    places = Map(tmp_path)
    places.join("ab", "ac", "bc")
    places.write("a", BOTH)
    places.ship("ab")
    places.ship("bc")
    places["c"].crash()
    places.ship("ac")
    places.check()


def test_r22_a_merged_tablet_knows_which_rows_have_what(tmp_path: Path) -> None:
    places = Map(tmp_path, borders={"b": [b"e"], "c": [b"e"]})
    places.join("ab", "ac", "bc")
    places.write("a", BOTH)
    places.ship("ab")
    places.ship("bc", 1)
    places["c"].merge()
    places.ship("ac")
    places.ship("bc")
    places.check()


def test_r22_what_is_remembered_of_paths_in_order_stays_small(tmp_path: Path) -> None:
    places = Map(tmp_path, borders={"a": [b"d"], "b": [b"e"], "c": [b"c", b"p"], "d": [b"k"]})
    places.join("ab", "bc", "cd")
    for _ in range(20):
        places.write("a", BOTH)
        places.write("a", BOTH[:3])
        places.settle()
    places.check()
    held = [runs_held(places[name]) for name in "abcd"]
    assert held[:3] == [0, 2, 4], "one for each two tablets that have rows in common"
    assert held[3] <= 5


# ---- any topology, any order


def steps() -> st.SearchStrategy[list[Step]]:
    kinds = ["write"] * 4 + ["ship"] * 6 + ["again", "crash", "flush", "split", "merge", "roll", "toggle"]
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=60
    )


EDGES = [source + to for source in "abcd" for to in "abcd" if source != to]
edges = st.lists(
    st.tuples(st.sampled_from(EDGES), st.sampled_from(["", "", "", "g", "h"])), min_size=2, max_size=8,
    unique_by=lambda edge: edge[0],
)  # fmt: skip
borders = st.lists(st.sampled_from(ROWS[:-1]), max_size=2, unique=True)
batches = st.lists(st.sampled_from(BOTH), min_size=1, max_size=8)


def reachable(joined: list[tuple[str, str]], origin: str, family: str) -> set[str]:
    """Clusters that a record of a family reaches when every edge was there from the beginning."""
    found = {origin}
    while True:
        more = {edge[1] for edge, group in joined if edge[0] in found and group in ("", family)} - found
        if not more:
            return found
        found |= more


def perform(places: Map, step: Step, batch: list[Record]) -> None:
    kind, one, two, three = step
    cluster = places["abcd"[one % 4]]
    all_edges = [*cluster.edges, *cluster.old_edges]
    if kind == "write":
        places.write(cluster.name, batch)
    elif kind in ("ship", "again") and all_edges:
        edge, log = all_edges[two % len(all_edges)], cluster.logs[three % len(cluster.logs)]
        cluster.ship(edge, log.name, 1 + three, again=two if kind == "again" else 0)
    elif kind == "crash":
        cluster.crash()
    elif kind == "flush":
        cluster.flush()
    elif kind == "split":
        cluster.split(ROWS[two])
    elif kind == "merge":
        cluster.merge()
    elif kind == "roll":
        cluster.roll()


ANY_MAP: dict[str, st.SearchStrategy[Any]] = {
    "joined": edges,
    "cut": st.tuples(borders, borders, borders, borders),
    "todo": steps(),
    "data": st.data(),
}
many = settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)


@contextmanager
def places_of(joined: list[tuple[str, str]], cut: tuple[list[bytes], ...]) -> Iterator[Map]:
    """Clusters a to d, cut and joined so; gone afterwards."""
    with TemporaryDirectory() as name:
        places = Map(Path(name), borders=dict(zip("abcd", cut, strict=True)))
        places.join(*(edge + group for edge, group in joined))
        yield places


@many
@given(**ANY_MAP)
def test_r22_however_paths_meet_every_record_is_applied_once(
    joined: list[tuple[str, str]], cut: tuple[list[bytes], ...], todo: list[Step], data: st.DataObject
) -> None:
    with places_of(joined, cut) as places:
        wanted: dict[str, set[int]] = {cluster: set() for cluster in "abcd"}
        for step in todo:
            if step[0] == "toggle":
                continue
            batch = data.draw(batches) if step[0] == "write" else []
            first = places.next_value
            perform(places, step, batch)
            for value, (_, family) in enumerate(batch, first):
                for cluster in reachable(joined, "abcd"[step[1] % 4], family.decode()):
                    wanted[cluster].add(value)
        places.settle()
        places.check()
        for cluster, values in wanted.items():
            assert places[cluster].applied.keys() == values


@many
@given(**ANY_MAP)
def test_r22_while_edges_come_and_go_what_is_sent_is_applied_once(
    joined: list[tuple[str, str]], cut: tuple[list[bytes], ...], todo: list[Step], data: st.DataObject
) -> None:
    with places_of(joined, cut) as places:
        for step in todo:
            if step[0] != "toggle":
                perform(places, step, data.draw(batches) if step[0] == "write" else [])
                continue
            toggled = joined[step[1] % len(joined)][0]
            known = [edge for edge in places[toggled[0]].edges if edge.to.name == toggled[1]]
            if known:
                places[toggled[0]].disable(known[0])
            else:
                places.join(toggled + ["", "g", "h"][step[2] % 3])
        places.settle()
        places.check()


# ---- tablets that are cut otherwise on each path, and anew in between

TRIANGLE = [("ab", ""), ("ac", ""), ("bc", "")]
ON_THE_WAY = ["write", "write", "straight", "around", "split", "merge", "renew", "crash"]
on_the_way = st.lists(st.tuples(st.sampled_from(ON_THE_WAY), st.integers(0, 5)), min_size=8, max_size=40)


def cut_on_the_way(cut: list[bytes], todo: list[tuple[str, int]]) -> None:
    """Writes of a reach c straight and through b, whose tablets end at ``cut``; c's are split and merged. The renewed
    straight path knows nothing of its earlier records, so it does not make good what c forgets of them.
    """
    with places_of(TRIANGLE, ([], cut, [], [])) as places:
        for kind, number in todo:
            if kind == "write":
                places.write("a", BOTH)
            elif kind == "straight":
                places.ship("ac", 1 + number)
            elif kind == "around":
                places.ship("ab")
                places.ship("bc", 1 + number)
            elif kind == "renew":
                places.ship("ac")
                (straight,) = (edge for edge in places["a"].edges if edge.to.name == "c")
                places["a"].disable(straight)
                places.join("ac")
            else:
                perform(places, (kind, 2, number, 0), [])
        places.settle()
        places.check()


@settings(many, max_examples=100)
@given(borders, on_the_way)
def test_r22_however_tablets_are_cut_on_the_way_every_record_is_applied_once(
    cut: list[bytes], todo: list[tuple[str, int]]
) -> None:
    cut_on_the_way(cut, todo)


def test_r22_the_search_finds_parts_of_the_same_rows_that_stay_apart() -> None:
    search = settings(many, max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
    with fault("parts-of-the-same-rows-stay-apart"), pytest.raises(AssertionError, match="twice"):
        search(given(borders, on_the_way)(cut_on_the_way))()
