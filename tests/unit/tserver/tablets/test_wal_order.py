"""R24: a tablet that moves to a new log names the log before it; a tablet that stays names none."""

from __future__ import annotations

from bookkeeper.model import Barrier
from bookkeeper.tserver.tablets.wal_order import WalPosition, barrier_at, predecessors


def test_r24_the_first_block_in_another_log_names_the_place_before() -> None:
    assert predecessors([WalPosition("w1", 7)], "w2") == [WalPosition("w1", 7)]


def test_r24_the_first_block_of_a_merged_tablet_names_the_places_of_all_that_it_was_made_of() -> None:
    places = [WalPosition("w1", 7), WalPosition("w2", 9), WalPosition("w3", 1)]
    assert predecessors(places, "w4") == places
    assert predecessors(places, "w2") == [WalPosition("w1", 7), WalPosition("w3", 1)]


def test_a_tablet_that_stays_in_its_log_waits_for_nothing() -> None:
    assert predecessors([WalPosition("w1", 7)], "w1") == []


def test_the_first_log_of_a_tablet_waits_for_nothing() -> None:
    assert predecessors([], "w1") == []


def test_r24_a_barrier_is_an_offset_not_a_file() -> None:
    assert barrier_at(40, WalPosition("w1", 7)) == Barrier(40, "w1", 7)
