"""How the threads of a reign pace themselves."""

from __future__ import annotations

from bookkeeper.master.leadership import COLLECT_REST_MAX_MS, collect_rest_ms


def test_the_collector_rests_longer_than_it_worked_but_not_for_days() -> None:
    assert collect_rest_ms(10_000, 20) == 10_000
    assert collect_rest_ms(10_000, 5_000) == 45_000
    stopped_with_its_machine = 8 * 3_600_000
    assert collect_rest_ms(10_000, stopped_with_its_machine) == COLLECT_REST_MAX_MS
    assert collect_rest_ms(2 * COLLECT_REST_MAX_MS, stopped_with_its_machine) == 2 * COLLECT_REST_MAX_MS
