"""An observer knows by when a lease was renewed last, and looks at it only when a renewal would tell something new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bookkeeper.coordination.zookeeper.lives import Lives
from tests.support.faults import fault

RENEW_MS, LEASE_MS, MARGIN_MS, EACH_MS = 1_000, 8_000, 1_000, 100
"""The observer asks each EACH_MS which sessions are due."""

DIES_MS = 30_300
LAST_MS = DIES_MS // RENEW_MS * RENEW_MS
"""The last renewal. Each has the number of its moment as its transaction."""

MS = 1_000_000


def made() -> Lives:
    return Lives(LEASE_MS, MARGIN_MS, RENEW_MS)


def watch(lives: Lives, begins_ms: int) -> tuple[int, int, int]:
    """How long after the last renewal of a session that dies it is silent, and its death is known, ms; and the looks
    before. The observer renews a lease of its own.
    """
    looks, now_ms, silent_ms = 0, begins_ms, 0
    while lives.over_at("s", now_ms * MS) is None:
        lives.note_order(now_ms - now_ms % 100, now_ms * MS)
        if lives.due(["s"], now_ms * MS):
            looks += now_ms < DIES_MS
            renewed_ms = min(now_ms, DIES_MS) // RENEW_MS * RENEW_MS
            lives.note("s", renewed_ms // RENEW_MS, renewed_ms, now_ms * MS)
        if not silent_ms and lives.silent_ms("s"):
            silent_ms = now_ms - LAST_MS
        now_ms += EACH_MS
    return silent_ms, now_ms - LAST_MS, looks


def check_deaths_are_known_soon() -> None:
    for begins_ms in range(0, RENEW_MS, EACH_MS // 2):
        silent_ms, known_ms, looks = watch(made(), begins_ms)
        assert known_ms > LEASE_MS + MARGIN_MS, "a live process is dead"
        assert LEASE_MS // 2 <= silent_ms <= LEASE_MS // 2 + RENEW_MS // 2, "a silent process works as it seems"
        assert known_ms <= LEASE_MS + MARGIN_MS + RENEW_MS // 2, "a death is known late"
        assert looks <= 1.2 * DIES_MS / (LEASE_MS // 2)


def test_a_death_is_known_soon_after_lease_and_margin() -> None:
    check_deaths_are_known_soon()


def test_without_the_order_a_process_seems_to_work_for_longer() -> None:
    with fault("zookeeper-forgets-the-order"), pytest.raises(AssertionError, match="a silent process works"):
        check_deaths_are_known_soon()


def check_first_looks() -> None:
    """An observer that knows the order looks at a session for the first time."""
    for renewed_ms, since_ms in ((20_000, 22_500), (1_000, 2_000), (23_600, 24_000), (30_100, 30_400)):
        lives = made()
        for now_ms in (2_000, 22_500, 24_000, 30_000):  # answers come late
            lives.note_order(now_ms - 400, now_ms * MS)
        lives.note("s", 7, renewed_ms, 30_400 * MS)
        over_ms = since_ms + LEASE_MS + MARGIN_MS
        assert lives.over_at("s", over_ms * MS) is None, "a live process is dead"
        assert lives.over_at("s", over_ms * MS + 1) == 7


def test_a_first_look_tells_how_long_a_session_has_been_silent() -> None:
    check_first_looks()


@pytest.mark.parametrize("check", [check_first_looks, check_deaths_are_known_soon])
def test_r15_red_a_lease_counts_from_before_its_renewal(check: Callable[[], None]) -> None:
    with fault("zookeeper-any-order"), pytest.raises(AssertionError, match="a live process is dead"):
        check()


def test_what_an_observer_keeps_of_the_order_is_bounded() -> None:
    lives = made()
    for now_ms in range(0, 600_000, 50):
        lives.note_order(now_ms, now_ms * MS)
    assert len(lives._moments) <= 2 + (LEASE_MS + MARGIN_MS) // (RENEW_MS // 4)
    assert lives._moments[0].ns <= (600_000 - LEASE_MS - MARGIN_MS) * MS


def test_a_session_that_nobody_looks_at_any_more_is_no_news() -> None:
    lives, over_ms = made(), LEASE_MS + MARGIN_MS + 1
    lives.note("s", 1, 1, 0)
    assert lives.over_at("s", over_ms * MS) == 1
    assert not lives.is_any_over(over_ms * MS), "an observer would look at all others again and again"
    lives.note("s", 1, 1, LEASE_MS // 2 * MS)
    assert not lives.is_any_over((over_ms - 1) * MS)
    assert lives.is_any_over(over_ms * MS)
