"""The waits of a lane: they grow, differ by chance, and end with a success."""

from __future__ import annotations

import pytest

from bookkeeper.replicas.values import Placement, Target
from bookkeeper.tserver.leading.lane_plan import RETRY_MAX_MS, RETRY_MIN_MS, LanePlan, disk_of, retry_ms

ROW, OTHER = b"1<", b"2<"
WIPED, NEW = (disk_of(Target("host2", Placement(place, disk))) for place, disk in (("p1", "d1"), ("p2", "d2")))


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
    assert plan.is_due(NEW, 0)


def test_the_new_disk_of_a_wiped_host_waits_for_no_tablet_of_the_old_one() -> None:
    plan = LanePlan()
    plan.failed(WIPED, now_ns=0, chance=1.0)
    assert not plan.is_due(WIPED, 0)
    assert plan.is_due(NEW, 0)


def test_a_success_ends_the_wait_and_the_count() -> None:
    plan = LanePlan()
    plan.failed(ROW, 0, 1.0)
    assert plan.failed(ROW, 0, 1.0) == 2
    plan.succeeded(ROW)
    assert plan.is_due(ROW, 0)
    assert plan.failed(ROW, 0, 1.0) == 1


@pytest.mark.parametrize(("kept", "due"), [((NEW,), True), ((ROW, NEW), False)])
def test_what_needs_nothing_more_is_forgotten(kept: tuple[bytes, ...], due: bool) -> None:
    plan = LanePlan()
    plan.failed(ROW, 0, 1.0)
    plan.failed(NEW, 0, 1.0)
    plan.retain(kept)
    assert plan.is_due(ROW, 0) is due
    assert not plan.is_due(NEW, 0)
