"""Which state of a replica does for a page that may be old."""

from __future__ import annotations

import pytest

from bookkeeper.tserver.maintenance.stale_reads import reason_against


@pytest.mark.parametrize(
    ("as_of_ms", "stale_ms", "least_state", "reason"),
    [
        (900, 100, None, ""),
        (900, 99, None, "is 100 ms old, and 99 ms were asked for"),
        (1_050, 0, None, ""),
        (2_001, 5_000, None, "is of a time 1001 ms ahead of this host's clock, so its age is not known"),
        (900, 100, 7, ""),
        (900, 100, 6, ""),
        (900, 100, 8, "has state 7, and an earlier page was of state 8"),
    ],
)
def test_a_state_is_young_enough_and_never_older_than_the_page_before(
    as_of_ms: int, stale_ms: int, least_state: int | None, reason: str
) -> None:
    assert reason_against(7, as_of_ms, 1_000, stale_ms, least_state) == reason
