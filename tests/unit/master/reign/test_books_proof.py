"""Rounds: the knowledge of two stores about each other, after any cut, restored copy or second leader."""

from __future__ import annotations

import pytest

from bookkeeper.errors import LostBooksError, UnavailableError
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MAX_RANK, CellKey, RowPut
from bookkeeper.metadata.owner import ROUND_NAME, owner_value
from tests.support.faults import fault
from tests.support.master_world import World
from tests.support.must_raise import must_raise

ROUND = CellKey(keys.owner_row(), keys.ROUND)


def rounds_of(world: World) -> Rounds:
    """Of a new leader."""
    return world.rounds(world.master().reign)


def held(world: World) -> tuple[int, int]:
    """The round as the books and as the coordination store have it."""
    row = world.table.get(keys.owner_row(), ("owner",))
    cell = None if row is None else row.cells.get(keys.ROUND)
    return 0 if cell is None else cell.rank, world.coordination.number(ROUND_NAME)


def test_each_round_has_the_next_number_in_both_stores(world: World) -> None:
    rounds = rounds_of(world)
    assert [rounds.begin() for _ in range(3)] == [1, 2, 3]
    assert held(world) == (3, 3)
    assert rounds.read_with_proof(lambda: "read") == "read"
    assert held(world) == (4, 4)


def test_a_cut_between_the_stores_is_made_good_by_the_next_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = rounds_of(world)

    def cut(name: str, least: int) -> None:
        raise UnavailableError(f"{name} {least}: cut")

    with monkeypatch.context() as patched:
        patched.setattr(world.coordination, "raise_number", cut)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                rounds.begin()
        assert held(world) == (1, 0), "one ahead, however often"
    assert rounds.begin() == 1
    assert held(world) == (1, 1)


def check_older_books(world: World) -> None:
    rounds = rounds_of(world)
    for _ in range(3):
        rounds.begin()
    world.table.delete([ROUND], MAX_RANK)
    with must_raise(
        LostBooksError,
        "an older copy of the books begins a round",
        match="older copy: its round is 0, and the latest round is 3",
    ):
        rounds.begin()
    assert held(world) == (0, 3), "nothing was written"


def test_books_that_were_put_back_from_an_older_copy_begin_no_round(world: World) -> None:
    check_older_books(world)


def test_red_older_books_count_as_complete(world: World) -> None:
    with (
        fault("older-books-are-believed"),
        pytest.raises(AssertionError, match="an older copy of the books begins a round"),
    ):
        check_older_books(world)


def test_an_older_coordination_store_begins_no_round(world: World) -> None:
    rounds = rounds_of(world)
    world.table.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], 2)
    with pytest.raises(LostBooksError, match=r"is an older copy: its round is 0, and .* is 2"):
        rounds.begin()
    assert held(world) == (2, 0)


def test_the_books_of_another_instance_begin_no_round(world: World) -> None:
    rounds = rounds_of(world)
    world.table.put([RowPut(keys.owner_row(), {keys.OWNER: owner_value("ff9fae57")})], 2)
    with pytest.raises(LostBooksError, match="holds the books of instance ff9fae57"):
        rounds.begin()
    assert held(world) == (0, 0)


def test_a_read_counts_for_nothing_when_another_leader_began_a_round(world: World) -> None:
    rounds = rounds_of(world)
    other = Rounds(world.table, world.coordination, rounds.reign, rounds.instance_id, rounds.url)
    with pytest.raises(LostBooksError, match="another master leads"):
        rounds.read_with_proof(other.begin)
    assert other.read_with_proof(list) == []
