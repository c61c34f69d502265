"""The ages of waits for the metrics: a fault counts without an age, a wait in the course of things does not."""

from __future__ import annotations

from bookkeeper.master.monitoring import stalls_of
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.causes import Cause, Now
from bookkeeper.master.queries.waits import Waits
from bookkeeper.monitor.observation import Stall
from tests.support.master_values import target

S = 1_000_000_000
NOW = Now(boot_ns=100 * S, wall_ms=61_000)


def test_a_wait_in_the_course_of_things_is_a_series_once_its_age_is_known() -> None:
    waits = Waits()
    for kind, since_s in ((causes.SHIPPING, 97), (causes.WAITING, None), (causes.DAMAGED, None)):
        waits.add(target(), "f", Cause(kind, None if since_s is None else since_s * S), 1, 1)
    assert list(stalls_of(waits.all(), {"1": "cities"}, NOW)) == [
        Stall("cities", "east", causes.DAMAGED, 0.0),
        Stall("cities", "east", causes.SHIPPING, 3.0),
    ]
