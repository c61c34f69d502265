"""The waits of a lane: they grow, differ by chance, and end with a success."""

from __future__ import annotations

import pytest

from bookkeeper.tserver.leading.lane_plan import HOST, RETRY_MAX_MS, RETRY_MIN_MS, LanePlan, retry_ms

ROW, OTHER = b"1<", b"2<"


def test_waits_double_up_to_a_limit_and_half_of_each_is_chance() -> None:
    assert [retry_ms(failures, 1.0) for failures in (1, 2, 3)] == [RETRY_MIN_MS, 2 * RETRY_MIN_MS, 4 * RETRY_MIN_MS]
    assert retry_ms(3, 0.0) == 2 * RETRY_MIN_MS
    assert retry_ms(10_000, 1.0) == RETRY_MAX_MS


def test_a_tablet_that_fails_waits_alone() -> None:
    plan = LanePlan()
    assert plan.failed(ROW, now_ns=0, chance=1.0) == 1
    until_ns = int(RETRY_MIN_MS * 1_000_000)
    assert not plan.is_due(ROW, until_ns - 1)
    assert plan.is_due(ROW, until_ns)
    assert plan.is_due(OTHER, 0)
    assert plan.is_due(HOST, 0)


def test_a_success_ends_the_wait_and_the_count() -> None:
    plan = LanePlan()
    plan.failed(ROW, 0, 1.0)
    assert plan.failed(ROW, 0, 1.0) == 2
    plan.succeeded(ROW)
    assert plan.is_due(ROW, 0)
    assert plan.failed(ROW, 0, 1.0) == 1


@pytest.mark.parametrize(("kept", "due"), [((), True), ((ROW,), False)])
def test_a_tablet_that_needs_nothing_more_is_forgotten_and_the_host_never(kept: tuple[bytes, ...], due: bool) -> None:
    plan = LanePlan()
    plan.failed(ROW, 0, 1.0)
    plan.failed(HOST, 0, 1.0)
    plan.retain(kept)
    assert plan.is_due(ROW, 0) is due
    assert not plan.is_due(HOST, 0)
