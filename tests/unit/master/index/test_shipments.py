"""Ranges and reports of workers, and the back-off of a failing peer."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import AT_PEER, AT_REPLAY, OverloadedError
from bookkeeper.master.index.shipments import Flight, lands, retry_after_ns
from tests.support.master_values import EAST, NORTH, name, report, shipping

W1, W2 = name("s1"), name("s2")
MS = 1_000_000


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_waits_double_up_to_a_cap_and_at_least_half_of_each_is_kept(failures: int, seed: int) -> None:
    wait_ns = retry_after_ns(failures, 100, 5_000, random.Random(seed))
    ceiling_ms = min(5_000, 100 * 2 ** (failures - 1))
    assert ceiling_ms / 2 * MS <= wait_ns <= ceiling_ms * MS


def test_waits_differ_so_that_peers_are_not_tried_in_step() -> None:
    rng = random.Random(7)
    assert len({retry_after_ns(3, 100, 5_000, rng) for _ in range(20)}) == 20


def test_a_flight_lands_when_its_range_is_done_or_failed() -> None:
    flight = Flight("s1", "t", 1, 5, 0)
    assert [lands(flight, report(W1, finished, txid="t")) for finished in (4, 5, 9)] == [False, True, True]
    assert lands(flight, report(W1, 0, txid="t", error="no"))
    assert not lands(flight, report(W1, 5, txid="another"))


def test_load_counts_the_flights_at_each_tserver_for_each_peer() -> None:
    work = shipping()
    work.hand_out((W1, EAST), Flight("s1", "t", 1, 5, 0))
    work.hand_out((W1, EAST), Flight("s1", "t", 1, 9, 0))
    work.hand_out((W2, EAST), Flight("s2", "u", 1, 5, 0))
    work.hand_out((W2, NORTH), Flight("s2", "u", 1, 5, 0))
    assert (work.load("s1", "east"), work.load("s2", "north"), work.in_flight("east")) == (1, 1, 2)
    work.session_ended("s2")
    assert (work.in_flight("east"), work.in_flight("north")) == (1, 0)
    work.take_back((W1, EAST))
    work.take_back((W1, EAST))
    assert work.in_flight("east") == 0


def test_failures_of_one_wait_count_once_and_success_clears_them() -> None:
    work = shipping(base_ms=100, max_ms=10_000)
    for file in (W1, W2):
        work.report(report(file, 0, error="refused"), 0)
    peer = work.peer("east")
    assert (peer.failures, peer.last_error) == (1, "refused")
    later = peer.next_try_ns
    work.report(report(W1, 0, error="refused"), later)
    assert work.peer("east").failures == 2
    assert work.peer("east").next_try_ns - later >= 100 * MS
    work.report(report(W1, 3), later)
    assert work.peer("east").failures == 0
    assert work.shipment((W1, EAST)).error is None


def test_the_pause_of_a_peer_whose_runs_found_no_slot_here_does_not_grow() -> None:
    work = shipping(base_ms=100, max_ms=10_000)
    for failed_at, grows in ((AT_REPLAY, False), (AT_PEER, True)):
        said = replace(report(W1, 0, error="no slot"), error_code=OverloadedError.code, failed_at=failed_at)
        for _ in range(6):
            now_ns = work.peer("east").next_try_ns
            work.report(said, now_ns)
        assert (work.peer("east").next_try_ns - now_ns > 100 * MS) == grows


def test_a_try_that_began_before_the_newest_replay_process_pauses_no_peer() -> None:
    work = shipping(base_ms=100, max_ms=10_000)
    said = replace(report(W1, 0, error="no replay process is running"), failed_at=AT_REPLAY)
    for launched_ms, pauses in ((4, False), (6, True)):
        work.hand_out((W1, EAST), Flight("s1", "t", 1, 5, launched_ms * MS))
        work.note_new_replay(5 * MS)
        work.report(said, 7 * MS)
        assert (work.peer("east").next_try_ns > 7 * MS) == pauses
        assert work.shipment((W1, EAST)).error == "no replay process is running"


def test_an_error_that_stays_is_the_ranges_own() -> None:
    work = shipping()
    work.report(report(W1, 2, error="damaged block", transient=False), 0)
    shipment = work.shipment((W1, EAST))
    assert (shipment.error, shipment.failures, shipment.finished) == ("damaged block", 1, 2)
    assert shipment.next_try_ns > 0
    assert work.peer("east").failures == 0


def test_reports_add_up_and_finished_never_goes_back() -> None:
    work = shipping()
    for finished in (5, 3):
        work.report(report(W1, finished), 0)
    shipment = work.shipment((W1, EAST))
    assert (shipment.finished, shipment.records, shipment.sent_bytes) == (5, 8, 800)


def test_shipments_of_finished_files_are_dropped() -> None:
    work = shipping()
    work.hand_out((W1, EAST), Flight("s1", "t", 1, 5, 0))
    work.report(report(W2, 5), 0)
    work.forget([W1])
    assert set(work.shipments) == {(W2, EAST)}
    assert work.in_flight("east") == 0
